#include "engine/model/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoTensors[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";

TEST(SafetensorsHeaderTest, ListsTensorsWithTypeShapeAndPlace) {
  const auto entries = ParseSafetensorsHeader(kTwoTensors, 26);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  const TensorEntry& a = entries->at("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.elements, 6);
  EXPECT_EQ(a.begin, 0u);
  EXPECT_EQ(a.end, 24u);
  const TensorEntry& b = entries->at("b");
  EXPECT_EQ(b.dtype, DType::kBf16);
  EXPECT_TRUE(b.shape.empty());
  EXPECT_EQ(b.elements, 1);
}

TEST(SafetensorsHeaderTest, TakesWhatTheFormatAllows) {
  // Spaces after the JSON, tensors in any order, empty tensors, no tensors.
  EXPECT_TRUE(
      ParseSafetensorsHeader(std::string(kTwoTensors) + "   ", 26).ok());
  EXPECT_TRUE(ParseSafetensorsHeader(
                  R"({"b":{"data_offsets":[2,4],"shape":[1],"dtype":"I16"},)"
                  R"("e":{"data_offsets":[2,2],"shape":[0,7],"dtype":"I64"},)"
                  R"("a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8"}})",
                  4)
                  .ok());
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 0).ok());
}

TEST(SafetensorsHeaderTest, KnowsTheTypesOfTheFormat) {
  const struct {
    const char* name;
    int64_t bytes;
  } kTypes[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const auto& type : kTypes) {
    const std::string header = std::string(R"({"t":{"shape":[3],"dtype":")") +
                               type.name + R"(","data_offsets":[0,)" +
                               std::to_string(3 * type.bytes) + "]}}";
    const auto entries =
        ParseSafetensorsHeader(header, static_cast<uint64_t>(3 * type.bytes));
    ASSERT_TRUE(entries.ok()) << type.name << ": " << entries.status();
    EXPECT_EQ(DTypeName(entries->at("t").dtype), type.name);
  }
}

struct BadHeader {
  std::string what;  // is wrong
  std::string header;
  uint64_t data_bytes;
  std::string message;  // part of the refusal
};

std::string OneTensor(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

const BadHeader kBadHeaders[] = {
    {"nothing", "", 0, "not JSON"},
    {"no JSON", "\x80\x02}q\x00.", 4, "not JSON"},
    {"invalid UTF-8", "{\"\xff\":1}", 4, "not JSON"},
    {"no object", "[1]", 4, "the header holds an array"},
    {"a bare string", "\"t\"", 4, "the header holds a string"},
    {"text after the object", "{} {}", 0, "not JSON"},
    {"cut off", R"({"t":{"dtype":"F32","sha)", 4, "not JSON"},
    {"a tensor that is a number", R"({"t":1})", 4, "'t' holds a number"},
    {"a tensor that is null", R"({"t":null})", 4, "'t' holds null"},
    {"a name twice",
     R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "tensor 't' is listed twice"},
    {"a field twice",
     R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "tensor 't' has the field 'dtype' twice"},
    {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
    {"a metadata key twice", R"({"__metadata__":{"a":"","a":""}})", 0,
     "__metadata__ has the key 'a' twice"},
    {"metadata that is no string", R"({"__metadata__":{"a":1}})", 0,
     "__metadata__ holds a number"},
    {"an unknown field",
     R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
     "tensor 't' has the unknown field 'x'"},
    {"no dtype", R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1,
     "tensor 't' has no 'dtype'"},
    {"no shape", R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1,
     "tensor 't' has no 'shape'"},
    {"no offsets", R"({"t":{"dtype":"U8","shape":[1]}})", 1,
     "tensor 't' has no 'data_offsets'"},
    {"an unknown dtype", OneTensor("F4", "[1]", "[0,1]"), 1,
     "tensor 't' has the unknown dtype 'F4'"},
    {"a dtype that is a number",
     R"({"t":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1,
     "tensor 't': 'dtype' holds a number"},
    {"a shape that is a string",
     R"({"t":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", 1,
     "tensor 't': 'shape' holds a string"},
    {"a negative dimension", OneTensor("U8", "[-1]", "[0,1]"), 1,
     "tensor 't': 'shape' holds a negative number"},
    {"a fraction as dimension", OneTensor("U8", "[1.5]", "[0,1]"), 1,
     "'shape' holds a number that is not a whole one"},
    {"a dimension of 2^64", OneTensor("U8", "[18446744073709551616]", "[0,1]"),
     1, "'shape' holds a number that is not a whole one below 2^64"},
    {"a dimension of 2^63", OneTensor("U8", "[9223372036854775808]", "[0,1]"),
     1, "'shape' holds the dimension 9223372036854775808"},
    {"a nested shape", OneTensor("U8", "[[1]]", "[0,1]"), 1,
     "'shape' holds an array"},
    {"too many dimensions", OneTensor("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1,
     "more than 8 dimensions"},
    {"a product that overflows",
     OneTensor("U8", "[4294967296,4294967296]", "[0,0]"), 0,
     "the size of shape [4294967296, 4294967296] overflows"},
    {"bytes that overflow", OneTensor("F64", "[1152921504606846976]", "[0,0]"),
     0, "overflows"},
    {"one offset", OneTensor("U8", "[1]", "[0]"), 1, "fewer than two numbers"},
    {"three offsets", OneTensor("U8", "[1]", "[0,1,1]"), 1,
     "more than two numbers"},
    {"a negative offset", OneTensor("U8", "[1]", "[-1,0]"), 1,
     "'data_offsets' holds a negative number"},
    {"offsets in reverse", OneTensor("U8", "[1]", "[1,0]"), 1,
     "data_offsets are [1, 0]"},
    {"a size that is not the dtype's", OneTensor("F16", "[4]", "[0,16]"), 16,
     "tensor 't': dtype F16 and shape [4] need 8 bytes, data_offsets are "
     "[0, 16]"},
    {"less data than it says", OneTensor("U8", "[8]", "[0,8]"), 7,
     "tensor 't' ends at byte 8 of the data, which has only 7: truncated"},
    {"more data than it says", OneTensor("U8", "[8]", "[0,8]"), 9,
     "1 trailing bytes"},
    {"data without tensors", "{}", 9, "9 trailing bytes"},
    {"a hole before", OneTensor("U8", "[7]", "[1,8]"), 8,
     "tensor 't' begins at byte 1 of the data, leaving a hole"},
    {"a hole between",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3, "tensor 'b' begins at byte 2 of the data, leaving a hole"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, "tensor 'b' begins at byte 1 of the data, overlapping"},
    {"two names for the same bytes",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
     2, "overlapping"},
};

TEST(SafetensorsHeaderTest, RefusesWhatTheFormatForbidsAndSaysWhy) {
  for (const BadHeader& bad : kBadHeaders) {
    const auto entries = ParseSafetensorsHeader(bad.header, bad.data_bytes);
    ASSERT_FALSE(entries.ok()) << bad.what;
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument)
        << bad.what;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr(bad.message))
        << bad.what;
  }
}

TEST(SafetensorsHeaderTest, RefusesDeepNestingWithoutDeepRecursion) {
  const std::string deep(10'000'000, '[');
  EXPECT_FALSE(ParseSafetensorsHeader(deep, 0).ok());
  EXPECT_FALSE(ParseSafetensorsHeader(R"({"t":{"shape":)" + deep, 0).ok());
}

TEST(SafetensorsHeaderTest, KeepsMessagesShortWhateverTheName) {
  const std::string name(1'000'000, 'x');
  const auto entries = ParseSafetensorsHeader("{\"" + name + "\":1}", 0);
  ASSERT_FALSE(entries.ok());
  EXPECT_LT(entries.status().message().size(), 500u);
}

TEST(SafetensorsHeaderTest, SurvivesEveryChangedByteAndEveryCut) {
  const std::string header = kTwoTensors;
  for (size_t i = 0; i < header.size(); ++i) {
    EXPECT_FALSE(ParseSafetensorsHeader(header.substr(0, i), 26).ok());
    for (const int bit : {0, 1, 4, 7}) {
      std::string changed = header;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      // Many changes leave a valid header (another name); none may crash, and
      // none may put a tensor outside the data.
      const auto entries = ParseSafetensorsHeader(changed, 26);
      if (!entries.ok()) continue;
      for (const auto& item : *entries) EXPECT_LE(item.second.end, 26u);
    }
  }
}

}  // namespace
}  // namespace reprise

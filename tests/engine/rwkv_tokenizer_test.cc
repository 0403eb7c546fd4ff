#include "engine/rwkv_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The 256 bytes, id = byte + 1, as the published file has them.
std::string ByteLines() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    lines += byte < 0x80 ? absl::StrFormat("%d '\\x%02x' 1\n", byte + 1, byte)
                         : absl::StrFormat("%d b'\\x%02x' 1\n", byte + 1, byte);
  }
  return lines;
}

const char kWords[] =
    "257 'ab' 2\n258 'abcd' 4\n259 ' the' 4\n260 '\u4F60' 3\n"
    "261 b'\\xe4\\xbd' 2\n262 'it\\'s ' 5\n";

std::unique_ptr<Tokenizer> Load(const std::string& contents) {
  auto tokenizer = CreateRwkvTokenizer(contents, "vocab.txt", 300);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(RwkvTokenizerTest, TakesTheLongestToken) {
  const auto tokenizer = Load(ByteLines() + kWords);
  EXPECT_EQ(tokenizer->kind(), "rwkv");
  EXPECT_THAT(*tokenizer->Encode("abcdabc the", false),
              ElementsAre(258, 257, 100, 259));
  EXPECT_THAT(*tokenizer->Encode("\u4F60\xE4\xBD", false),
              ElementsAre(260, 261));
  EXPECT_THAT(*tokenizer->Encode("it's it's", false),
              ElementsAre(262, 106, 117, 40, 116));
  EXPECT_THAT(*tokenizer->Encode("", false), ElementsAre());
}

TEST(RwkvTokenizerTest, TakesAndGivesAnyBytes) {
  const auto tokenizer = Load(ByteLines() + kWords);
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const auto ids = tokenizer->Encode(bytes, false);
  ASSERT_TRUE(ids.ok());
  std::string again;
  for (const int32_t id : *ids) again += tokenizer->TokenBytes(id);
  EXPECT_EQ(again, bytes);
  EXPECT_EQ(Decode(*tokenizer, std::vector<int32_t>{261, 33}, false),
            "\uFFFD ");
}

TEST(RwkvTokenizerTest, EndOfTextIsASpecialTokenThatNoLineHas) {
  const auto tokenizer = Load(ByteLines() + kWords);
  EXPECT_EQ(tokenizer->FindToken("<|endoftext|>"), 0);
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(1));
  EXPECT_THAT(*tokenizer->Encode("ab<|endoftext|>ab", true),
              ElementsAre(257, 0, 257));
  EXPECT_EQ(tokenizer->Encode("<|endoftext|>", false)->size(), 13u);
  EXPECT_EQ(Decode(*tokenizer, std::vector<int32_t>{257, 0}, false), "ab");
  EXPECT_EQ(tokenizer->TokenBytes(299), "");
}

TEST(RwkvTokenizerTest, TakesLinesThatEndInAnyWay) {
  std::string contents = ByteLines() + "257 'ab' 2";
  EXPECT_THAT(*Load(contents)->Encode("ab", false), ElementsAre(257));
  for (size_t at = 0; (at = contents.find('\n', at)) != std::string::npos;) {
    contents.replace(at, 1, "\r\n");
    at += 2;
  }
  EXPECT_THAT(*Load(contents)->Encode("ab", false), ElementsAre(257));
}

TEST(RwkvTokenizerTest, RefusesBadLinesByNumber) {
  const std::pair<const char*, const char*> kBad[] = {
      {"", "line 257 is not an id, a token and a length"},
      {"x", "is not an id, a token and a length"},
      {"257 'ab'", "is not an id, a token and a length"},
      {"x 'ab' 2", "has the id x, not in [1, 300)"},
      {"0 'ab' 2", "has the id 0"},
      {"-1 'ab' 2", "has the id -1"},
      {"300 'ab' 2", "has the id 300"},
      {"99999999999 'ab' 2", "has the id 99999999999"},
      {"5 'ab' 2", "has the id 5, as another line has"},
      {"257 'a' 1", "has the token of another line"},
      {"257 'ab' 3", "has a token of 2 bytes and the length 3"},
      {"257 'ab' x", "has a token of 2 bytes and the length x"},
      {"257 '\u4F60' 1", "has a token of 3 bytes and the length 1"},
      {"257 '' 0", "has a token of 0 bytes, not 1..256"},
      {"257 ab 2", "not in quotes"},
      {"257 __import__('os') 2", "not in quotes"},
  };
  for (const auto& [line, words] : kBad) {
    const absl::Status status =
        CreateRwkvTokenizer(absl::StrCat(ByteLines(), line, "\n"), "vocab.txt",
                            300)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(status.message(), HasSubstr("vocab.txt line 257 ")) << line;
    EXPECT_THAT(status.message(), HasSubstr(words)) << line;
  }
}

TEST(RwkvTokenizerTest, RefusesMissingBytesAndHugeFiles) {
  std::string contents = ByteLines();
  contents.erase(contents.rfind("256 "));
  EXPECT_THAT(
      CreateRwkvTokenizer(contents, "vocab.txt", 300).status().message(),
      HasSubstr("no token for byte 255"));
  EXPECT_THAT(
      CreateRwkvTokenizer(std::string((16 << 20) + 1, '\n'), "vocab.txt", 300)
          .status()
          .message(),
      HasSubstr("16777217 bytes (at most 16777216)"));
  const std::string longest(257, 'x');
  EXPECT_THAT(CreateRwkvTokenizer(
                  absl::StrCat(ByteLines(), "257 '", longest, "' 257\n"),
                  "vocab.txt", 300)
                  .status()
                  .message(),
              HasSubstr("257 bytes, not 1..256"));
}

TEST(RwkvTokenizerTest, SurvivesEveryByteChangedAndEveryCut) {
  const std::string contents = ByteLines() + kWords;
  for (size_t i = contents.size() - 200; i < contents.size(); ++i) {
    std::string changed = contents;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    for (const std::string& text : {changed, contents.substr(0, i)}) {
      const auto tokenizer = CreateRwkvTokenizer(text, "vocab.txt", 300);
      if (!tokenizer.ok()) continue;
      const auto ids = (*tokenizer)->Encode("abcd the \u4F60 it's", true);
      ASSERT_TRUE(ids.ok());
      for (const int32_t id : *ids) ASSERT_LT(id, 300);
    }
  }
}

// The worst vocabulary: long beginnings that never end in a token.
TEST(RwkvTokenizerTest, EncodesALongWordInTime) {
  const std::string longest = std::string(255, 'a') + "b";
  const auto tokenizer =
      Load(absl::StrCat(ByteLines(), "257 '", longest, "' 256\n"));
  const auto ids = tokenizer->Encode(std::string(1 << 18, 'a'), false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), size_t{1 << 18});
}

TEST(RwkvTokenizerTest, EncodesUpToALimitOfTokens) {
  const auto tokenizer = Load(ByteLines());
  const auto ids = tokenizer->Encode("a text", false).value();
  EXPECT_EQ(tokenizer->EncodeUpTo("a text", false, ids.size()).value(), ids);
  EXPECT_EQ(tokenizer->EncodeUpTo("a text", false, ids.size() - 1).status(),
            TooManyTokensError(ids.size() - 1));
}

TEST(RwkvTokenizerTest, LimitsTheText) {
  EXPECT_EQ(Load(ByteLines())
                ->Encode(std::string(kMaxTextBytes + 1, 'a'), false)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RwkvTokenizerTest, FingerprintDiffersWithTheFile) {
  EXPECT_EQ(Load(ByteLines())->fingerprint(), Load(ByteLines())->fingerprint());
  EXPECT_NE(Load(ByteLines())->fingerprint(),
            Load(ByteLines() + kWords)->fingerprint());
}

}  // namespace
}  // namespace reprise

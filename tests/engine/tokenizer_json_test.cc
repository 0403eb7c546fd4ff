#include "engine/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "tests/support/bpe_json.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

void ExpectRefused(const absl::Status& status,
                   const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_THAT(status.message(), HasSubstr(word));
  }
}

struct Change {
  std::string name;
  std::function<void(Json&)> apply;
  std::vector<std::string> words;  // in the message
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class RefusedTokenizerJsonTest : public testing::TestWithParam<Change> {};

TEST_P(RefusedTokenizerJsonTest, NamesTheFieldAndItsValue) {
  Json json = BpeJson({{"a", "b"}});
  GetParam().apply(json);
  ExpectRefused(LoadBpe(json, /*vocab_size=*/300).status(), GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, RefusedTokenizerJsonTest,
    testing::Values(
        Change{
            "NoModel", [](Json& j) { j.erase("model"); }, {"model is missing"}},
        Change{"ModelIsText",
               [](Json& j) { j["model"] = "BPE"; },
               {"model must be a JSON object"}},
        Change{"Unigram",
               [](Json& j) { j["model"]["type"] = "Unigram"; },
               {"model.type", "Unigram", "not supported"}},
        Change{"Dropout",
               [](Json& j) { j["model"]["dropout"] = 0.1; },
               {"model.dropout"}},
        Change{"Prefix",
               [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
               {"model.continuing_subword_prefix"}},
        Change{"Suffix",
               [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
               {"model.end_of_word_suffix"}},
        Change{"IgnoreMergesIsText",
               [](Json& j) { j["model"]["ignore_merges"] = "yes"; },
               {"model.ignore_merges must be true or false"}},
        Change{"VocabIsArray",
               [](Json& j) { j["model"]["vocab"] = Json::array(); },
               {"model.vocab must be a JSON object"}},
        Change{"IdIsText",
               [](Json& j) { j["model"]["vocab"]["ab"] = "256"; },
               {"model.vocab[\"ab\"] must be an integer"}},
        Change{"IdIsFraction",
               [](Json& j) { j["model"]["vocab"]["ab"] = 256.5; },
               {"must be an integer"}},
        Change{"IdNegative",
               [](Json& j) { j["model"]["vocab"]["ab"] = -1; },
               {"model.vocab[\"ab\"] is -1", "[0, 300)"}},
        Change{"IdPastVocabulary",
               [](Json& j) { j["model"]["vocab"]["ab"] = 300; },
               {"model.vocab[\"ab\"] is 300", "[0, 300)"}},
        Change{"IdPast63Bits",
               [](Json& j) { j["model"]["vocab"]["ab"] = ~uint64_t{0}; },
               {"18446744073709551615", "[0, 300)"}},
        Change{"DuplicateId",
               [](Json& j) { j["model"]["vocab"]["xyz"] = 97; },
               {"model.vocab[\"xyz\"] has the id 97", "\"a\""}},
        Change{"ByteMissing",
               [](Json& j) {
                 j["model"]["vocab"].erase("z");
                 j["model"]["vocab"]["zz"] = 122;
               },
               {"no token for byte 122"}},
        Change{"NoMerges",
               [](Json& j) { j["model"].erase("merges"); },
               {"model.merges must be an array"}},
        Change{"MergeOfThree",
               [](Json& j) { j["model"]["merges"][0] = "a b c"; },
               {"model.merges[0]", "a b c"}},
        Change{"MergeOfOne",
               [](Json& j) { j["model"]["merges"][0] = "ab"; },
               {"model.merges[0]"}},
        Change{"MergeOfNumbers",
               [](Json& j) {
                 j["model"]["merges"][0] = {1, 2};
               },
               {"model.merges[0] is \"[1,2]\""}},
        Change{"MergeOfUnknown",
               [](Json& j) { j["model"]["merges"][0] = "a qq"; },
               {"model.merges[0]", "\"qq\" is not in the vocabulary"}},
        Change{"MergeToUnknown",
               [](Json& j) { j["model"]["merges"][0] = "a c"; },
               {"model.merges[0]", "\"ac\" is not in the vocabulary"}},
        Change{"MergeToSpecial",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(256, "ab", true)});
               },
               {"model.merges[0]", "special"}},
        Change{"AddedIdTwice",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(280, "<x>", true),
                                  AddedTokenJson(280, "<x>", true)});
               },
               {"added_tokens[1].id 280"}},
        Change{"AddedIdOfAnother",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(97, "<x>", true)});
               },
               {"added_tokens[0].id 97", "\"a\""}},
        Change{"AddedNameOfAnother",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(280, "ab", false)});
               },
               {"added_tokens[0].content \"ab\" has the id 256"}},
        Change{"AddedIdPastVocabulary",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(300, "<x>", true)});
               },
               {"added_tokens[0].id is 300"}},
        Change{"AddedWithoutId",
               [](Json& j) {
                 j["added_tokens"] = Json::array({{{"content", "<x>"}}});
               },
               {"added_tokens[0].id must be an integer"}},
        Change{"AddedEmpty",
               [](Json& j) {
                 j["added_tokens"] =
                     Json::array({AddedTokenJson(280, "", true)});
               },
               {"added_tokens[0].content has 0 bytes"}},
        Change{"AddedLong",
               [](Json& j) {
                 j["added_tokens"] = Json::array(
                     {AddedTokenJson(280, std::string(257, 'x'), true)});
               },
               {"added_tokens[0].content has 257 bytes"}},
        Change{"NoUnknown",
               [](Json& j) {
                 j["pre_tokenizer"] = nullptr;
                 j["decoder"] = {{"type", "Fuse"}};
               },
               {"model.unk_token is missing", "<0x00>"}},
        Change{"UnknownIsUnknown",
               [](Json& j) {
                 j["pre_tokenizer"] = nullptr;
                 j["decoder"] = {{"type", "Fuse"}};
                 j["model"]["unk_token"] = "<unk>";
               },
               {"model.unk_token \"<unk>\" is not in the vocabulary"}},
        Change{"Normalizer",
               [](Json& j) {
                 j["normalizer"] = {
                     {"type", "Sequence"},
                     {"normalizers",
                      {{{"type", "NFC"}}, {{"type", "Precompiled"}}}}};
               },
               {"normalizer.normalizers[1].type", "Precompiled"}},
        Change{"ReplaceOfNothing",
               [](Json& j) {
                 j["normalizer"] = {{"type", "Replace"},
                                    {"pattern", {{"String", ""}}},
                                    {"content", "x"}};
               },
               {"normalizer.pattern is empty"}},
        Change{"LongReplacement",
               [](Json& j) {
                 j["normalizer"] = {{"type", "Replace"},
                                    {"pattern", {{"String", "a"}}},
                                    {"content", std::string(257, 'x')}};
               },
               {"normalizer.content has 257 bytes (at most 256)"}},
        Change{"BadReplacePattern",
               [](Json& j) {
                 j["normalizer"] = {{"type", "Replace"},
                                    {"pattern", {{"Regex", "ab(c"}}},
                                    {"content", "x"}};
               },
               {"normalizer", "offset 4"}},
        Change{"TooManySteps",
               [](Json& j) {
                 Json part = {{"type", "Prepend"}, {"prepend", "x"}};
                 j["normalizer"] = {{"type", "Sequence"},
                                    {"normalizers", Json::array()}};
                 for (int i = 0; i < 17; ++i) {
                   j["normalizer"]["normalizers"].push_back(part);
                 }
               },
               {"normalizer.normalizers[16].type", "step 17 (at most 16)"}},
        Change{"PreTokenizer",
               [](Json& j) { j["pre_tokenizer"]["type"] = "UnicodeScripts"; },
               {"pre_tokenizer.type", "UnicodeScripts", "not supported"}},
        Change{"MetaspaceOfTwo",
               [](Json& j) {
                 j["pre_tokenizer"] = {{"type", "Metaspace"},
                                       {"replacement", "__"}};
               },
               {"pre_tokenizer.replacement", "not one character"}},
        Change{"PrependScheme",
               [](Json& j) {
                 j["pre_tokenizer"] = {{"type", "Metaspace"},
                                       {"replacement", "_"},
                                       {"prepend_scheme", "often"}};
               },
               {"pre_tokenizer.prepend_scheme", "often"}},
        Change{"ContradictingPrefix",
               [](Json& j) {
                 j["pre_tokenizer"] = {{"type", "Metaspace"},
                                       {"replacement", "_"},
                                       {"add_prefix_space", false},
                                       {"prepend_scheme", "first"}};
               },
               {"pre_tokenizer.prepend_scheme", "contradicts"}},
        Change{"Behavior",
               [](Json& j) {
                 j["pre_tokenizer"] = {{"type", "Split"},
                                       {"pattern", {{"Regex", "a"}}},
                                       {"behavior", "Sideways"}};
               },
               {"pre_tokenizer.behavior", "Sideways"}},
        Change{"ByteLevelDecoderAlone",
               [](Json& j) { j["pre_tokenizer"] = nullptr; },
               {"decoder and pre_tokenizer"}},
        Change{"ByteLevelPreTokenizerAlone",
               [](Json& j) { j["decoder"]["type"] = "Fuse"; },
               {"decoder and pre_tokenizer"}},
        Change{"StripBeforeFuse",
               [](Json& j) {
                 j["decoder"] = {{"type", "Strip"},
                                 {"content", " "},
                                 {"start", 1},
                                 {"stop", 0}};
               },
               {"decoder.type", "before Fuse"}},
        Change{"ReplaceAfterFuse",
               [](Json& j) {
                 j["decoder"] = {
                     {"type", "Sequence"},
                     {"decoders", {{{"type", "Fuse"}}, {{"type", "Replace"}}}}};
               },
               {"decoder.decoders[1].type", "after Fuse"}},
        Change{"StripOfTheEnd",
               [](Json& j) {
                 j["decoder"] = {{"type", "Sequence"},
                                 {"decoders",
                                  {{{"type", "Fuse"}},
                                   {{"type", "Strip"},
                                    {"content", " "},
                                    {"start", 0},
                                    {"stop", 1}}}}};
               },
               {"decoder.decoders[1].stop"}},
        Change{"SplitAfterByteLevel",
               [](Json& j) {
                 j["pre_tokenizer"] = {
                     {"type", "Sequence"},
                     {"pretokenizers",
                      {j["pre_tokenizer"], {{"type", "Split"}}}}};
               },
               {"pre_tokenizer.pretokenizers[1].type", "after ByteLevel"}},
        Change{"BadPattern",
               [](Json& j) {
                 j["pre_tokenizer"] = {{"type", "Sequence"},
                                       {"pretokenizers",
                                        {{{"type", "Split"},
                                          {"pattern", {{"Regex", "ab(c"}}},
                                          {"behavior", "Isolated"}},
                                         j["pre_tokenizer"]}}};
               },
               {"pre_tokenizer", "offset 4"}},
        Change{"Decoder",
               [](Json& j) { j["decoder"]["type"] = "WordPiece"; },
               {"decoder.type", "WordPiece"}},
        Change{"NoDecoder",
               [](Json& j) { j.erase("decoder"); },
               {"decoder is missing"}}),
    [](const auto& info) { return info.param.name; });

TEST(TokenizerJsonTest, RefusesWhatIsNotJson) {
  for (const std::string text : {"", "{", "[1,", "nul", "{\"a\":\"\xFF\"}",
                                 "{\"a\":\"\\ud800\"}", "{} x"}) {
    ExpectRefused(ParseTokenizerJson(text, 300).status(), {"not JSON"});
  }
  ExpectRefused(ParseTokenizerJson("[]", 300).status(), {"JSON object"});
}

TEST(TokenizerJsonTest, RefusesTwoEqualNames) {
  ExpectRefused(
      ParseTokenizerJson(R"({"model":{"vocab":{"a":1,"b":2,"a":3}}})", 300)
          .status(),
      {"has the key 'a' twice"});
}

TEST(TokenizerJsonTest, RefusesADeepDocument) {
  const std::string deep(1000000, '[');
  ExpectRefused(ParseTokenizerJson("{\"a\":" + deep, 300).status(),
                {"nested deeper than 16"});
}

TEST(TokenizerJsonTest, RefusesAHugeFile) {
  ExpectRefused(
      ParseTokenizerJson(std::string((64 << 20) + 1, ' '), 300).status(),
      {"67108865 bytes, the limit is 67108864"});
}

// A file cut anywhere is refused, not half read.
TEST(TokenizerJsonTest, RefusesEveryBeginningOfAFile) {
  const std::string text = BpeJson({{"a", "b"}}).dump();
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(ParseTokenizerJson(text.substr(0, size), 300).ok()) << size;
  }
}

// A changed byte may leave a file that is good, but never one that breaks us.
TEST(TokenizerJsonTest, SurvivesEveryByteChanged) {
  nlohmann::json json = BpeJson({{"a", "b"}});
  json["added_tokens"] = Json::array({AddedTokenJson(280, "<x>", true)});
  const std::string text = json.dump();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    const auto spec = ParseTokenizerJson(changed, 300);
    if (!spec.ok()) continue;
    const auto tokenizer = CreateBpeTokenizer(*spec, 300);
    if (!tokenizer.ok()) continue;
    const auto ids = (*tokenizer)->Encode("abc <x>", /*allow_special=*/true);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) ASSERT_LT(id, 300);
  }
}

TEST(TokenizerJsonTest, TakesOldFilesWithoutAType) {
  Json json = BpeJson({{"a", "b"}});
  json["model"].erase("type");
  json["model"]["dropout"] = nullptr;
  json["model"]["continuing_subword_prefix"] = "";
  EXPECT_TRUE(LoadBpe(json).ok());
}

}  // namespace
}  // namespace reprise

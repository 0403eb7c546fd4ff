#include "engine/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/support/bpe_json.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectRefused(const absl::Status& status,
                   const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_THAT(status.message(), HasSubstr(word));
  }
}

// A file with other values, by their JSON pointers; null is as if it were
// missing.
struct Change {
  std::string name;
  Json values;
  std::vector<std::string> words;  // in the message
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

// To a file with the merge of "a" and "b". LONG stands for 257 bytes.
constexpr const char* kChanges = R"json([
  ["NoModel", {"/model": null}, ["model is missing"]],
  ["ModelIsText", {"/model": "BPE"}, ["model must be a JSON object"]],
  ["Unigram", {"/model/type": "Unigram"},
   ["model.type", "Unigram", "not supported"]],
  ["Dropout", {"/model/dropout": 0.1}, ["model.dropout"]],
  ["Prefix", {"/model/continuing_subword_prefix": "##"},
   ["model.continuing_subword_prefix"]],
  ["Suffix", {"/model/end_of_word_suffix": "</w>"},
   ["model.end_of_word_suffix"]],
  ["IgnoreMergesIsText", {"/model/ignore_merges": "yes"},
   ["model.ignore_merges must be true or false"]],
  ["VocabIsArray", {"/model/vocab": []}, ["model.vocab must be a JSON object"]],
  ["IdIsText", {"/model/vocab/ab": "256"},
   ["model.vocab[\"ab\"] must be an integer"]],
  ["IdIsFraction", {"/model/vocab/ab": 256.5}, ["must be an integer"]],
  ["IdNegative", {"/model/vocab/ab": -1},
   ["model.vocab[\"ab\"] is -1", "[0, 300)"]],
  ["IdPastVocabulary", {"/model/vocab/ab": 300},
   ["model.vocab[\"ab\"] is 300", "[0, 300)"]],
  ["IdPast63Bits", {"/model/vocab/ab": 18446744073709551615},
   ["18446744073709551615", "[0, 300)"]],
  ["DuplicateId", {"/model/vocab/xyz": 97},
   ["model.vocab[\"xyz\"] has the id 97", "\"a\""]],
  ["ByteMissing", {"/model/vocab/z": null, "/model/vocab/zz": 122},
   ["no token for byte 122"]],
  ["NoMerges", {"/model/merges": null}, ["model.merges must be an array"]],
  ["MergeOfThree", {"/model/merges/0": "a b c"}, ["model.merges[0]", "a b c"]],
  ["MergeOfOne", {"/model/merges/0": "ab"}, ["model.merges[0]"]],
  ["MergeOfNumbers", {"/model/merges/0": [1, 2]},
   ["model.merges[0] is \"[1,2]\""]],
  ["MergeOfUnknown", {"/model/merges/0": "a qq"},
   ["model.merges[0]", "\"qq\" is not in the vocabulary"]],
  ["MergeToUnknown", {"/model/merges/0": "a c"},
   ["model.merges[0]", "\"ac\" is not in the vocabulary"]],
  ["MergeToSpecial",
   {"/added_tokens": [{"id": 256, "content": "ab", "special": true}]},
   ["model.merges[0]", "special"]],

  ["AddedIdTwice",
   {"/added_tokens": [{"id": 280, "content": "<x>", "special": true},
                      {"id": 280, "content": "<x>", "special": true}]},
   ["added_tokens[1].id 280"]],
  ["AddedIdOfAnother",
   {"/added_tokens": [{"id": 97, "content": "<x>", "special": true}]},
   ["added_tokens[0].id 97", "\"a\""]],
  ["AddedNameOfAnother",
   {"/added_tokens": [{"id": 280, "content": "ab", "special": false}]},
   ["added_tokens[0].content \"ab\" has the id 256"]],
  ["AddedIdPastVocabulary",
   {"/added_tokens": [{"id": 300, "content": "<x>", "special": true}]},
   ["added_tokens[0].id is 300"]],
  ["AddedWithoutId", {"/added_tokens": [{"content": "<x>"}]},
   ["added_tokens[0].id must be an integer"]],
  ["AddedEmpty",
   {"/added_tokens": [{"id": 280, "content": "", "special": true}]},
   ["added_tokens[0].content has 0 bytes"]],
  ["AddedLong",
   {"/added_tokens": [{"id": 280, "content": "LONG", "special": true}]},
   ["added_tokens[0].content has 257 bytes"]],
  ["NoUnknown", {"/pre_tokenizer": null, "/decoder": {"type": "Fuse"}},
   ["model.unk_token is missing", "<0x00>"]],
  ["UnknownIsUnknown",
   {"/pre_tokenizer": null, "/decoder": {"type": "Fuse"},
    "/model/unk_token": "<unk>"},
   ["model.unk_token \"<unk>\" is not in the vocabulary"]],

  ["Normalizer",
   {"/normalizer": {"type": "Sequence",
                    "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]}},
   ["normalizer.normalizers[1].type", "Precompiled"]],
  ["ReplaceOfNothing",
   {"/normalizer": {"type": "Replace", "pattern": {"String": ""},
                    "content": "x"}},
   ["normalizer.pattern is empty"]],
  ["LongReplacement",
   {"/normalizer": {"type": "Replace", "pattern": {"String": "a"},
                    "content": "LONG"}},
   ["normalizer.content has 257 bytes (at most 256)"]],
  ["BadReplacePattern",
   {"/normalizer": {"type": "Replace", "pattern": {"Regex": "ab(c"},
                    "content": "x"}},
   ["normalizer", "offset 4"]],
  ["TooManySteps",
   {"/normalizer": {
       "type": "Sequence",
       "normalizers": [
           {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"},
           {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"},
           {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"},
           {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"}, {"type": "NFC"},
           {"type": "NFC"}]}},
   ["normalizer.normalizers[16].type", "step 17 (at most 16)"]],

  ["PreTokenizer", {"/pre_tokenizer/type": "UnicodeScripts"},
   ["pre_tokenizer.type", "UnicodeScripts", "not supported"]],
  ["MetaspaceOfTwo",
   {"/pre_tokenizer": {"type": "Metaspace", "replacement": "__"}},
   ["pre_tokenizer.replacement", "not one character"]],
  ["PrependScheme",
   {"/pre_tokenizer": {"type": "Metaspace", "replacement": "_",
                       "prepend_scheme": "often"}},
   ["pre_tokenizer.prepend_scheme", "often"]],
  ["ContradictingPrefix",
   {"/pre_tokenizer": {"type": "Metaspace", "replacement": "_",
                       "add_prefix_space": false, "prepend_scheme": "first"}},
   ["pre_tokenizer.prepend_scheme", "contradicts"]],
  ["Behavior",
   {"/pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"},
                       "behavior": "Sideways"}},
   ["pre_tokenizer.behavior", "Sideways"]],
  ["ByteLevelDecoderAlone", {"/pre_tokenizer": null},
   ["decoder and pre_tokenizer"]],
  ["ByteLevelPreTokenizerAlone", {"/decoder/type": "Fuse"},
   ["decoder and pre_tokenizer"]],
  ["StripBeforeFuse",
   {"/decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0}},
   ["decoder.type", "before Fuse"]],
  ["ReplaceAfterFuse",
   {"/decoder": {"type": "Sequence",
                 "decoders": [{"type": "Fuse"}, {"type": "Replace"}]}},
   ["decoder.decoders[1].type", "after Fuse"]],
  ["StripOfTheEnd",
   {"/decoder": {"type": "Sequence",
                 "decoders": [{"type": "Fuse"},
                              {"type": "Strip", "content": " ", "start": 0,
                               "stop": 1}]}},
   ["decoder.decoders[1].stop"]],
  ["SplitAfterByteLevel",
   {"/pre_tokenizer": {"type": "Sequence",
                       "pretokenizers": [{"type": "ByteLevel",
                                          "add_prefix_space": false},
                                         {"type": "Split"}]}},
   ["pre_tokenizer.pretokenizers[1].type", "after ByteLevel"]],
  ["BadPattern",
   {"/pre_tokenizer": {"type": "Sequence",
                       "pretokenizers": [{"type": "Split",
                                          "pattern": {"Regex": "ab(c"},
                                          "behavior": "Isolated"},
                                         {"type": "ByteLevel",
                                          "add_prefix_space": false}]}},
   ["pre_tokenizer", "offset 4"]],
  ["Decoder", {"/decoder/type": "WordPiece"}, ["decoder.type", "WordPiece"]],
  ["NoDecoder", {"/decoder": null}, ["decoder is missing"]]
])json";

std::vector<Change> Changes() {
  std::string text = kChanges;
  for (size_t at; (at = text.find("LONG")) != std::string::npos;) {
    text.replace(at, 4, std::string(257, 'x'));
  }
  std::vector<Change> changes;
  for (const Json& change : JsonOf(text)) {
    changes.push_back({change[0], change[1], change[2]});
  }
  return changes;
}

class RefusedTokenizerJsonTest : public testing::TestWithParam<Change> {};

TEST_P(RefusedTokenizerJsonTest, NamesTheFieldAndItsValue) {
  Json json = BpeJson({{"a", "b"}});
  for (const auto& [pointer, value] : GetParam().values.items()) {
    const Json::json_pointer field(pointer);
    if (value.is_null()) {
      json[field.parent_pointer()].erase(field.back());
    } else {
      json[field] = value;
    }
  }
  ExpectRefused(LoadBpe(json, /*vocab_size=*/300).status(), GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(Fields, RefusedTokenizerJsonTest,
                         testing::ValuesIn(Changes()),
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
  const std::string text = JsonText(BpeJson({{"a", "b"}}));
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(ParseTokenizerJson(text.substr(0, size), 300).ok()) << size;
  }
}

// A changed byte may leave a file that is good, but never one that breaks us.
TEST(TokenizerJsonTest, SurvivesEveryByteChanged) {
  Json json = BpeJson({{"a", "b"}});
  json["added_tokens"] = Json::array({AddedTokenJson(280, "<x>", true)});
  const std::string text = JsonText(json);
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

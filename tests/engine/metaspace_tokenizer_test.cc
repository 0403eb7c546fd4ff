// Byte-pair encoding with a metaspace and byte fallback, as Llama 2, Mistral
// and Gemma write it into tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/token_decoding.h"
#include "tests/support/bpe_json.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;

constexpr int kSpace = 300;  // "\u2581"

// <unk>, <s>, </s>, the 256 bytes at 3, then characters and merges.
Json MetaspaceJson() {
  Json json = JsonOf(R"({
      "added_tokens": [
          {"id": 0, "content": "<unk>", "special": true},
          {"id": 1, "content": "<s>", "special": true},
          {"id": 2, "content": "</s>", "special": true}],
      "normalizer": null,
      "pre_tokenizer": null,
      "model": {
          "type": "BPE", "byte_fallback": true, "fuse_unk": true,
          "unk_token": "<unk>",
          "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2},
          "merges": [["a", "b"], ["\u2581", "ab"], ["\u2581", "a"],
                     ["\u2581", "b"], ["\u2581", "\u2581"]]},
      "decoder": {
          "type": "Sequence",
          "decoders": [
              {"type": "Replace", "pattern": {"String": "\u2581"},
               "content": " "},
              {"type": "ByteFallback"},
              {"type": "Fuse"},
              {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})");
  Json& vocab = json["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) {
    vocab[NameOfByte(static_cast<uint8_t>(byte))] = 3 + byte;
  }
  const char* names[] = {"\u2581",  "a",  "b",        "c",      "\u2581a",
                         "\u2581b", "ab", "\u2581ab", "\u00E9", "\u2581\u2581"};
  int next = kSpace;
  for (const char* name : names) vocab[name] = next++;
  return json;
}

// As converters wrote it until 2024.
Json WithNormalizer() {
  Json json = MetaspaceJson();
  json["normalizer"] = JsonOf(R"({
      "type": "Sequence",
      "normalizers": [
          {"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "},
           "content": "\u2581"}]})");
  return json;
}

// As they write it since.
Json WithPreTokenizer(const char* scheme, bool split) {
  Json json = MetaspaceJson();
  json["pre_tokenizer"] =
      JsonOf(R"({"type": "Metaspace", "replacement": "\u2581"})");
  json["pre_tokenizer"]["prepend_scheme"] = scheme;
  json["pre_tokenizer"]["split"] = split;
  return json;
}

std::vector<std::string> Names(const Json& json, std::string_view text,
                               bool allow_special = true) {
  const auto tokenizer = LoadBpe(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode(text, allow_special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<std::string> names;
  for (const int32_t id : *ids) {
    for (const auto& [name, value] : json["model"]["vocab"].items()) {
      if (value == id) names.push_back(name == "\u2581" ? "_" : name);
    }
  }
  for (std::string& name : names) {
    while (name.find("\u2581") != std::string::npos) {
      name.replace(name.find("\u2581"), 3, "_");
    }
  }
  return names;
}

TEST(MetaspaceTokenizerTest, BothLayoutsPutASpaceBeforeAText) {
  for (const Json& json : {WithNormalizer(), WithPreTokenizer("always", false),
                           WithPreTokenizer("first", false)}) {
    EXPECT_THAT(Names(json, "ab b"), ElementsAre("_ab", "_b"));
    EXPECT_THAT(Names(json, "ab  b"), ElementsAre("_ab", "_", "_b"));
    EXPECT_THAT(Names(json, ""), ElementsAre());
  }
}

// Where they differ: a text that begins with a space, and one behind a token.
TEST(MetaspaceTokenizerTest, LayoutsDifferInTheFirstSpace) {
  EXPECT_THAT(Names(WithNormalizer(), " ab"), ElementsAre("_", "_ab"));
  EXPECT_THAT(Names(WithPreTokenizer("always", false), " ab"),
              ElementsAre("_ab"));
  EXPECT_THAT(Names(WithNormalizer(), "<s>ab</s>b"),
              ElementsAre("<s>", "_ab", "</s>", "_b"));
  EXPECT_THAT(Names(WithPreTokenizer("always", false), "<s>ab</s>b"),
              ElementsAre("<s>", "_ab", "</s>", "_b"));
  EXPECT_THAT(Names(WithPreTokenizer("first", false), "<s>ab</s>b"),
              ElementsAre("<s>", "ab", "</s>", "b"));
  EXPECT_THAT(Names(WithPreTokenizer("first", false), "b<s>ab"),
              ElementsAre("_b", "<s>", "ab"));
  EXPECT_THAT(Names(WithPreTokenizer("never", false), "ab b"),
              ElementsAre("ab", "_b"));
}

TEST(MetaspaceTokenizerTest, CutsBeforeSpacesIfTold) {
  Json json = WithPreTokenizer("always", true);
  // Merged only within a piece.
  EXPECT_THAT(Names(json, "a  "), ElementsAre("_a", "_", "_"));
  json["pre_tokenizer"]["split"] = false;
  EXPECT_THAT(Names(json, "a  "), ElementsAre("_a", "__"));
  // Before prepend_scheme.
  json["pre_tokenizer"] = JsonOf(R"({
      "type": "Metaspace", "replacement": "\u2581",
      "add_prefix_space": false})");
  EXPECT_THAT(Names(json, "a b"), ElementsAre("a", "_b"));
  json["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(Names(json, "a b"), ElementsAre("_a", "_b"));
}

TEST(MetaspaceTokenizerTest, ReadsSpecialNamesAsTextUnlessAllowed) {
  Json json = WithNormalizer();
  EXPECT_THAT(Names(json, "<s>", true), ElementsAre("<s>"));
  EXPECT_THAT(Names(json, "<s>", false),
              ElementsAre("_", "<0x3C>", "<0x73>", "<0x3E>"));
}

TEST(MetaspaceTokenizerTest, FallsBackToBytesAndThenToTheUnknownToken) {
  Json json = WithNormalizer();
  EXPECT_THAT(Names(json, "a\u4F60\u00E9"),
              ElementsAre("_a", "<0xE4>", "<0xBD>", "<0xA0>", "\u00E9"));
  // A byte's name in the text is text.
  EXPECT_THAT(Names(json, "<0x"),
              ElementsAre("_", "<0x3C>", "<0x30>", "<0x78>"));
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(Names(json, "axyzb"), ElementsAre("_a", "<unk>", "b"));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(Names(json, "axyzb"),
              ElementsAre("_a", "<unk>", "<unk>", "<unk>", "b"));
  // If one of a character's bytes has no token, the character is unknown.
  json["model"]["byte_fallback"] = true;
  json["model"]["vocab"].erase("<0xBD>");
  EXPECT_THAT(Names(json, "\u4F60x"), ElementsAre("_", "<unk>", "<0x78>"));
}

TEST(MetaspaceTokenizerTest, DecodesBytesAndDropsTheFirstSpace) {
  const auto tokenizer = LoadBpe(WithNormalizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto decode = [&](const std::vector<int32_t>& ids) {
    return Decode(**tokenizer, ids, /*keep_special=*/false);
  };
  EXPECT_EQ(decode(*(*tokenizer)->Encode("ab \u4F60", false)), "ab \u4F60");
  EXPECT_EQ(decode({kSpace, kSpace, 301}), " a");
  EXPECT_EQ(decode({1, 304, 304}), "a a");
  EXPECT_EQ(decode({301, 3 + 0xE4, 3 + 0xBD}), "a\uFFFD\uFFFD");
  EXPECT_EQ((*tokenizer)->TokenBytes(3 + 0xE4), "\xE4");
  EXPECT_EQ((*tokenizer)->TokenBytes(304), " a");
}

// The library's Metaspace drops every space of the first token.
TEST(MetaspaceTokenizerTest, MetaspaceDecoderDropsSpacesOfTheFirstToken) {
  Json json = WithPreTokenizer("first", false);
  json["decoder"] = JsonOf(R"({
      "type": "Metaspace", "replacement": "\u2581",
      "prepend_scheme": "first"})");
  const auto dropping = LoadBpe(json);
  ASSERT_TRUE(dropping.ok()) << dropping.status();
  const std::vector<int32_t> ids = {309, 304, 309};
  EXPECT_EQ(Decode(**dropping, ids, false), " a  ");
  json["decoder"]["prepend_scheme"] = "never";
  EXPECT_EQ(Decode(**LoadBpe(json), ids, false), "   a  ");
}

// A whole text is one piece here: nothing cuts it before the merging.
TEST(MetaspaceTokenizerTest, EncodesAMegabyteOfAnythingInTime) {
  const auto tokenizer = LoadBpe(WithNormalizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  constexpr size_t kSize = 1 << 20;
  std::string mixed;
  for (size_t i = 0; mixed.size() < kSize; ++i) mixed += i % 7 < 3 ? "ab" : " ";
  for (const std::string& text :
       {std::string(kSize, 'a'), std::string(kSize, ' '),
        std::string(kSize, 'x'), mixed}) {
    const auto ids = (*tokenizer)->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(Decode(**tokenizer, *ids, false), text);
  }
}

TEST(MetaspaceTokenizerTest, RefusesATextThatGrowsTooLong) {
  Json json = WithNormalizer();
  Json replace = JsonOf(R"({"type": "Replace", "pattern": {"String": "a"}})");
  replace["content"] = std::string(256, 'b');
  json["normalizer"]["normalizers"].push_back(replace);
  const auto tokenizer = LoadBpe(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode(std::string(1000, 'a'), false).ok());
  const absl::Status status =
      (*tokenizer)->Encode(std::string(1 << 20, 'a'), false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("grows"));
}

}  // namespace
}  // namespace reprise

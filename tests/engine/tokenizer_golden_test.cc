// Encodings of the reference libraries for published vocabularies. Those are
// other people's files, read in place and skipped where there are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>

#include "absl/strings/escaping.h"
#include "engine/base/utf8.h"
#include "engine/load_tokenizer.h"
#include "tests/support/golden_folder.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// The text of a case: most are text, those of RWKV may be any bytes.
std::string TextOf(const Json& item) {
  if (item.contains("text")) return item.at("text").get<std::string>();
  std::string bytes;
  EXPECT_TRUE(
      absl::Base64Unescape(item.at("bytes_base64").get<std::string>(), &bytes));
  return bytes;
}

// The text of `ids` as a stream that is put away after every token.
std::string DecodeInPieces(const Tokenizer& tokenizer,
                           const std::vector<int32_t>& ids, bool keep_special) {
  StreamDecoder decoder = StreamDecoder::AtStart(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.Push(id, keep_special);
    EXPECT_EQ(FindInvalidUtf8(part), std::string_view::npos);
    text += part;
    if (!text.empty()) decoder = StreamDecoder(tokenizer, decoder.pending());
  }
  return text + ShowUnfinished(tokenizer, decoder.pending());
}

void CheckDecoded(const Tokenizer& tokenizer, const Json& item, bool special) {
  const auto ids = item.at("ids").get<std::vector<int32_t>>();
  const auto decoded = item.contains("decoded")
                           ? item.at("decoded").get<std::string>()
                           : TextOf(item);
  EXPECT_EQ(Decode(tokenizer, ids, special), decoded) << JsonText(item);
  EXPECT_EQ(DecodeInPieces(tokenizer, ids, special), decoded) << JsonText(item);
}

// A limit changes no token, and is kept to one token.
void CheckLimits(const Tokenizer& tokenizer, const std::string& text,
                 bool special, const std::vector<int32_t>& ids) {
  EXPECT_EQ(tokenizer.EncodeUpTo(text, special, ids.size()).value(), ids);
  for (const size_t less : {size_t{1}, ids.size() / 2, ids.size()}) {
    if (less == 0 || less > ids.size()) continue;
    const size_t limit = ids.size() - less;
    EXPECT_EQ(tokenizer.EncodeUpTo(text, special, limit).status(),
              TooManyTokensError(limit));
  }
}

// `special`: whether the reference finds special tokens in texts, and shows
// them.
void CheckGolden(const Tokenizer& tokenizer, const fs::path& file,
                 bool special) {
  const Json golden = ReadJson(file);
  ASSERT_FALSE(golden.at("cases").empty());
  for (const auto& item : golden.at("cases")) {
    const auto encoded = tokenizer.Encode(TextOf(item), special);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, item.at("ids").get<std::vector<int32_t>>())
        << JsonText(item);
    CheckLimits(tokenizer, TextOf(item), special, *encoded);
    CheckDecoded(tokenizer, item, special);
  }
  for (const auto& item : golden.value("decode_only", Json::array())) {
    CheckDecoded(tokenizer, item, special);
  }
}

struct Published {
  const char* folder;
  const char* kind;
  int64_t vocab_size;
  const char* end_of_text;
  int32_t end_of_text_id;
  bool finds_special;  // the reference
};

void PrintTo(const Published& published, std::ostream* out) {
  *out << published.folder;
}

class PublishedTokenizerTest : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    dir_ = GoldenFolder() / "tokenizers" / GetParam().folder;
    if (!fs::exists(dir_)) GTEST_SKIP() << dir_ << " is absent";
    auto tokenizer = LoadTokenizer(dir_.string(), GetParam().vocab_size);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    EXPECT_EQ(tokenizer_->kind(), GetParam().kind);
  }

  fs::path dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(PublishedTokenizerTest, EncodesAndDecodesAsTheLibraryDoes) {
  CheckGolden(*tokenizer_, dir_ / "golden.json", GetParam().finds_special);
}

TEST_P(PublishedTokenizerTest, ReadsSpecialNamesAsTextUnlessAllowed) {
  const int32_t special = GetParam().end_of_text_id;
  const std::string name = GetParam().end_of_text;
  EXPECT_EQ(tokenizer_->FindToken(name), special);
  EXPECT_TRUE(tokenizer_->IsSpecial(special));
  const std::string text = "one" + name + " two";
  const auto plain = tokenizer_->Encode(text, /*allow_special=*/false);
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT(*plain, testing::Not(testing::Contains(special)));
  EXPECT_EQ(Decode(*tokenizer_, *plain, /*keep_special=*/false), text);
  const auto marked = tokenizer_->Encode(text, /*allow_special=*/true);
  ASSERT_TRUE(marked.ok());
  EXPECT_THAT(*marked, testing::Contains(special).Times(1));
}

// Nothing may be quadratic in the length of a word.
TEST_P(PublishedTokenizerTest, EncodesAMegabyteWithoutASpaceInTime) {
  std::string text;
  for (uint32_t random = 1; text.size() < 1 << 20;) {
    random = random * 1664525 + 1013904223;
    text += static_cast<char>('a' + (random >> 16) % 26);
  }
  const auto ids = tokenizer_->Encode(text, /*allow_special=*/false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Decode(*tokenizer_, *ids, /*keep_special=*/false), text);
}

INSTANTIATE_TEST_SUITE_P(
    Published, PublishedTokenizerTest,
    testing::Values(
        Published{"gpt2", "bpe", 50257, "<|endoftext|>", 50256, true},
        Published{"gpt_neox_20b", "bpe", 50432, "<|endoftext|>", 0, true},
        Published{"llama2_hf", "bpe", 32000, "</s>", 2, true},
        Published{"llama2_sentencepiece", "sentencepiece", 32000, "</s>", 2,
                  false},
        Published{"rwkv_world", "rwkv", 65536, "<|endoftext|>", 0, false}),
    [](const auto& info) { return std::string(info.param.folder); });

TEST(EmbeddedTokenizerTest, EncodesAndDecodesAsItsTrainingDid) {
  const fs::path dir = fs::path(REPRISE_SOURCE_DIR) / "models" / "embedded";
  if (!fs::exists(dir)) GTEST_SKIP() << dir << " is absent";
  const Json config = ReadJson(dir / "config.json");
  auto tokenizer =
      LoadTokenizer(dir.string(), config.at("vocab_size").get<int64_t>());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CheckGolden(**tokenizer, dir / "tokenizer_golden.json", /*special=*/true);
}

}  // namespace
}  // namespace reprise

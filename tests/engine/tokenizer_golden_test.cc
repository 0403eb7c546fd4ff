// Encodings of the tokenizers library for published vocabularies. Those are
// other people's files, read in place: $REPRISE_GOLDEN, or the folder beside
// the repository, and skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/tokenizer.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Tokenizers with what the Python libraries make of texts, too large for the
// repository: in the folder that REPRISE_GOLDEN names, or else beside the
// repository. Skipped where there is none.
fs::path GoldenDir() {
  if (const char* dir = std::getenv("REPRISE_GOLDEN")) return dir;
  return fs::path(REPRISE_SOURCE_DIR) / ".." / "shared" / "golden";
}

void CheckGolden(const Tokenizer& tokenizer, const fs::path& file) {
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(file));
  ASSERT_FALSE(golden.at("cases").empty());
  for (const auto& item : golden.at("cases")) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    const auto encoded = tokenizer.Encode(text, /*allow_special=*/true);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, ids) << item.dump();
    const auto decoded = item.value("decoded", text);
    EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/true), decoded);
  }
  for (const auto& item :
       golden.value("decode_only", nlohmann::json::array())) {
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    const auto decoded = item.at("decoded").get<std::string>();
    EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/true), decoded)
        << item.dump();
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += decoder.Push(id, true);
    if (!decoder.pending().empty()) text += "\xEF\xBF\xBD";
    EXPECT_EQ(text, decoded) << item.dump();
  }
}

struct Published {
  const char* folder;
  int64_t vocab_size;
  int32_t end_of_text;
};

void PrintTo(const Published& published, std::ostream* out) {
  *out << published.folder;
}

class PublishedTokenizerTest : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    dir_ = GoldenDir() / "tokenizers" / GetParam().folder;
    if (!fs::exists(dir_)) GTEST_SKIP() << dir_ << " is absent";
    auto tokenizer = LoadTokenizer(dir_.string(), GetParam().vocab_size);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  fs::path dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(PublishedTokenizerTest, EncodesAndDecodesAsTheLibraryDoes) {
  CheckGolden(*tokenizer_, dir_ / "golden.json");
}

TEST_P(PublishedTokenizerTest, ReadsSpecialNamesAsTextUnlessAllowed) {
  const int32_t special = GetParam().end_of_text;
  EXPECT_EQ(tokenizer_->FindToken("<|endoftext|>"), special);
  EXPECT_TRUE(tokenizer_->IsSpecial(special));
  const std::string text = "one<|endoftext|> two";
  const auto plain = tokenizer_->Encode(text, /*allow_special=*/false);
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT(*plain, testing::Not(testing::Contains(special)));
  EXPECT_EQ(Decode(*tokenizer_, *plain, /*keep_special=*/false), text);
  const auto marked = tokenizer_->Encode(text, /*allow_special=*/true);
  ASSERT_TRUE(marked.ok());
  EXPECT_THAT(*marked, testing::Contains(special).Times(1));
  EXPECT_EQ(Decode(*tokenizer_, *marked, /*keep_special=*/false), "one two");
}

INSTANTIATE_TEST_SUITE_P(Published, PublishedTokenizerTest,
                         testing::Values(Published{"gpt2", 50257, 50256},
                                         Published{"gpt_neox_20b", 50432, 0}),
                         [](const auto& info) {
                           return std::string(info.param.folder);
                         });

// Tokenizers of another kind are refused, and the message names what is not
// supported.
TEST(UnsupportedTokenizerTest, NamesWhatIsNotSupported) {
  const fs::path dir = GoldenDir() / "tokenizers" / "llama2_hf";
  if (!fs::exists(dir)) GTEST_SKIP() << dir << " is absent";
  const absl::Status status = LoadTokenizer(dir.string(), 32000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("byte_fallback"));
}

TEST(EmbeddedTokenizerTest, EncodesAndDecodesAsItsTrainingDid) {
  const fs::path dir = fs::path(REPRISE_SOURCE_DIR) / "models" / "embedded";
  if (!fs::exists(dir)) GTEST_SKIP() << dir << " is absent";
  const nlohmann::json config =
      nlohmann::json::parse(std::ifstream(dir / "config.json"));
  auto tokenizer =
      LoadTokenizer(dir.string(), config.at("vocab_size").get<int64_t>());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CheckGolden(**tokenizer, dir / "tokenizer_golden.json");
}

}  // namespace
}  // namespace reprise

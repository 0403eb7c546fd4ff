#include "engine/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/bpe_json.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model folder that goes away with the test.
class LoadTokenizerTest : public testing::Test {
 protected:
  LoadTokenizerTest()
      : dir_(std::filesystem::temp_directory_path() /
             ("reprise_load_tokenizer_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
  }
  ~LoadTokenizerTest() override { std::filesystem::remove_all(dir_); }

  void WriteFile(const std::string& name, const std::string& contents) {
    std::ofstream(dir_ / name, std::ios::binary) << contents;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load(int64_t vocab_size) {
    return LoadTokenizer(dir_.string(), vocab_size);
  }

  std::filesystem::path dir_;
};

TEST_F(LoadTokenizerTest, ReadsRawBytesWhereThereIsNoFile) {
  auto tokenizer = Load(300);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Tokenizer& bytes = **tokenizer;
  EXPECT_EQ(bytes.kind(), "bytes");
  EXPECT_EQ(bytes.vocab_size(), 300);
  EXPECT_THAT(*bytes.Encode(std::string_view("a\0\xFF\xC3\xA9", 5), false),
              ElementsAre(97, 0, 255, 195, 169));
  EXPECT_THAT(*bytes.Encode("", true), ElementsAre());
  EXPECT_EQ(bytes.TokenBytes(0), std::string_view("\0", 1));
  EXPECT_EQ(bytes.TokenBytes(255), "\xFF");
  for (const int32_t id : {-1, 256, 299, 300}) {
    EXPECT_EQ(bytes.TokenBytes(id), "") << id;
    EXPECT_FALSE(bytes.IsSpecial(id)) << id;
  }
  EXPECT_EQ(bytes.FindToken("a"), 97);
  EXPECT_EQ(bytes.FindToken("ab"), std::nullopt);
}

TEST_F(LoadTokenizerTest, RefusesRawBytesForAVocabularyThatIsNoBytes) {
  EXPECT_EQ(Load(255).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Load(256).ok());
  EXPECT_TRUE(Load(512).ok());
  EXPECT_EQ(Load(513).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LoadTokenizerTest, ReadsTokenizerJsonWhereThereIsOne) {
  WriteFile("tokenizer.json", JsonText(BpeJson({{"a", "b"}})));
  auto tokenizer = Load(257);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->kind(), "bpe");
  EXPECT_THAT(*(*tokenizer)->Encode("abc", false), ElementsAre(256, 99));
  EXPECT_EQ(Load(256).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LoadTokenizerTest, RefusesAFolderWithAnotherKindOfTokenizer) {
  WriteFile("vocab.json", "{}");
  const absl::Status status = Load(300).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("vocab.json, which is not supported"));
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.json"));
}

TEST_F(LoadTokenizerTest, RefusesATokenizerThatIsNoFile) {
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "rwkv_vocab_v20230424.txt"}) {
    std::filesystem::create_directory(dir_ / name);
    EXPECT_EQ(Load(300).status().code(), absl::StatusCode::kInvalidArgument);
    std::filesystem::remove(dir_ / name);
  }
}

// Each is malformed, so the message tells which one was read.
TEST_F(LoadTokenizerTest, TakesTheFirstOfItsList) {
  WriteFile("rwkv_vocab_v20230424.txt", "x");
  EXPECT_THAT(Load(300).status().message(),
              HasSubstr("rwkv_vocab_v20230424.txt line 1"));
  WriteFile("tokenizer.model", "");
  EXPECT_THAT(Load(300).status().message(), HasSubstr("tokenizer.model: "));
  WriteFile("tokenizer.json", "");
  EXPECT_THAT(Load(300).status().message(), HasSubstr("tokenizer.json"));
}

TEST_F(LoadTokenizerTest, RefusesTwoVocabulariesOfRwkv) {
  WriteFile("rwkv_vocab_a.txt", "x");
  WriteFile("rwkv_vocab_b.txt", "x");
  const absl::Status status = Load(300).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("rwkv_vocab_a.txt"));
  EXPECT_THAT(status.message(), HasSubstr("rwkv_vocab_b.txt"));
}

TEST_F(LoadTokenizerTest, NamesWhatItLookedFor) {
  const absl::Status status = Load(32000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "rwkv_vocab_*.txt", "32000"}) {
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace reprise

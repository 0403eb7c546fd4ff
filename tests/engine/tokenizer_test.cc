#include "engine/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "engine/base/utf8.h"
#include "tests/support/bpe_json.h"
#include "tests/support/fake_tokenizer.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A model folder that goes away with the test.
class TokenizerTest : public testing::Test {
 protected:
  TokenizerTest()
      : dir_(std::filesystem::temp_directory_path() /
             ("reprise_tokenizer_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
  }
  ~TokenizerTest() override { std::filesystem::remove_all(dir_); }

  void WriteFile(const std::string& name, const std::string& contents) {
    std::ofstream(dir_ / name, std::ios::binary) << contents;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load(int64_t vocab_size) {
    return LoadTokenizer(dir_.string(), vocab_size);
  }

  std::filesystem::path dir_;
};

TEST_F(TokenizerTest, FileThatIsTooLargeIsRefusedUnread) {
  constexpr uintmax_t kLimit = 64 << 20;
  WriteFile("tokenizer.json", "");
  std::filesystem::resize_file(dir_ / "tokenizer.json", kLimit + 1);  // sparse
  const absl::Status large = Load(256).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(large.message()),
      HasSubstr("tokenizer.json has 67108865 bytes (at most 67108864)"));
  // One byte less is read, and is no JSON.
  std::filesystem::resize_file(dir_ / "tokenizer.json", kLimit);
  const absl::Status zeros = Load(256).status();
  EXPECT_EQ(zeros.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(zeros.message()), Not(HasSubstr("at most")));
}

TEST_F(TokenizerTest, ReadsRawBytesWhereThereIsNoFile) {
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

TEST_F(TokenizerTest, RefusesRawBytesForAVocabularyThatIsNoBytes) {
  EXPECT_EQ(Load(255).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Load(256).ok());
  EXPECT_TRUE(Load(512).ok());
  EXPECT_EQ(Load(513).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TokenizerTest, ReadsTokenizerJsonWhereThereIsOne) {
  WriteFile("tokenizer.json", BpeJson({{"a", "b"}}).dump());
  auto tokenizer = Load(257);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->kind(), "bpe");
  EXPECT_THAT(*(*tokenizer)->Encode("abc", false), ElementsAre(256, 99));
  EXPECT_EQ(Load(256).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenizerTest, RefusesAFolderWithAnotherKindOfTokenizer) {
  WriteFile("tokenizer.model", "x");
  const absl::Status status = Load(32000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.model"));
}

TEST_F(TokenizerTest, RefusesATokenizerJsonThatIsNoFile) {
  std::filesystem::create_directory(dir_ / "tokenizer.json");
  EXPECT_EQ(Load(300).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DecodeTest, SkipsSpecialTokensUnlessAsked) {
  const FakeTokenizer tokenizer({"<eos>", "<user>", "a", "\xC3", "\xA9"});
  // A special token inside a character does not break it.
  const std::vector<int32_t> ids = {2, 3, 0, 4, 0};
  EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/false), "a\xC3\xA9");
  EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/true),
            "a\xEF\xBF\xBD<eos>\xEF\xBF\xBD<eos>");
}

TEST(StreamDecoderTest, HoldsBytesOfAnUnfinishedCharacter) {
  const FakeTokenizer tokenizer(
      {"<eos>", "<user>", "\xF0\x9F", "\x98", "\x80!", "\xFF"});
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.Push(2), "");
  EXPECT_EQ(decoder.pending(), "\xF0\x9F");
  EXPECT_EQ(decoder.Push(3), "");
  EXPECT_EQ(decoder.pending(), "\xF0\x9F\x98");
  EXPECT_EQ(decoder.Push(0), "");  // special: no text
  EXPECT_EQ(decoder.Push(4), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(decoder.pending(), "");
  EXPECT_EQ(decoder.Push(3), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Push(2), "");
  EXPECT_EQ(decoder.Push(5), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(StreamDecoderTest, GoesOnFromPendingBytesOfEarlier) {
  const FakeTokenizer tokenizer({"<eos>", "<user>", "\x82", "\xAC"});
  StreamDecoder decoder(tokenizer, "\xE2");
  EXPECT_EQ(decoder.Push(2), "");
  StreamDecoder resumed(tokenizer, decoder.pending());
  EXPECT_EQ(resumed.Push(3), "\xE2\x82\xAC");
}

// Random tokens of 0..4 bytes, among them overlong forms, surrogates and bytes
// past U+10FFFF: whatever the split, the stream adds up to the whole, and every
// part of it is valid UTF-8.
TEST(StreamDecoderTest, AddsUpToDecodeForAnySplit) {
  constexpr uint8_t kBytes[] = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                0xC3, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> pieces = {"<eos>", "<user>"};
    while (pieces.size() < 30) {
      std::string piece;
      for (size_t size = random() % 5; piece.size() < size;) {
        piece += static_cast<char>(kBytes[random() % std::size(kBytes)]);
      }
      pieces.push_back(piece);
    }
    const FakeTokenizer tokenizer(pieces);
    StreamDecoder decoder(tokenizer);
    std::vector<int32_t> ids;
    std::string text;
    for (int i = 0; i < 30; ++i) {
      ids.push_back(static_cast<int32_t>(random() % pieces.size()));
      const std::string part = decoder.Push(ids.back());
      ASSERT_EQ(FindInvalidUtf8(part), std::string_view::npos);
      ASSERT_LE(decoder.pending().size(), 3u);
      text += part;
    }
    if (!decoder.pending().empty()) text += kReplacementCharacter;
    ASSERT_EQ(text, Decode(tokenizer, ids, /*keep_special=*/false));
  }
}

}  // namespace
}  // namespace reprise

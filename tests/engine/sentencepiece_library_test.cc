// Our reading of tokenizer.model against the library itself.
#include "tests/engine/sentencepiece_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/sentencepiece_tokenizer.h"
#include "tests/support/golden_folder.h"
#include "tests/support/sentencepiece_model.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabulary = 40000;

// What normalisation, spaces, and pieces of any kind make difficult.
const char* const kParts[] = {" ",
                              "  ",
                              "   ",
                              "a",
                              "b",
                              "the ",
                              "The",
                              "ing",
                              "\n",
                              "\t",
                              "\u2581",
                              "\u00A0",
                              "\u3000",
                              "e\u0301",
                              "\u00E9",
                              "\uFB01",
                              "\u2460",
                              "\uFF21",
                              "\u4F60\u597D",
                              "\U0001F600",
                              "<s>",
                              "</s>",
                              "<unk>",
                              "<0x41>",
                              "<|x|>",
                              "x y",
                              "12",
                              "3.5",
                              "'s",
                              "\u0130",
                              "\u00DF",
                              "\u0E2A\u0E27",
                              "\u0645\u0631",
                              "\u1112\u1161\u11AB",
                              "\u200B",
                              "\uFEFF",
                              "\uFFFD",
                              "-"};

std::string RandomText(std::mt19937& random) {
  std::string text;
  for (size_t count = random() % 12; count > 0; --count) {
    text += kParts[random() % std::size(kParts)];
  }
  return text;
}

// Encodes and decodes many texts with both.
void Compare(const std::string& model) {
  SentencePieceLibrary library;
  ASSERT_EQ(library.Load(model), "");
  const auto tokenizer = CreateSentencePieceTokenizer(model, kVocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = RandomText(random);
    const auto ids = (*tokenizer)->Encode(text, /*allow_special=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    ASSERT_EQ(*ids, library.Encode(text)) << testing::PrintToString(text);
    ASSERT_EQ(Decode(**tokenizer, *ids, false), library.Decode(*ids))
        << testing::PrintToString(text);
  }
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids;
    for (size_t count = random() % 8; count > 0; --count) {
      // Low ids are those of special pieces and bytes.
      const int limit = random() % 2 == 0 ? 262 : library.size();
      const auto id =
          static_cast<int32_t>(random() % std::min(limit, library.size()));
      // For the library a control piece between two bytes of a character
      // breaks it, for us it does not.
      if (ids.empty() || !(*tokenizer)->IsSpecial(id)) ids.push_back(id);
    }
    ASSERT_EQ(Decode(**tokenizer, ids, false), library.Decode(ids))
        << testing::PrintToString(ids);
  }
}

TEST(SentencePieceLibraryTest, AgreesOnTheSmallModel) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  Compare(ModelOf(spec));
  spec.pieces.push_back({"<|x|>", 0, SentencePiece::Type::kUserDefined});
  spec.pieces.push_back({"x y", 0, SentencePiece::Type::kUserDefined});
  Compare(ModelOf(spec));
  spec.add_dummy_prefix = false;
  Compare(ModelOf(spec));
  spec.remove_extra_whitespaces = true;
  Compare(ModelOf(spec));
  spec.add_dummy_prefix = true;
  spec.byte_fallback = false;
  std::erase_if(spec.pieces, [](const SentencePiece& piece) {
    return piece.type == SentencePiece::Type::kByte;
  });
  Compare(ModelOf(spec));
  spec.escape_whitespaces = false;
  Compare(ModelOf(spec));
}

TEST(SentencePieceLibraryTest, AgreesOnModelsThatTheLibraryTrains) {
  std::mt19937 random(9);
  std::string corpus;
  for (int line = 0; line < 400; ++line) {
    corpus += "the thing there is theirs, then this and that " +
              RandomText(random) + "\n";
  }
  for (const char* options :
       {"--vocab_size=150", "--vocab_size=400 --byte_fallback",
        "--vocab_size=400 --byte_fallback --normalization_rule_name=identity "
        "--remove_extra_whitespaces=false",
        "--vocab_size=160 --normalization_rule_name=nfkc_cf "
        "--add_dummy_prefix=false",
        "--vocab_size=420 --byte_fallback --split_digits "
        "--user_defined_symbols=<|x|>,12 --control_symbols=<c>"}) {
    const std::string model = SentencePieceLibrary::Train(corpus, options);
    ASSERT_FALSE(model.starts_with("error")) << model;
    SCOPED_TRACE(options);
    Compare(model);
  }
}

TEST(SentencePieceLibraryTest, AgreesOnTheModelOfLlama2) {
  const fs::path path = GoldenFolder() / "tokenizers" / "llama2_sentencepiece" /
                        "tokenizer.model";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  std::ostringstream model;
  model << std::ifstream(path, std::ios::binary).rdbuf();
  Compare(model.str());
}

}  // namespace
}  // namespace reprise

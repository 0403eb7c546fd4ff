#include "engine/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/sentencepiece_model.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = SentencePiece::Type;

constexpr int64_t kVocabulary = 400;

std::unique_ptr<Tokenizer> Load(const SentencePieceSpec& spec) {
  auto tokenizer = CreateSentencePieceTokenizer(ModelOf(spec), kVocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// The names of the tokens of `text`, "_" for a metaspace.
std::vector<std::string> Pieces(const SentencePieceSpec& spec,
                                std::string_view text,
                                bool allow_special = false) {
  const auto ids = Load(spec)->Encode(text, allow_special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<std::string> pieces;
  for (const int32_t id : *ids) {
    std::string piece = spec.pieces[id].text;
    for (size_t at = 0; (at = piece.find(kMetaspace)) != std::string::npos;) {
      piece.replace(at, kMetaspace.size(), "_");
    }
    pieces.push_back(piece);
  }
  return pieces;
}

TEST(SentencePieceTokenizerTest, MergesByScoreBehindADummyPrefix) {
  const SentencePieceSpec spec = SmallSentencePieceSpec();
  EXPECT_THAT(Pieces(spec, "ab abc"), ElementsAre("_ab", "_ab", "c"));
  EXPECT_THAT(Pieces(spec, "b  bc"), ElementsAre("_", "b", "__", "bc"));
  EXPECT_THAT(Pieces(spec, ""), ElementsAre());
  EXPECT_THAT(Pieces(spec, " "), ElementsAre("__"));
}

TEST(SentencePieceTokenizerTest, EqualScoresMergeFromTheLeft) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  for (SentencePiece& piece : spec.pieces) {
    if (piece.text == "ab" || piece.text == "bc") piece.score = 5;
  }
  spec.add_dummy_prefix = false;
  EXPECT_THAT(Pieces(spec, "bcab"), ElementsAre("bc", "ab"));
  EXPECT_THAT(Pieces(spec, "cbca"), ElementsAre("c", "bc", "a"));
  EXPECT_THAT(Pieces(spec, "abc"), ElementsAre("abc"));
}

TEST(SentencePieceTokenizerTest, FallsBackToBytesOrTheUnknownPiece) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  EXPECT_THAT(Pieces(spec, "a\u4F60"),
              ElementsAre("_a", "<0xE4>", "<0xBD>", "<0xA0>"));
  spec.byte_fallback = false;
  EXPECT_THAT(Pieces(spec, "axyzb"), ElementsAre("_a", "<unk>", "b"));
}

TEST(SentencePieceTokenizerTest, FindsControlPiecesOnlyIfAllowed) {
  const SentencePieceSpec spec = SmallSentencePieceSpec();
  const auto tokenizer = Load(spec);
  EXPECT_TRUE(tokenizer->IsSpecial(1));
  EXPECT_FALSE(tokenizer->IsSpecial(3));
  EXPECT_EQ(tokenizer->FindToken("</s>"), 2);
  EXPECT_THAT(Pieces(spec, "<s>ab</s>", true),
              ElementsAre("<s>", "_ab", "</s>"));
  EXPECT_THAT(Pieces(spec, "<s>"),
              ElementsAre("_", "<0x3C>", "<0x73>", "<0x3E>"));
}

TEST(SentencePieceTokenizerTest, AlwaysFindsUserDefinedPieces) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  spec.pieces.push_back({"<|x|>", 0, Type::kUserDefined});
  spec.pieces.push_back({"ca", 0, Type::kUserDefined});
  EXPECT_THAT(Pieces(spec, "ab<|x|>ab"), ElementsAre("_ab", "<|x|>", "ab"));
  EXPECT_THAT(Pieces(spec, "abcab"), ElementsAre("_ab", "ca", "b"));
}

TEST(SentencePieceTokenizerTest, RemovesExtraSpacesIfTold) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  spec.remove_extra_whitespaces = true;
  EXPECT_THAT(Pieces(spec, "  ab   c  "), ElementsAre("_ab", "_", "c"));
  EXPECT_THAT(Pieces(spec, "   "), ElementsAre());
  spec.add_dummy_prefix = false;
  EXPECT_THAT(Pieces(spec, " ab c"), ElementsAre("ab", "_", "c"));
}

TEST(SentencePieceTokenizerTest, DecodesWithoutTheDummyPrefix) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  const auto tokenizer = Load(spec);
  for (const std::string text : {"ab", " ab", "a  b", "\u4F60 a", "\n"}) {
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(Decode(*tokenizer, *ids, false), text);
  }
  const std::vector<int32_t> cut = {3 + 0xE4, 3 + 0xBD, 260};
  EXPECT_EQ(Decode(*tokenizer, cut, false), "\uFFFD\uFFFD ab");
  EXPECT_EQ(Decode(*tokenizer, std::vector<int32_t>{0}, false), " \u2047 ");
  spec.add_dummy_prefix = false;
  EXPECT_EQ(Decode(*Load(spec), std::vector<int32_t>{260}, false), " ab");
}

TEST(SentencePieceTokenizerTest, EncodesUpToALimitOfTokens) {
  for (const bool byte_fallback : {true, false}) {
    SentencePieceSpec spec = SmallSentencePieceSpec();
    spec.byte_fallback = byte_fallback;
    const auto tokenizer = Load(spec);
    for (const char* unit : {"a", " ", "ab", "x", "abc ", "x\u4F60b", "<s>"}) {
      std::string text;
      for (int i = 0; i < 10; ++i) text += unit;
      const auto ids = tokenizer->Encode(text, true);
      ASSERT_TRUE(ids.ok()) << ids.status();
      for (size_t limit = 0; limit < ids->size(); ++limit) {
        EXPECT_EQ(tokenizer->EncodeUpTo(text, true, limit).status(),
                  TooManyTokensError(limit));
      }
      EXPECT_EQ(tokenizer->EncodeUpTo(text, true, ids->size()).value(), *ids);
    }
  }
}

TEST(SentencePieceTokenizerTest, EncodesAMegabyteOfAnythingInTime) {
  const auto tokenizer = Load(SmallSentencePieceSpec());
  for (const char* unit : {"a", " ", "ab", "x", "abc "}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(Decode(*tokenizer, *ids, false), text);
  }
}

TEST(SentencePieceTokenizerTest, FingerprintDiffersWhereEncodingsMay) {
  const SentencePieceSpec spec = SmallSentencePieceSpec();
  const uint64_t fingerprint = Load(spec)->fingerprint();
  EXPECT_EQ(Load(spec)->fingerprint(), fingerprint);
  SentencePieceSpec other = spec;
  other.pieces.back().score = 7;
  EXPECT_NE(Load(other)->fingerprint(), fingerprint);
  other = spec;
  other.add_dummy_prefix = false;
  EXPECT_NE(Load(other)->fingerprint(), fingerprint);
}

// ---- Files that are bad -----------------------------------------------------

void ExpectRefused(const std::string& model,
                   const std::vector<std::string>& words) {
  const absl::Status status =
      CreateSentencePieceTokenizer(model, kVocabulary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.model: "));
  for (const std::string& word : words) {
    EXPECT_THAT(status.message(), HasSubstr(word));
  }
}

TEST(SentencePieceFileTest, RefusesBadPieces) {
  const SentencePieceSpec good = SmallSentencePieceSpec();
  const std::string path = "pieces[272]";
  const auto with = [&](const SentencePiece& piece) {
    SentencePieceSpec spec = good;
    spec.pieces.push_back(piece);
    return ModelOf(spec);
  };
  ASSERT_EQ(good.pieces.size(), 272u);
  ExpectRefused(with({"", 0, Type::kNormal}), {path, "0 bytes, not 1..256"});
  ExpectRefused(with({std::string(257, 'x'), 0, Type::kNormal}),
                {path, "257 bytes, not 1..256"});
  ExpectRefused(with({"\xFF", 0, Type::kNormal}), {path, "UTF-8"});
  ExpectRefused(with({"ab", 0, Type::kNormal}), {path, "'ab' occurs twice"});
  ExpectRefused(
      with({"x", std::numeric_limits<float>::quiet_NaN(), Type::kNormal}),
      {path, "score"});
  ExpectRefused(
      with({"x", std::numeric_limits<float>::infinity(), Type::kNormal}),
      {path, "score"});
  ExpectRefused(with({"x", 0, Type::kUnknown}), {"2 pieces", "UNKNOWN"});
  ExpectRefused(with({"<0xZZ>", 0, Type::kByte}), {path, "BYTE"});
  ExpectRefused(with({"ax", 0, Type::kNormal}),
                {path, "'ax' has a character that is no piece"});
  for (const int type : {0, 5, 7, 1000}) {
    ExpectRefused(with({"x", 0, static_cast<Type>(type)}),
                  {path, ".type " + std::to_string(type), "not supported"});
  }
}

TEST(SentencePieceFileTest, RefusesBadSetsOfPieces) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  spec.pieces.erase(spec.pieces.begin());
  ExpectRefused(ModelOf(spec), {"0 pieces", "UNKNOWN"});
  spec = SmallSentencePieceSpec();
  spec.pieces.erase(spec.pieces.begin() + 3);
  ExpectRefused(ModelOf(spec), {"byte_fallback", "255 of 256"});
  spec = SmallSentencePieceSpec();
  const absl::Status status =
      CreateSentencePieceTokenizer(ModelOf(spec), 271).status();
  EXPECT_THAT(status.message(),
              HasSubstr("272 pieces, more than the model's vocabulary of 271"));
}

TEST(SentencePieceFileTest, RefusesOtherModels) {
  const std::string pieces =
      ProtoWriter().Bytes(1, PieceMessage({"<unk>", 0, Type::kUnknown})).data();
  const auto with = [&](const ProtoWriter& trainer) {
    return ProtoWriter().Raw(pieces).Bytes(2, trainer.data()).data();
  };
  ExpectRefused("", {"no trainer_spec"});
  ExpectRefused(pieces, {"no trainer_spec"});
  ExpectRefused(with(ProtoWriter()), {"model_type 1", "only BPE"});
  ExpectRefused(with(ProtoWriter().Varint(3, 3)), {"model_type 3"});
  ExpectRefused(with(ProtoWriter().Varint(3, 2).Varint(24, 1)),
                {"treat_whitespace_as_suffix"});
  ExpectRefused(ProtoWriter()
                    .Raw(with(ProtoWriter().Varint(3, 2)))
                    .Bytes(5, ProtoWriter().Bytes(2, "x").data())
                    .data(),
                {"denormalizer_spec"});
  ExpectRefused("IQ== 0\nIg== 1\n", {"tiktoken"});
}

TEST(SentencePieceFileTest, RefusesMalformedMessages) {
  ExpectRefused(std::string((16 << 20) + 1, '\0'),
                {"16777217 bytes (at most 16777216)"});
  ExpectRefused(ProtoWriter().Varint(1, 3).data(), {"field 1", "wire type"});
  ExpectRefused(std::string("\x0B", 1), {"unknown wire type 3"});
  ExpectRefused(std::string("\0\0", 2), {"no field 0"});
  ExpectRefused("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", {"cut off"});
  ExpectRefused("\x08" + std::string(11, '\xFF'), {"64 bits"});
}

TEST(SentencePieceFileTest, RefusesBadRulesOfNormalisation) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  const auto rules = [](uint32_t size, std::string_view rest) {
    ByteWriter bytes;
    bytes.Put(size);
    bytes.PutBytes(rest);
    return bytes.Take();
  };
  spec.charsmap = "abc";
  ExpectRefused(ModelOf(spec), {"precompiled_charsmap", "cut off"});
  spec.charsmap = rules(8, "abcd");
  ExpectRefused(ModelOf(spec), {"precompiled_charsmap", "a trie of 8"});
  spec.charsmap = rules(3, "abcd");
  ExpectRefused(ModelOf(spec), {"a trie of 3"});
  spec.charsmap = rules(4, "abcdxyz");
  ExpectRefused(ModelOf(spec), {"do not end"});
  spec.charsmap = rules(4, std::string_view("abcd\xFF\0", 6));
  ExpectRefused(ModelOf(spec), {"UTF-8"});
}

// A trie of random units leads anywhere; nothing outside of it may be read.
TEST(SentencePieceFileTest, SurvivesAnyTrie) {
  SentencePieceSpec spec = SmallSentencePieceSpec();
  uint32_t random = 1;
  const auto next = [&random] {
    return random = random * 1664525 + 1013904223;
  };
  for (int round = 0; round < 300; ++round) {
    ByteWriter bytes;
    bytes.Put(uint32_t{4 * 64});
    for (int i = 0; i < 64; ++i) bytes.Put(next() >> (next() % 24));
    bytes.PutBytes(std::string_view("x\0yz\0", 5));
    spec.charsmap = bytes.Take();
    const auto tokenizer = Load(spec);
    std::string text;
    for (int i = 0; i < 200; ++i) text += static_cast<char>(next() >> 25);
    EXPECT_TRUE(tokenizer->Encode(text, false).ok());
  }
}

TEST(SentencePieceFileTest, SurvivesEveryByteChangedAndEveryCut) {
  const std::string model = ModelOf(SmallSentencePieceSpec());
  for (size_t i = 0; i < model.size(); ++i) {
    std::string changed = model;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    for (const std::string& text : {changed, model.substr(0, i)}) {
      const auto tokenizer = CreateSentencePieceTokenizer(text, kVocabulary);
      if (!tokenizer.ok()) continue;
      const auto ids = (*tokenizer)->Encode("<s> abc \u4F60", true);
      ASSERT_TRUE(ids.ok());
      for (const int32_t id : *ids) ASSERT_LT(id, kVocabulary);
    }
  }
}

}  // namespace
}  // namespace reprise

#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/base/utf8.h"
#include "tests/support/fake_tokenizer.h"

namespace reprise {
namespace {

TEST(DecodeTest, SkipsSpecialTokensUnlessAsked) {
  const FakeTokenizer tokenizer({"<eos>", "<user>", "a", "\xC3", "\xA9"});
  // A special token inside a character does not break it.
  const std::vector<int32_t> ids = {2, 3, 0, 4, 0};
  EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/false), "a\xC3\xA9");
  EXPECT_EQ(Decode(tokenizer, ids, /*keep_special=*/true),
            "a\xEF\xBF\xBD<eos>\xEF\xBF\xBD<eos>");
}

TEST(DecodeTest, DropsSpacesFromTheBeginningByTheRules) {
  FakeTokenizer tokenizer(
      {"<eos>", "<user>", " ", " a", "b", "\xC3", "", "  a b"});
  const auto decode = [&](std::vector<int32_t> ids, bool keep_special = false) {
    return Decode(tokenizer, ids, keep_special);
  };
  EXPECT_EQ(decode({3, 3}), " a a");
  tokenizer.rules.leading_spaces = 1;
  EXPECT_EQ(decode({3, 3}), "a a");
  EXPECT_EQ(decode({2}), "");
  EXPECT_EQ(decode({2, 3}), " a");
  EXPECT_EQ(decode({4, 3}), "b a");
  EXPECT_EQ(decode({6, 3}), "a");  // no bytes, no beginning
  // Special tokens are no text unless they are kept.
  EXPECT_EQ(decode({0, 3}), "a");
  EXPECT_EQ(decode({0, 3}, /*keep_special=*/true), "<eos> a");
  tokenizer.rules.leading_spaces = 3;
  EXPECT_EQ(decode({2, 2, 3}), "a");
  EXPECT_EQ(decode({2, 2, 2, 3}), " a");
  tokenizer.rules.one_space_a_token = true;
  EXPECT_EQ(decode({2, 2, 3}), "a");
  EXPECT_EQ(decode({7, 3}), " a b a");
  tokenizer.rules = {.drop_first_spaces = true};
  EXPECT_EQ(decode({7, 3}), "ab a");
  EXPECT_EQ(decode({2, 3}), " a");
  EXPECT_EQ(decode({0, 7}), "ab");
}

TEST(DecodeTest, ReplacesEachByteByTheRules) {
  FakeTokenizer tokenizer({"<eos>", "<user>", "a", "\xF0", "\x9F", "\x98"});
  const std::string r(kReplacementCharacter);
  const auto decode = [&](std::vector<int32_t> ids) {
    return Decode(tokenizer, ids, /*keep_special=*/false);
  };
  EXPECT_EQ(decode({3, 4, 5, 2, 3, 4}), r + "a" + r);
  EXPECT_EQ(ShowUnfinished(tokenizer, "\xF0\x9F"), r);
  tokenizer.rules.replace_each_byte = true;
  EXPECT_EQ(decode({3, 4, 5, 2, 3, 4}), r + r + r + "a" + r + r);
  EXPECT_EQ(ShowUnfinished(tokenizer, "\xF0\x9F"), r + r);
  EXPECT_EQ(ShowUnfinished(tokenizer, ""), "");
}

TEST(StreamDecoderTest, KeepsSpacesOfATextThatGoesOn) {
  FakeTokenizer tokenizer({"<eos>", "<user>", " a"});
  tokenizer.rules = {.leading_spaces = 1, .drop_first_spaces = true};
  StreamDecoder going_on(tokenizer);
  EXPECT_EQ(going_on.Push(2), " a");
  StreamDecoder beginning = StreamDecoder::AtStart(tokenizer);
  EXPECT_EQ(beginning.Push(0), "");
  EXPECT_EQ(beginning.Push(2), "a");
  EXPECT_EQ(beginning.Push(2), " a");
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
    text += ShowUnfinished(tokenizer, decoder.pending());
    std::string bytes;
    for (const int32_t id : ids) {
      if (id >= 2) bytes += pieces[id];
    }
    std::string whole;
    const size_t unfinished =
        AppendValidUtf8(bytes, Utf8Replacement::kMaximalPart, &whole);
    if (unfinished > 0) whole += kReplacementCharacter;
    ASSERT_EQ(text, whole);
    ASSERT_EQ(Decode(tokenizer, ids, /*keep_special=*/false), whole);
  }
}

}  // namespace
}  // namespace reprise

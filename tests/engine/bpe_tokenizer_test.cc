#include "engine/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include "tests/support/bpe_json.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> Load(const Json& json) {
  auto tokenizer = LoadBpe(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// A merge as newer files write it.
Json Pair(const std::string& left, const std::string& right) {
  return Json::array({left, right});
}

// The tokens of `text`, each as its bytes.
std::vector<std::string> Pieces(const Tokenizer& tokenizer,
                                std::string_view text,
                                bool allow_special = false) {
  const auto ids = tokenizer.Encode(text, allow_special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<std::string> pieces;
  for (const int32_t id : *ids) {
    pieces.emplace_back(tokenizer.TokenBytes(id));
  }
  return pieces;
}

// Byte-pair encoding as Sennrich et al. (2016) describe it: while any merge
// applies, do the best one at its leftmost place.
std::vector<std::string> PlainBpe(const Merges& merges, std::string_view text) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const auto& merge : merges) ranks[merge] = ranks.size();
  std::vector<std::string> parts;
  for (const char byte : text) parts.emplace_back(1, byte);
  while (true) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it == ranks.end() || it->second >= best) continue;
      best = it->second;
      place = i;
    }
    if (best == merges.size()) return parts;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(BpeTokenizerTest, MergesTheBestPairFirst) {
  const auto tokenizer =
      Load(BpeJson({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"c", "c"}}));
  EXPECT_THAT(Pieces(*tokenizer, "abc"), ElementsAre("abc"));
  EXPECT_THAT(Pieces(*tokenizer, "abd"), ElementsAre("ab", "d"));
  EXPECT_THAT(Pieces(*tokenizer, "abccc"), ElementsAre("abc", "cc"));
  EXPECT_THAT(Pieces(*tokenizer, ""), ElementsAre());
}

TEST(BpeTokenizerTest, MergesAsThePlainAlgorithmDoes) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Merges merges;
    std::vector<std::string> parts = {"a", "b", "c"};
    for (int i = 0; i < 20; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      const std::pair merge(left, right);
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) {
        continue;
      }
      merges.push_back(merge);
      parts.push_back(left + right);
    }
    const auto tokenizer = Load(BpeJson(merges));
    for (int i = 0; i < 20; ++i) {
      std::string text;
      while (text.size() < 1 + random() % 60) {
        text += "abc"[random() % 3];
      }
      ASSERT_EQ(Pieces(*tokenizer, text), PlainBpe(merges, text)) << text;
    }
  }
}

TEST(BpeTokenizerTest, TakesMergesAsPairs) {
  Json json = BpeJson({{"a", "b"}, {" ", "ab"}});
  json["model"]["merges"] =
      Json::array({Pair("a", "b"), Pair(ByteName(' '), "ab")});
  EXPECT_THAT(Pieces(*Load(json), "ab ab"), ElementsAre("ab", " ab"));
}

TEST(BpeTokenizerTest, MergesAMegabyteOfOneLetterInTime) {
  Merges merges;
  for (std::string part = "a"; part.size() < 64; part += part) {
    merges.emplace_back(part, part);
  }
  const auto tokenizer = Load(BpeJson(merges));
  const auto ids = tokenizer->Encode(std::string(1 << 20, 'a'), false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), size_t{1 << 20} / 64);
}

// With a limit that is enough there are the same tokens, with any smaller one
// there are none.
void ExpectLimited(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, true);
  ASSERT_TRUE(ids.ok()) << ids.status();
  for (size_t limit = 0; limit < ids->size() + 2; ++limit) {
    const auto limited = tokenizer.EncodeUpTo(text, true, limit);
    if (limit < ids->size()) {
      EXPECT_EQ(limited.status(), TooManyTokensError(limit)) << text;
    } else {
      EXPECT_EQ(limited.value(), *ids) << text << " up to " << limit;
    }
  }
}

TEST(BpeTokenizerTest, EncodesUpToALimitOfTokens) {
  const Merges merges = {{"a", "a"},   {"aa", "aa"},     {"aaaa", "aa"},
                         {"b", "a"},   {"aaaaaa", "ba"}, {"c", "c"},
                         {"cc", "cc"}, {"cccc", "cccc"}};
  std::mt19937 random(7);
  for (const bool ignore_merges : {false, true}) {
    Json json = BpeJson(merges);
    json["model"]["ignore_merges"] = ignore_merges;
    json["added_tokens"].push_back(AddedTokenJson(400, "<x>", true));
    const auto tokenizer = Load(json);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (size_t i = random() % 40; i > 0; --i) {
        constexpr const char* kParts[] = {"a",    "aaaaaa", "b",
                                          "cccc", "<x>",    "\u00e9"};
        text += kParts[random() % std::size(kParts)];
      }
      ExpectLimited(*tokenizer, text);
    }
  }
}

// A piece that cannot have so few tokens is not merged: what is left to do is a
// small part of merging a sixteenth of it.
TEST(BpeTokenizerTest, TooManyTokensOfOnePieceAreSeenBeforeItIsMerged) {
  Merges merges;
  for (std::string part = "a"; part.size() < 16; part += part) {
    merges.emplace_back(part, part);
  }
  const auto tokenizer = Load(BpeJson(merges));
  const std::string longest(kMaxTextBytes, 'a');
  const std::clock_t start = std::clock();
  EXPECT_EQ(tokenizer->EncodeUpTo(longest, false, 262'144).status(),
            TooManyTokensError(262'144));
  const std::clock_t refused = std::clock() - start;
  EXPECT_TRUE(tokenizer->Encode(longest.substr(0, 1 << 20), false).ok());
  EXPECT_LT(refused, std::clock() - start - refused);
}

TEST(BpeTokenizerTest, LimitsTheText) {
  const auto tokenizer = Load(BpeJson());
  const absl::Status status =
      tokenizer->Encode(std::string(kMaxTextBytes + 1, 'a'), false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("16777217 bytes (at most 16777216)"));
}

TEST(BpeTokenizerTest, RefusesInvalidUtf8WithItsOffset) {
  const auto tokenizer = Load(BpeJson());
  for (const std::string text : {"ab\xFF", "ab\xC3", "ab\xED\xA0\x80"}) {
    const absl::Status status = tokenizer->Encode(text, false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("offset 2"));
  }
}

TEST(BpeTokenizerTest, KeepsNulBytes) {
  const auto tokenizer = Load(BpeJson());
  EXPECT_THAT(*tokenizer->Encode(std::string_view("\0a\0", 3), false),
              ElementsAre(0, 97, 0));
}

TEST(BpeTokenizerTest, FindsSpecialTokensOnlyIfAllowed) {
  Json json = BpeJson({{"<", "e"}});
  json["added_tokens"] = Json::array({AddedTokenJson(300, "<eos>", true),
                                      AddedTokenJson(301, "<eos><eos>", true)});
  const auto tokenizer = Load(json);
  EXPECT_THAT(*tokenizer->Encode("a<eos>b", true), ElementsAre(97, 300, 98));
  EXPECT_THAT(*tokenizer->Encode("<eos><eos><eos>", true),
              ElementsAre(301, 300));
  EXPECT_THAT(Pieces(*tokenizer, "<eos>"),
              ElementsAre("<", "e", "o", "s", ">"));
  EXPECT_EQ(tokenizer->FindToken("<eos>"), 300);
  EXPECT_EQ(tokenizer->FindToken("<nothing>"), std::nullopt);
  EXPECT_TRUE(tokenizer->IsSpecial(300));
  EXPECT_FALSE(tokenizer->IsSpecial(97));
  for (const int32_t id : {-1, 299, 302, 5000}) {
    EXPECT_FALSE(tokenizer->IsSpecial(id));
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
  }
}

TEST(BpeTokenizerTest, AlwaysFindsAddedTokensThatAreNotSpecial) {
  Json json = BpeJson({{" ", "a"}});
  json["added_tokens"] = Json::array({AddedTokenJson(300, "  ", false),
                                      AddedTokenJson(301, "   ", false),
                                      AddedTokenJson(302, "\u00E9t", false)});
  const auto tokenizer = Load(json);
  EXPECT_THAT(*tokenizer->Encode("     a", false), ElementsAre(301, 300, 97));
  EXPECT_EQ(tokenizer->TokenBytes(302), "\u00E9t");
  EXPECT_FALSE(tokenizer->IsSpecial(300));
}

TEST(BpeTokenizerTest, StripsWhiteSpaceBesideTokensThatAskForIt) {
  Json json = BpeJson();
  json["added_tokens"] = Json::array(
      {AddedTokenJson(300, "<l>", true), AddedTokenJson(301, "<r>", true)});
  json["added_tokens"][0]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  const auto tokenizer = Load(json);
  EXPECT_THAT(Pieces(*tokenizer, "a \n\u3000<l> b", true),
              ElementsAre("a", "<l>", " ", "b"));
  EXPECT_THAT(Pieces(*tokenizer, "a <r> \t\u2003<l>", true),
              ElementsAre("a", " ", "<r>", "<l>"));
}

TEST(BpeTokenizerTest, FindsSingleWordsOnlyWhereNoWordGoesOn) {
  Json json = BpeJson();
  json["added_tokens"] = Json::array({AddedTokenJson(300, "ab", false)});
  json["added_tokens"][0]["single_word"] = true;
  const auto tokenizer = Load(json);
  const auto found = [&](std::string_view text) {
    const auto ids = tokenizer->Encode(text, false);
    return std::count(ids->begin(), ids->end(), 300);
  };
  EXPECT_EQ(found("ab"), 1);
  EXPECT_EQ(found("ab ab,ab-\u4E00!ab"), 4);
  EXPECT_EQ(found("abc"), 0);
  EXPECT_EQ(found("xab ab_ ab1 \u00E9ab ab\u0301 ab\u4E00"), 0);
  EXPECT_EQ(found("abab ab"), 1);
}

TEST(BpeTokenizerTest, NormalizesWhatIsNotATokenOfTheRawText) {
  Json json = BpeJson({{"\xC3", "\xA9"}});
  json["normalizer"] = JsonOf(R"({"type": "NFC"})");
  json["added_tokens"] = Json::array({AddedTokenJson(300, "e\u0301!", false),
                                      AddedTokenJson(301, "<e\u0301>", true)});
  json["added_tokens"][0]["normalized"] = true;
  json["added_tokens"][1]["normalized"] = false;
  const auto tokenizer = Load(json);
  EXPECT_THAT(*tokenizer->Encode("e\u0301", false), ElementsAre(256));
  // Found in the normalised text under its normalised name.
  EXPECT_THAT(*tokenizer->Encode("\u00E9!", false), ElementsAre(300));
  EXPECT_THAT(*tokenizer->Encode("e\u0301!", false), ElementsAre(300));
  // Found in the raw text only.
  EXPECT_THAT(*tokenizer->Encode("<e\u0301>", true), ElementsAre(301));
  EXPECT_THAT(*tokenizer->Encode("<\u00E9>", true), ElementsAre(60, 256, 62));
}

TEST(BpeTokenizerTest, TakesWholePiecesIfMergesAreIgnored) {
  Json json = BpeJson();
  json["model"]["vocab"]["abc"] = 256;
  json["model"]["vocab"]["xyz"] = 257;
  json["added_tokens"] = Json::array({AddedTokenJson(257, "xyz", true)});
  EXPECT_THAT(Pieces(*Load(json), "abc"), ElementsAre("a", "b", "c"));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(Pieces(*Load(json), "abc abcd"),
              ElementsAre("abc", " ", "a", "b", "c", "d"));
  // A special token is never made from text by that way.
  EXPECT_THAT(Pieces(*Load(json), "xyz"), ElementsAre("x", "y", "z"));
}

TEST(BpeTokenizerTest, AddsAPrefixSpaceToEachText) {
  Json json = BpeJson({{" ", "a"}});
  json["pre_tokenizer"]["add_prefix_space"] = true;
  json["added_tokens"] = Json::array({AddedTokenJson(300, "<x>", true)});
  EXPECT_THAT(Pieces(*Load(json), "aa<x>a<x> a", true),
              ElementsAre(" a", "a", "<x>", " a", "<x>", " a"));
}

// The pre-tokenizer of that step and ByteLevel, which cuts nothing then.
Json BeforeByteLevel(const Json& step) {
  Json json = JsonOf(R"({
      "type": "Sequence",
      "pretokenizers": [
          null,
          {"type": "ByteLevel", "add_prefix_space": false,
           "use_regex": false}]})");
  json["pretokenizers"][0] = step;
  return json;
}

// Merges tell where the pieces end: nothing merges across.
Json WithSplit(const std::string& pattern, const std::string& behavior,
               bool invert) {
  Json json = BpeJson({{"a", "b"},
                       {"b", "-"},
                       {"-", "a"},
                       {"ab", "-"},
                       {"ab", "ab"},
                       {"-", "-"}});
  Json split = JsonOf(R"({"type": "Split"})");
  split["pattern"] = JsonOf(pattern);
  split["behavior"] = behavior;
  split["invert"] = invert;
  json["pre_tokenizer"] = BeforeByteLevel(split);
  return json;
}

TEST(BpeTokenizerTest, CutsWithSplitPatterns) {
  const std::string regex = R"({"Regex": "-+"})";
  const std::string literal = R"({"String": "-"})";
  EXPECT_THAT(Pieces(*Load(WithSplit(regex, "Isolated", false)), "ab--ab"),
              ElementsAre("ab", "--", "ab"));
  EXPECT_THAT(Pieces(*Load(WithSplit(literal, "Isolated", false)), "ab--ab"),
              ElementsAre("ab", "-", "-", "ab"));
  EXPECT_THAT(Pieces(*Load(WithSplit(regex, "Removed", false)), "ab--ab"),
              ElementsAre("ab", "ab"));
  EXPECT_THAT(Pieces(*Load(WithSplit(regex, "Removed", true)), "ab--ab"),
              ElementsAre("--"));
  // Without ByteLevel's own pattern the rest stays whole.
  EXPECT_THAT(
      Pieces(*Load(WithSplit(R"({"Regex": "x"})", "Isolated", false)), "abab"),
      ElementsAre("abab"));
}

TEST(BpeTokenizerTest, GivesUpOnAPatternThatTakesTooLong) {
  const auto tokenizer =
      Load(WithSplit(R"({"Regex": "(a+)+b"})", "Isolated", false));
  const absl::Status status =
      tokenizer->Encode(std::string(100, 'a') + "!b", false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("gives up"));
}

TEST(BpeTokenizerTest, FingerprintDiffersWhereEncodingsMay) {
  const Json json = BpeJson({{"a", "b"}, {"b", "c"}});
  const uint64_t fingerprint = Load(json)->fingerprint();
  EXPECT_EQ(Load(json)->fingerprint(), fingerprint);
  Json pairs = json;
  pairs["model"]["merges"] = Json::array({Pair("a", "b"), Pair("b", "c")});
  EXPECT_EQ(Load(pairs)->fingerprint(), fingerprint);

  Json merges = json;
  std::swap(merges["model"]["merges"][0], merges["model"]["merges"][1]);
  EXPECT_NE(Load(merges)->fingerprint(), fingerprint);
  Json vocab = json;
  std::swap(vocab["model"]["vocab"]["ab"], vocab["model"]["vocab"]["bc"]);
  EXPECT_NE(Load(vocab)->fingerprint(), fingerprint);
  Json added = json;
  added["added_tokens"] = Json::array({AddedTokenJson(300, "<x>", true)});
  EXPECT_NE(Load(added)->fingerprint(), fingerprint);
  Json steps = json;
  steps["pre_tokenizer"]["use_regex"] = false;
  EXPECT_NE(Load(steps)->fingerprint(), fingerprint);
  Json nfc = json;
  nfc["normalizer"] = JsonOf(R"({"type": "NFC"})");
  EXPECT_NE(Load(nfc)->fingerprint(), fingerprint);
}

// Qwen's and Llama 3's way: a pattern, and ByteLevel without one.
TEST(BpeTokenizerTest, CutsDigitsAndPunctuation) {
  Json json = BpeJson({{"1", "2"}, {"a", "."}, {".", "."}});
  const auto pieces = [&](const std::string& step, std::string_view text) {
    json["pre_tokenizer"] = BeforeByteLevel(JsonOf(step));
    return Pieces(*Load(json), text);
  };
  EXPECT_THAT(pieces(R"({"type": "Digits", "individual_digits": true})", "a12"),
              ElementsAre("a", "1", "2"));
  EXPECT_THAT(pieces(R"({"type": "Digits"})", "a12"), ElementsAre("a", "12"));
  EXPECT_THAT(pieces(R"({"type": "Punctuation"})", "a..1"),
              ElementsAre("a", ".", ".", "1"));
  EXPECT_THAT(
      pieces(R"({"type": "Punctuation", "behavior": "Contiguous"})", "a..1"),
      ElementsAre("a", "..", "1"));
  EXPECT_THAT(pieces(R"({"type": "WhitespaceSplit"})", "a. \n12"),
              ElementsAre("a.", "12"));
  EXPECT_THAT(pieces(R"({"type": "Whitespace"})", "a. 12"),
              ElementsAre("a", ".", "12"));
}

}  // namespace
}  // namespace reprise

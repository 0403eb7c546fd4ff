// Text whose characters remember where they come from.
#include "engine/template/marked_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/template/template.h"

namespace reprise::jinja {
namespace {

// The marked characters of `text` in upper case, the others in lower case.
std::string ShowMarks(const Text& text) {
  std::string shown;
  for (const char32_t c : text) {
    AppendUtf8(IsMarked(c) ? ToUpper(c) : ToLower(c), &shown);
  }
  return shown;
}

std::string RenderMarked(const std::string& source) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status().ToString();
  const absl::StatusOr<Text> text = parsed->Render(
      {{"x", Value::String(FromUtf8(" data\"\n", /*marked=*/true))},
       {"y", Value::String(FromUtf8("b,c", /*marked=*/true))}},
      RenderOptions{});
  return text.ok() ? ShowMarks(*text) : text.status().ToString();
}

TEST(MarkedTextTest, MarksGoWhereTheCharactersGo) {
  EXPECT_EQ(RenderMarked("own {{ x }}own"), "own  DATA\"\nown");
  EXPECT_EQ(RenderMarked("{{ '<' + x.strip() ~ '>' }}"), "<DATA\">");
  EXPECT_EQ(RenderMarked("{{ x|trim|upper|replace('A', 'own') }}"),
            "DownTown\"");
  EXPECT_EQ(RenderMarked("{{ 'a-z'|replace('-', y) }}"), "aB,Cz");
  EXPECT_EQ(RenderMarked("{{ y.split(',')|join('+') }}"), "B+C");
  EXPECT_EQ(RenderMarked("{{ y[::-1] }}{{ y|list|first }}{{ y * 2 }}"),
            "C,BBB,CB,C");
  EXPECT_EQ(RenderMarked("{{ x|tojson }}"), "\" DATA\\\"\\N\"");
  EXPECT_EQ(RenderMarked("{{ [y] }}"), "['B,C']");
  EXPECT_EQ(RenderMarked("{% set z %}a{{ y }}{% endset %}{{ z|indent }}"),
            "aB,C");
  EXPECT_EQ(RenderMarked("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(y) }}"),
            "<B,C>");
}

TEST(MarkedTextTest, MarksDoNotChangeWhatIsEqual) {
  EXPECT_EQ(RenderMarked("{{ y == 'b,c' }}{{ 'b' in y }}{{ y in ['b,c'] }}"
                         "{{ y.startswith('b') }}{{ {'b,c': 1}[y] }}"
                         "{{ y is eq 'b,c' }}{{ y < 'c' }}{{ y|length }}"),
            "truetruetruetrue1truetrue3");
}

TEST(MarkedTextTest, FinderFindsOverlappingBeginnings) {
  const Text text = FromUtf8("aabaabaaab");
  EXPECT_EQ(Finder(U"aabaaab").Next(text, 0), 3u);
  EXPECT_EQ(Finder(U"b").Next(text, 3), 5u);
  EXPECT_EQ(Finder(U"aaaa").Next(text, 0), Text::npos);
  EXPECT_EQ(FindAll(U"aaaa", U"aa", -1), (std::vector<size_t>{0, 2}));
}

TEST(MarkedTextTest, Utf8GoesThereAndBack) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(ToUtf8(FromUtf8(text, /*marked=*/true)), text);
  EXPECT_EQ(FromUtf8(text).size(), 4u);
}

}  // namespace
}  // namespace reprise::jinja

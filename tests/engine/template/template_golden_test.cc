// Templates and snippets against what Jinja itself made of them
// (tests/testdata/chat_templates/make_expected.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "engine/template/template.h"
#include "tests/support/template_values.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

const OrderedJson& Expected() {
  static const OrderedJson& expected =
      *new OrderedJson(OrderedJson::parse(ReadTemplateFile("expected.json")));
  return expected;
}

absl::StatusOr<std::string> Render(const std::string& source,
                                   const OrderedJson& variables) {
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<jinja::Text> text =
      parsed->Render(ToTemplateVariables(variables),
                     {.now_unix_ms = Expected()["now_unix_ms"].get<int64_t>()});
  if (!text.ok()) return text.status();
  return jinja::ToUtf8(*text);
}

// `expected` has the text, the words of raise_exception, or that it fails.
void Check(const std::string& source, const OrderedJson& variables,
           const OrderedJson& expected) {
  const absl::StatusOr<std::string> text = Render(source, variables);
  if (expected.contains("text")) {
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, expected["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(text.ok()) << *text;
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("line "));
  if (expected.contains("raised")) {
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(text.status().message()),
                HasSubstr(expected["raised"].get<std::string>()));
  }
}

class TemplateGoldenTest : public ::testing::Test {
 protected:
  // strftime_now tells local time; the expected one is UTC.
  static void SetUpTestSuite() {
    setenv("TZ", "UTC", /*overwrite=*/1);
    tzset();
  }
};

TEST_F(TemplateGoldenTest, EverySnippet) {
  const OrderedJson& variables = Expected()["snippet_variables"];
  ASSERT_GT(Expected()["snippets"].size(), 150u);
  for (const OrderedJson& snippet : Expected()["snippets"]) {
    const std::string source = snippet["source"].get<std::string>();
    SCOPED_TRACE(source);
    Check(source, variables, snippet);
  }
}

TEST_F(TemplateGoldenTest, EveryTemplateWithEveryInput) {
  const OrderedJson inputs =
      OrderedJson::parse(ReadTemplateFile("inputs.json"));
  ASSERT_GT(Expected()["templates"].size(), 10u);
  for (const auto& [name, results] : Expected()["templates"].items()) {
    const std::string source = ReadTemplateFile(name + ".jinja");
    for (const auto& [input, expected] : results.items()) {
      SCOPED_TRACE(name + " with " + input);
      Check(source, inputs[input], expected);
    }
  }
}

}  // namespace
}  // namespace reprise

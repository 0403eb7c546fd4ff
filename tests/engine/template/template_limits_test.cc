// Templates that mean harm: they end with an error that names the limit, and
// never with the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "engine/template/template.h"
#include "tests/support/template_values.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

std::string Repeat(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

absl::Status StatusOf(const std::string& source,
                      const jinja::RenderLimits& limits = {}) {
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed
      ->Render({{"s", jinja::Value::String(Repeat("x", 1000))}},
               {.limits = limits})
      .status();
}

void ExpectExhausted(const std::string& source, const std::string& limit,
                     const jinja::RenderLimits& limits = {}) {
  SCOPED_TRACE(source.substr(0, 100));
  const absl::Status status = StatusOf(source, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(limit));
}

TEST(TemplateLimitsTest, StepsAreLimited) {
  ExpectExhausted("{% for i in range(100000) %}{{ 0" + Repeat(" + 1", 90) +
                      " }}{% endfor %}",
                  "more than 10000000 steps");
  ExpectExhausted("{% for i in range(60) %}{{ i }}{% endfor %}", "100 steps",
                  {.max_steps = 100});
}

TEST(TemplateLimitsTest, BuiltTextIsLimited) {
  ExpectExhausted("{{ 'x' * 100000000 }}", "67108864 characters built");
  ExpectExhausted("{{ 'xx' * 9223372036854775807 }}", "steps");
  ExpectExhausted("{{ 'x'|indent(9223372036854775807) }}", "steps");
  ExpectExhausted("{{ [1]|tojson(indent=9223372036854775807) }}", "steps");
  ExpectExhausted(
      "{% set n = namespace(s=s) %}{% for i in range(40) %}"
      "{% set n.s = n.s + n.s %}{% endfor %}",
      "characters built");
  ExpectExhausted("{{ s|replace('x', s)|replace('x', s) }}",
                  "characters built");
}

TEST(TemplateLimitsTest, BuiltListsAreLimited) {
  ExpectExhausted("{{ [1] * 9223372036854775807 }}", "steps");
  ExpectExhausted("{{ [1] * 3000000 }}", "1048576 elements built");
  ExpectExhausted(
      "{% set n = namespace(l=[1]) %}{% for i in range(40) %}"
      "{% set n.l = n.l + n.l %}{% endfor %}",
      "elements built");
  ExpectExhausted("{{ range(100001)|list }}", "100000 numbers");
  ExpectExhausted("{{ range(-9223372036854775807, 9223372036854775807)|list }}",
                  "100000 numbers");
}

TEST(TemplateLimitsTest, OutputIsLimited) {
  ExpectExhausted(
      "{% for i in range(100000) %}" + std::string(1000, 'x') + "{% endfor %}",
      "16777216 characters of output");
}

TEST(TemplateLimitsTest, DepthOfRecursionIsLimited) {
  ExpectExhausted("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
                  "more than 300 expressions, blocks and calls");
  ExpectExhausted(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}"
      "{% endmacro %}{{ f() }}",
      "more than 300");
  ExpectExhausted("{{ 'a'|map(" + Repeat("'map', ", 5000) + "'upper')|list }}",
                  "more than 300");
}

TEST(TemplateLimitsTest, DepthOfSyntaxIsLimited) {
  for (const std::string& source :
       {"{{ " + Repeat("(", 100000) + "1" + Repeat(")", 100000) + " }}",
        "{{ " + Repeat("[", 100000),
        "{{ " + Repeat("{1:", 100000),
        "{{ " + Repeat("not ", 100000) + "1 }}",
        "{{ " + Repeat("-", 100000) + "1 }}",
        "{{ 1" + Repeat(" + 1", 100000) + " }}",
        "{{ 1" + Repeat(" or 1", 100000) + " }}",
        "{{ 1" + Repeat(" ** 1", 100000) + " }}",
        "{{ 1" + Repeat(" if 1 else 1", 50000) + " }}",
        "{{ 1" + Repeat(" if 1", 50000) + " }}",
        "{{ x" + Repeat(".y", 100000) + " }}",
        "{{ x" + Repeat("[0]", 100000) + " }}",
        "{{ x" + Repeat("()", 100000) + " }}",
        "{{ x" + Repeat("|abs", 100000) + " }}",
        "{{ x" + Repeat(" is eq x is eq", 3000) + " 1 }}",
        "{% set " + Repeat("(", 100000) + "x",
        Repeat("{% if 1 %}", 50000),
        Repeat("{% for x in y %}", 50000),
        Repeat("{% macro f() %}", 50000),
        Repeat("{% set x %}", 50000)}) {
    SCOPED_TRACE(source.substr(0, 60));
    const absl::Status status = StatusOf(source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_THAT(std::string(StatusOf(Repeat("{% if 1 %}", 101)).message()),
              HasSubstr("deeper than 100"));
}

TEST(TemplateLimitsTest, DepthOfValuesIsLimited) {
  const absl::Status status = StatusOf(
      "{% set n = namespace(l=[]) %}{% for i in range(100000) %}"
      "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 levels"));
}

TEST(TemplateLimitsTest, SourceIsLimited) {
  const absl::Status status = StatusOf(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1048576"));
  EXPECT_EQ(StatusOf("a\xFF").code(), absl::StatusCode::kInvalidArgument);
}

TEST(TemplateLimitsTest, SearchesDoNotTakeQuadraticTime) {
  // 2^19 times the same character, looked for in 2^20 of it with another end.
  const std::string setup =
      "{% set a = 'a' * 1048576 %}{% set b = 'a' * 524288 + 'b' %}";
  for (const char* use :
       {"{{ b in a }}", "{{ a.find(b) }}", "{{ a.count(b) }}",
        "{{ a.split(b)|length }}", "{{ a.replace(b, '')|length }}"}) {
    SCOPED_TRACE(use);
    EXPECT_TRUE(StatusOf(setup + use).ok()) << StatusOf(setup + use);
  }
  ExpectExhausted(setup + "{{ a.strip(b) }}", "steps");
  ExpectExhausted(setup + "{{ a|trim(b) }}", "steps");
}

// Each would go through gigabytes for its few steps.
TEST(TemplateLimitsTest, LongTextsCostStepsWhateverIsDoneWithThem) {
  const std::string setup =
      "{% set a = '9' * 200000 %}{% set l = range(20000) %}"
      "{% for i in l %}";
  const std::string end = "{% endfor %}";
  for (const char* use :
       {"{% set x = a|int %}", "{% set x = a|float %}", "{% set x = a == a %}",
        "{% set x = a in a %}", "{% set x = a < a %}",
        "{% set x = [a] == [a] %}", "{% set x = ''.startswith(a) %}",
        "{% set x = ''.removeprefix(a) %}", "{% set x = ''.find(a) %}",
        "{% set x = [a, a]|sort %}", "{% set x = [a]|join %}",
        "{% set x = a ~ a %}", "{% set x = i[a] %}",
        "{% set x = l|map(attribute=a)|list %}",
        "{% set x = namespace({a: 1}) %}",
        "{% set x = {a ~ 1: 1, a ~ 0: 1}|tojson(sort_keys=true) %}"}) {
    SCOPED_TRACE(use);
    ExpectExhausted(setup + use + end, "more than ",
                    {.max_steps = 500'000, .max_characters = 8 << 20});
  }
  // What is not looked at costs nothing.
  EXPECT_EQ(StatusOf(setup + "{% set x = 1.5|round(0, a) %}" + end).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf(setup + "{% set x = strftime_now(a) %}" + end).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TemplateLimitsTest, NamesAreLimited) {
  const std::string longest(1024, 'n');
  EXPECT_TRUE(StatusOf("{{ " + longest + " }}").ok());
  const absl::Status status = StatusOf("{{ " + longest + "n }}");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a name has 1025 bytes (at most 1024)"));
}

TEST(TemplateLimitsTest, LookingForANameAmongManyCostsSteps) {
  std::string names;
  std::string sets;
  for (int i = 0; i < 20000; ++i) {
    const std::string name = "n" + std::to_string(i);
    names += name + ",";
    sets += "{% set " + name + "=1 %}";
  }
  ExpectExhausted(sets +
                      "{% for i in range(100000) %}{% if x %}{% endif %}"
                      "{% endfor %}",
                  "steps");
  ExpectExhausted("{% macro f(" + names + "z) %}{% endmacro %}" +
                      "{% for i in range(100000) %}{% set x = f() %}"
                      "{% endfor %}",
                  "steps");
}

TEST(TemplateLimitsTest, NumbersDoNotOverflow) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 64 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1) % -1 }}",
        "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1)|abs }}"}) {
    SCOPED_TRACE(source);
    const absl::Status status = StatusOf(source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("64 bits"));
  }
  EXPECT_EQ(StatusOf("{{ 99999999999999999999 }}").code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(StatusOf("{{ s[-9223372036854775807:9223372036854775807:"
                       "-9223372036854775807] }}")
                  .ok());
}

TEST(TemplateLimitsTest, WhatIsLeftOutSaysSo) {
  struct Case {
    const char* source;
    const char* words;
  };
  for (const Case& c : {
           Case{"a\n{% include 'x' %}", "line 2: the tag 'include'"},
           Case{"{% raw %}{{ x }}{% endraw %}", "'raw' blocks"},
           Case{"{% call f() %}{% endcall %}", "the tag 'call'"},
           Case{"{% filter upper %}{% endfilter %}", "the tag 'filter'"},
           Case{"{% block x %}{% endblock %}", "the tag 'block'"},
           Case{"{% for x in y recursive %}{% endfor %}", "'recursive'"},
           Case{"{{ f(*x) }}", "'*' before an argument"},
           Case{"{{ 1|filesizeformat }}", "the filter 'filesizeformat'"},
           Case{"{{ 1 is escaped }}", "the test 'escaped'"},
           Case{"\n\n{{ '%d' % 1 }}", "line 3: '%' to format"},
           Case{"{{ s.format(1) }}", "the method 'format' of a str"},
           Case{"{{ [1]|map('nope')|list }}", "the filter 'nope'"},
           Case{"{{ [1]|select('nope')|list }}", "the test 'nope'"},
           Case{"{{ range(3) }}", "printing a range"},
           Case{"{{ s.upper }}", "printing a method"},
           Case{"{{ '\\N{BULLET}' }}", "\\N in a string"},
           Case{"{{ 0x10 }}", "decimal digits"},
           Case{"{{ joiner('x') }}", "'joiner' is not supported"},
       }) {
    SCOPED_TRACE(c.source);
    const absl::Status status = StatusOf(c.source);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.words));
  }
}

// Every prefix of every template is refused or rendered.
TEST(TemplateLimitsTest, EveryPrefixEndsWell) {
  const OrderedJson inputs =
      OrderedJson::parse(ReadTemplateFile("inputs.json"));
  const OrderedJson expected =
      OrderedJson::parse(ReadTemplateFile("expected.json"));
  int rendered = 0;
  int refused = 0;
  const auto check = [&](const std::string& source,
                         const TemplateVariables& variables) {
    for (size_t size = 0; size <= source.size(); ++size) {
      const auto parsed = jinja::Template::Parse(source.substr(0, size));
      const bool ok =
          parsed.ok() && parsed->Render(variables, jinja::RenderOptions{}).ok();
      ++(ok ? rendered : refused);
    }
  };
  for (const auto& [name, unused] : expected["templates"].items()) {
    check(ReadTemplateFile(name + ".jinja"),
          ToTemplateVariables(inputs["tool_called"]));
  }
  for (const OrderedJson& snippet : expected["snippets"]) {
    check(snippet["source"].get<std::string>(),
          ToTemplateVariables(expected["snippet_variables"]));
  }
  EXPECT_GT(rendered, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace reprise

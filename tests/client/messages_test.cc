#include "client/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

TEST(ParseMessagesTest, ReadsRolesAndContents) {
  const auto messages = ParseMessages(
      R"( [{"role": "user", "content": "a\n\u00e9"},
           {"content": "", "role": "assistant"}] )",
      "f");
  ASSERT_TRUE(messages.ok()) << messages.status();
  ASSERT_EQ(messages->messages_size(), 2);
  EXPECT_EQ(messages->messages(0).role(), "user");
  EXPECT_EQ(messages->messages(0).content(), "a\n\u00e9");
  EXPECT_EQ(messages->messages(1).role(), "assistant");
  EXPECT_EQ(messages->messages(1).content(), "");
  EXPECT_EQ(ParseMessages("[]", "f")->messages_size(), 0);
}

TEST(ParseMessagesTest, NamesWhatIsWrongAndWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "f: is not JSON"},
      {"[{]", "f: is not JSON"},
      {"[\"\xff\"]", "f: is not JSON"},
      {R"({"role":"user"})", "f: is not an array of messages but object"},
      {"[[]]",
       "f: [0]: a message is an object with a role and a content, not array"},
      {R"([{"role":"user","content":""},{"content":""}])",
       "f: [1]: it has no role"},
      {R"([{"role":"user"}])", "f: [0]: it has no content"},
      {R"([{"role":1,"content":""}])",
       "f: [0].role: is not a string but number"},
      {R"([{"role":"user","content":null}])",
       "f: [0].content: is not a string but null"},
      {R"([{"role":"user","content":"","tool_calls":[]}])",
       "f: [0].tool_calls: a message has a role and a content, and nothing "
       "else"},
  };
  for (const auto& [json, text] : cases) {
    EXPECT_EQ(ParseMessages(json, "f").status(),
              absl::InvalidArgumentError(text));
  }
}

}  // namespace
}  // namespace reprise

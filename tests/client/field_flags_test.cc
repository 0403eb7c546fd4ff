#include "client/field_flags.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(FieldFlagsTest, TheFieldAtTheBeginningBecomesTheFlag) {
  EXPECT_EQ(NameFlag("sampling.temperature: 3 is not in [0, 2]"),
            "--temperature: 3 is not in [0, 2]");
  EXPECT_EQ(NameFlag("stopping.max_new_tokens: 0"), "--max-tokens: 0");
  EXPECT_EQ(NameFlag("stopping.stop_token_ids[2]: 9"), "--stop-token[2]: 9");
  EXPECT_EQ(NameFlag("session_id: is empty"), "--session: is empty");
  EXPECT_EQ(NameFlag("n: 99 is not in [1, 16]"), "--n: 99 is not in [1, 16]");
  EXPECT_EQ(NameFlag("output.prompt_logprobs: 9 entries"),
            "--prompt-logprobs: 9 entries");
}

TEST(FieldFlagsTest, OtherMessagesStay) {
  for (const char* message :
       {"", "no session 'n'", "text: too short", "n", "page_size: 0",
        "sampling.nothing: 1", "session s is at revision 1: no",
        "temperature: 1"}) {
    EXPECT_EQ(NameFlag(message), message);
  }
}

}  // namespace
}  // namespace reprise

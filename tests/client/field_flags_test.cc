#include "client/field_flags.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(FieldFlagsTest, TheFieldAtTheBeginningBecomesTheFlag) {
  EXPECT_EQ(
      NameFlag(Command::kComplete, "sampling.temperature: 3 is not in [0, 2]"),
      "--temperature: 3 is not in [0, 2]");
  EXPECT_EQ(NameFlag(Command::kComplete, "stopping.max_new_tokens: 0"),
            "--max-tokens: 0");
  EXPECT_EQ(NameFlag(Command::kComplete, "stopping.stop_token_ids[2]: 9"),
            "--stop-token[2]: 9");
  EXPECT_EQ(NameFlag(Command::kComplete, "session_id: is empty"),
            "--session: is empty");
  EXPECT_EQ(NameFlag(Command::kComplete, "n: 99 is not in [1, 16]"),
            "--n: 99 is not in [1, 16]");
  EXPECT_EQ(NameFlag(Command::kComplete, "output.prompt_logprobs: 9 entries"),
            "--prompt-logprobs: 9 entries");
}

TEST(FieldFlagsTest, AFieldHasTheFlagOfTheCommand) {
  EXPECT_EQ(NameFlag(Command::kSessionsImport, "session_id: x"), "--id: x");
  EXPECT_EQ(NameFlag(Command::kChat, "session_id: x"), "--session: x");
  EXPECT_EQ(NameFlag(Command::kPresetsSave, "session_id: x"), "ID: x");
  EXPECT_EQ(NameFlag(Command::kSessionsDelete, "id: x"), "ID: x");
  EXPECT_EQ(NameFlag(Command::kSessionsFork, "new_id: x"), "NEW_ID: x");
  EXPECT_EQ(NameFlag(Command::kSessionsRewind, "revision: x"), "REVISION: x");
  EXPECT_EQ(NameFlag(Command::kTokenize, "messages[0].role: x"),
            "--messages[0].role: x");
  EXPECT_EQ(NameFlag(Command::kComplete, "snapshot: x"), "--load: x");
  EXPECT_EQ(NameFlag(Command::kSessionsImport, "snapshot: x"), "snapshot: x");
  EXPECT_EQ(NameFlag(Command::kChat, "snapshot: x"), "snapshot: x");
  EXPECT_EQ(NameFlag(Command::kComplete, "output.snapshot.elements: 9"),
            "--encoding: 9");
  EXPECT_EQ(NameFlag(Command::kSessionsExport, "seal.ttl_ms: 0"),
            "--ttl-ms: 0");
}

TEST(FieldFlagsTest, AFlagThatACommandLacksIsNotNamed) {
  for (const char* message :
       {"n: x", "messages[0].role: x", "output.logprobs: x", "request_id: x",
        "expected_revision: x", "commit: x"}) {
    EXPECT_EQ(NameFlag(Command::kChat, message), message);
    EXPECT_EQ(NameFlag(Command::kSessionsList, message), message);
  }
  EXPECT_EQ(NameFlag(Command::kScore, "session_id: x"), "session_id: x");
  EXPECT_EQ(NameFlag(Command::kScore, "sampling.top_p: x"),
            "sampling.top_p: x");
}

TEST(FieldFlagsTest, AdviceIsThatOfTheCommandLine) {
  EXPECT_EQ(NameFlag(Command::kComplete,
                     "n: 2 completions cannot all be the session's next turn; "
                     "set commit to COMMIT_POLICY_NEVER"),
            "--n: 2 completions cannot all be the session's next turn; add "
            "--no-commit");
  EXPECT_EQ(NameFlag(Command::kChat,
                     "stopping.min_new_tokens: 9 is more than max_new_tokens, "
                     "5"),
            "--min-tokens: 9 is more than --max-tokens, 5");
  EXPECT_EQ(
      NameFlag(Command::kComplete,
               "text: a request without a session, preset or snapshot needs at "
               "least one token"),
      "text: is empty, and there is no --session, --preset or --load to go on "
      "from");
}

TEST(FieldFlagsTest, OtherMessagesStay) {
  for (const char* message :
       {"", "no session 'n'", "text: too short", "n", "page_size: 0",
        "sampling.nothing: 1", "session s is at revision 1: no",
        "temperature: 1"}) {
    EXPECT_EQ(NameFlag(Command::kComplete, message), message);
  }
}

}  // namespace
}  // namespace reprise

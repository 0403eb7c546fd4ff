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
  EXPECT_EQ(NameFlag(Command::kPresetsSave, "session_id: x"), "session_id: x");
  EXPECT_EQ(NameFlag(Command::kComplete, "snapshot: x"), "--load: x");
  EXPECT_EQ(NameFlag(Command::kSessionsImport, "snapshot: x"), "snapshot: x");
  EXPECT_EQ(NameFlag(Command::kChat, "snapshot: x"), "snapshot: x");
  EXPECT_EQ(NameFlag(Command::kComplete, "output.snapshot.elements: 9"),
            "--encoding: 9");
  EXPECT_EQ(NameFlag(Command::kSessionsExport, "seal.ttl_ms: 0"),
            "--ttl-ms: 0");
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

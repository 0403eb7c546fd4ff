// What Import takes and what it refuses, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/seal.h"
#include "tests/integration/sessions_fixture.h"
#include "tests/support/sealed_calls.h"

namespace reprise {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

// A server and the keys it seals with, so that tests can seal what no server
// would give out.
class ImportTest : public ::testing::Test {
 protected:
  ImportTest()
      : key_file_(WriteKeys(dir_, "keys", KeyLine("k", 'a'))),
        keys_(*SealKeys::Load(key_file_)),
        server_(Options()) {
    Generate(server_.inference(), SessionRequest("s", "abc d", 20));
    sealed_ = Export(server_.sessions(), "s").bytes;
    opened_ = *OpenSnapshot(*keys_, sealed_, {.tenant = "default", .model = 1});
  }

  ServerOptions Options() {
    ServerOptions options = TestServer::SmallOptions();
    options.seal_keys = key_file_;
    options.max_sessions = 3;
    return options;
  }

  std::string Seal(const SealLabel& label, const std::string& snapshot) {
    return *SealSnapshot(*keys_, label, snapshot);
  }

  void ExpectRefused(const Imported& imported, StatusCode code,
                     const std::string& text) {
    EXPECT_EQ(imported.status.error_code(), code)
        << imported.status.error_message();
    EXPECT_THAT(imported.status.error_message(), HasSubstr(text));
    EXPECT_EQ(CountSessions(), 1);  // "s", as it was
  }
  void ExpectRefused(const std::string& sealed, StatusCode code,
                     const std::string& text) {
    ExpectRefused(Import(server_.sessions(), sealed, "new"), code, text);
  }

  int CountSessions() {
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    EXPECT_TRUE(server_.sessions().List(&context, {}, &page).ok());
    return page.sessions_size();
  }

  TempDir dir_;
  const std::string key_file_;
  const std::unique_ptr<SealKeys> keys_;
  TestServer server_;
  std::string sealed_;
  OpenedSnapshot opened_;
};

TEST_F(ImportTest, TheSessionHasTheIdAndTheTtlThatWereAskedFor) {
  std::vector<v1::SnapshotChunk> chunks = Chunks(sealed_);
  ASSERT_GT(chunks.size(), 3u);
  chunks.front().set_session_id("new");
  chunks.front().set_ttl_ms(60'000);
  const Imported imported = Import(server_.sessions(), chunks);
  ASSERT_TRUE(imported.status.ok()) << imported.status.error_message();
  EXPECT_EQ(imported.session.id(), "new");
  EXPECT_EQ(imported.session.forked_from(), "s");
  EXPECT_EQ(imported.session.expires_unix_ms(),
            imported.session.created_unix_ms() + 60'000);
  SealLabel label = opened_.label;
  label.session = "";
  const Imported drawn =
      Import(server_.sessions(), Seal(label, opened_.snapshot));
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.error_message();
  EXPECT_EQ(drawn.session.id().size(), 32u);
  EXPECT_EQ(drawn.session.forked_from(), "");
}

TEST_F(ImportTest, AnIdThatIsTakenStaysWhatItIs) {
  ExpectRefused(Import(server_.sessions(), sealed_), StatusCode::ALREADY_EXISTS,
                "session s exists already");
  const Completion turn =
      Generate(server_.inference(), SessionRequest("s", "cc", 3));
  EXPECT_EQ(turn.finished.at(0).revision(), 2u);
}

TEST_F(ImportTest, AnImportIsANewSessionThatCountsOn) {
  Generate(server_.inference(), SessionRequest("s", "cc", 3));
  grpc::ClientContext context;
  v1::DeleteSessionRequest request;
  request.set_id("s");
  v1::DeleteSessionResponse deleted;
  ASSERT_TRUE(server_.sessions().Delete(&context, request, &deleted).ok());
  const Imported imported = Import(server_.sessions(), sealed_);
  ASSERT_TRUE(imported.status.ok());
  EXPECT_EQ(imported.session.revision(), 1u);
  const Completion turn =
      Generate(server_.inference(), SessionRequest("s", "cc", 3));
  EXPECT_EQ(turn.started.revision(), 1u);
  EXPECT_EQ(turn.finished.at(0).revision(), 2u);
}

TEST_F(ImportTest, LimitsOfSessionsHold) {
  EXPECT_TRUE(Import(server_.sessions(), sealed_, "a").status.ok());
  EXPECT_TRUE(Import(server_.sessions(), sealed_, "b").status.ok());
  const Imported imported = Import(server_.sessions(), sealed_, "c");
  EXPECT_EQ(imported.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(imported.status.error_message(), HasSubstr("max_sessions is 3"));
  ServerOptions options = Options();
  options.max_tenant_sessions = 1;
  TestServer limited(options);
  EXPECT_TRUE(Import(limited.sessions(), sealed_, "a").status.ok());
  EXPECT_THAT(Import(limited.sessions(), sealed_, "b").status.error_message(),
              HasSubstr("max_tenant_sessions is 1"));
}

TEST_F(ImportTest, AStoreThatFailsTakesNothing) {
  server_.store().FailCall(2, StoreFault::kUnavailable);  // the write
  ExpectRefused(sealed_, StatusCode::UNAVAILABLE, "store: made up");
  EXPECT_TRUE(Import(server_.sessions(), sealed_, "new").status.ok());
}

// ---- Whose, of what, when ---------------------------------------------------

TEST_F(ImportTest, OthersStatesAreRefused) {
  SealLabel label = opened_.label;
  label.tenant = "other";
  ExpectRefused(Seal(label, opened_.snapshot), StatusCode::PERMISSION_DENIED,
                "another tenant");
  label = opened_.label;
  label.model = 2;
  ExpectRefused(Seal(label, opened_.snapshot), StatusCode::FAILED_PRECONDITION,
                "model fingerprint");
  label = opened_.label;
  label.expires_unix_ms = 1;
  ExpectRefused(Seal(label, opened_.snapshot), StatusCode::FAILED_PRECONDITION,
                "expired");
  label = opened_.label;
  label.session = "../s";
  ExpectRefused(Import(server_.sessions(), Seal(label, opened_.snapshot)),
                StatusCode::INVALID_ARGUMENT, "session_id");
  // A snapshot as the store has it, without a seal.
  ExpectRefused(opened_.snapshot, StatusCode::PERMISSION_DENIED, "no seal");
}

TEST_F(ImportTest, WhatIsInAGoodSealIsCheckedAllTheSame) {
  SealLabel label = opened_.label;
  label.revision = 2;
  ExpectRefused(Seal(label, opened_.snapshot), StatusCode::DATA_LOSS,
                "is of revision 1, its seal says 2");
  ExpectRefused(Seal(opened_.label, ""), StatusCode::DATA_LOSS, "snapshot: ");
  for (size_t i = 0; i < opened_.snapshot.size(); i += 7) {
    std::string damaged = opened_.snapshot;
    damaged[i] ^= 1;
    const Imported imported =
        Import(server_.sessions(), Seal(opened_.label, damaged), "new");
    EXPECT_FALSE(imported.status.ok()) << i;
  }
  EXPECT_EQ(CountSessions(), 1);
}

// ---- Damage -----------------------------------------------------------------

TEST_F(ImportTest, NoFlippedByteIsTaken) {
  for (size_t i = 0; i < sealed_.size(); ++i) {
    std::string damaged = sealed_;
    damaged[i] ^= static_cast<char>(1 << i % 8);
    const Imported imported = Import(server_.sessions(), damaged, "new");
    const StatusCode code = imported.status.error_code();
    EXPECT_TRUE(code == StatusCode::DATA_LOSS ||
                code == StatusCode::INVALID_ARGUMENT ||   // of the magic
                code == StatusCode::PERMISSION_DENIED ||  // of the key's id
                code == StatusCode::FAILED_PRECONDITION)  // of the version
        << "byte " << i << ": " << imported.status.error_message();
  }
  EXPECT_EQ(CountSessions(), 1);
}

// Cut, joined, repeated, overwritten: whatever random edits make of a seal, it
// is refused, and the server lives.
TEST_F(ImportTest, NoRandomMutationIsTaken) {
  std::mt19937 random(20260131);
  const auto below = [&random](size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
  };
  for (int round = 0; round < 400; ++round) {
    std::string bytes = sealed_;
    for (size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes[at] = static_cast<char>(random());
          break;
        case 2:
          bytes.insert(at, sealed_, below(sealed_.size()), 1 + below(40));
          break;
        case 3:
          bytes.erase(at, 1 + below(40));
          break;
        default:
          bytes.replace(at, 8, std::string(8, '\xff'));
      }
    }
    if (bytes == sealed_) continue;
    const Imported imported = Import(server_.sessions(), bytes, "new");
    EXPECT_FALSE(imported.status.ok()) << "round " << round;
    EXPECT_NE(imported.status.error_code(), StatusCode::INTERNAL);
  }
  EXPECT_EQ(CountSessions(), 1);
  EXPECT_TRUE(Import(server_.sessions(), sealed_, "new").status.ok());
}

// ---- The stream -------------------------------------------------------------

TEST_F(ImportTest, StreamsThatAreCutOrMixedUpAreRefused) {
  using StreamChunks = std::vector<v1::SnapshotChunk>;
  const StreamChunks whole = Chunks(sealed_);
  const auto refused = [&](const StreamChunks& chunks, StatusCode code,
                           const std::string& text) {
    ExpectRefused(Import(server_.sessions(), chunks), code, text);
  };
  refused({}, StatusCode::INVALID_ARGUMENT, "ended after 0 bytes");
  StreamChunks cut = whole;
  cut.pop_back();
  refused(cut, StatusCode::INVALID_ARGUMENT, "crc32c: is in no chunk");
  StreamChunks first_is_last = whole;
  std::swap(first_is_last.front(), first_is_last.back());
  refused(first_is_last, StatusCode::INVALID_ARGUMENT, "not the last");
  StreamChunks swapped = whole;
  std::swap(swapped[0], swapped[1]);
  refused(swapped, StatusCode::INVALID_ARGUMENT, "do not start with RPSE");
  swapped = whole;  // what is left of a good one
  std::swap(swapped[1], swapped[2]);
  refused(swapped, StatusCode::DATA_LOSS, "are not those that crc32c");
  StreamChunks empty = whole;
  empty[1].clear_data();
  refused(empty, StatusCode::INVALID_ARGUMENT, "data: has 0 bytes");
  refused(Chunks("not what you gave me"), StatusCode::INVALID_ARGUMENT,
          "snapshot: its 20 bytes are no sealed state");
  refused(Chunks(""), StatusCode::INVALID_ARGUMENT, "snapshot: has no bytes");
  // One that was cut or grew before it was sent, and says so.
  const std::string most = sealed_.substr(0, sealed_.size() - 1);
  refused(Chunks(most), StatusCode::DATA_LOSS, "its seal says");
  refused(Chunks(sealed_ + "x"), StatusCode::DATA_LOSS, "its seal says");
  StreamChunks doubled = whole;
  doubled.push_back(whole.back());
  refused(doubled, StatusCode::INVALID_ARGUMENT, "crc32c");
  StreamChunks late_id = whole;
  late_id[1].set_session_id("x");
  refused(late_id, StatusCode::INVALID_ARGUMENT, "session_id");
  StreamChunks path = whole;
  path[0].set_session_id("../x");
  refused(path, StatusCode::INVALID_ARGUMENT, "session_id: ");
  StreamChunks ttl = whole;
  ttl[0].set_ttl_ms(0);
  refused(ttl, StatusCode::INVALID_ARGUMENT, "ttl_ms: 0 is not in");
  StreamChunks wrong = whole;
  wrong.back().set_crc32c(wrong.back().crc32c() ^ 1);
  refused(wrong, StatusCode::DATA_LOSS, "are not those that crc32c");
}

TEST_F(ImportTest, AStreamWithoutEndIsRefusedWhileItComes) {
  grpc::ClientContext context;
  v1::Session session;
  auto writer = server_.sessions().Import(&context, &session);
  v1::SnapshotChunk chunk;
  chunk.set_data(std::string(60'000, 'x'));
  int64_t sent = 0;
  while (writer->Write(chunk) && sent < (int64_t{1} << 30)) sent += 60'000;
  EXPECT_LT(sent, int64_t{1} << 30);
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the most that a session"));
}

}  // namespace
}  // namespace reprise

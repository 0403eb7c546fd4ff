// A whole server on a disk that is really full: commits are refused and say
// why, conversations that need no commit go on, and when there is room again
// everything does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/support/generate_call.h"
#include "tests/support/scrape.h"
#include "tests/support/server_process.h"
#include "tests/support/small_disk.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

class FullDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MountSmallDisk(dir_.path(), "96m")) {
      GTEST_SKIP() << "NOT TESTED: no right to mount a disk that can be full "
                      "(CAP_SYS_ADMIN): "
                   << strerror(errno);
    }
    Start();
  }
  void TearDown() override {
    server_ = nullptr;
    umount(dir_.path().c_str());
  }

  void Start() {
    server_ = nullptr;
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "--model=" REPRISE_SOURCE_DIR "/models/embedded", "--slots=8",
        "--memory-tier=0", "--store=rocksdb:" + dir_.Path("sessions")});
  }
  bool Ready() {
    if (!server_->AwaitReady()) return false;
    stub_ = server_->NewStub();
    return true;
  }

  // Something else takes all that is free.
  void Fill() {
    std::ofstream filler(dir_.Path("filler"), std::ios::binary);
    const std::string piece(64 << 10, 'x');
    while (filler.write(piece.data(), piece.size()).flush()) continue;
  }
  void MakeRoom() { std::filesystem::remove(dir_.Path("filler")); }

  Completion Turn(const std::string& session,
                  v1::CommitPolicy commit = v1::COMMIT_POLICY_ON_FINISH) {
    v1::GenerateRequest request = SessionRequest(session, "And God said,", 8);
    request.set_commit(commit);
    return Generate(*stub_, request);
  }

  double FailedWrites() const {
    return MetricValue(
        ScrapeMetrics(server_->metrics_port()),
        "reprise_snapshot_failures_total{op=\"write\",reason=\"nospace\"}");
  }

  const TempDir dir_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(FullDiskTest, CommitsAreRefusedUntilThereIsRoomAndNothingIsLost) {
  ASSERT_TRUE(Ready());
  ASSERT_TRUE(Turn("resident").status.ok());
  ASSERT_TRUE(Turn("stored").status.ok());
  v1::SuspendSessionRequest suspend;
  suspend.set_id("stored");
  grpc::ClientContext context;
  v1::Session ignored;
  ASSERT_TRUE(
      server_->NewSessionsStub()->Suspend(&context, suspend, &ignored).ok());
  uint64_t revision = 0;
  for (int i = 0; i < 3; ++i) {
    revision = Turn("busy").finished.at(0).revision();
  }

  Fill();
  Completion refused;
  for (int i = 0; i < 1000; ++i) {  // its log may have some blocks left
    refused = Turn("busy");
    if (!refused.status.ok()) break;
    revision = refused.finished.at(0).revision();
  }
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("no space left"));
  EXPECT_GE(FailedWrites(), 1);
  EXPECT_THAT(server_->Log(), HasSubstr("no space left"));
  EXPECT_EQ(Turn("new").status.error_code(), grpc::UNAVAILABLE);

  // What needs no commit is served, from its slot and from the store.
  const Completion resident = Turn("resident", v1::COMMIT_POLICY_NEVER);
  EXPECT_TRUE(resident.status.ok()) << resident.status.error_message();
  EXPECT_EQ(resident.started.resumed_from(), v1::RESUME_SOURCE_SLOT);
  const Completion stored = Turn("stored", v1::COMMIT_POLICY_NEVER);
  EXPECT_TRUE(stored.status.ok()) << stored.status.error_message();
  EXPECT_EQ(stored.started.resumed_from(), v1::RESUME_SOURCE_STORE);
  // But for the session whose commit failed: what became of that is not known.
  const Completion busy = Turn("busy", v1::COMMIT_POLICY_NEVER);
  EXPECT_EQ(busy.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(busy.status.error_message(), HasSubstr("no space left"));
  EXPECT_TRUE(Generate(*stub_, TextRequest("Behold", 4)).status.ok());

  MakeRoom();
  const Completion known = Turn("busy", v1::COMMIT_POLICY_NEVER);
  EXPECT_EQ(known.started.revision(), revision);
  const Completion again = Turn("busy");
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.finished.at(0).revision(), revision + 1);
  EXPECT_EQ(again.token_ids, known.token_ids);
  EXPECT_TRUE(Turn("new").status.ok());

  const Completion expected = Turn("busy", v1::COMMIT_POLICY_NEVER);
  server_->Signal(SIGKILL);
  server_->Wait();
  Start();
  ASSERT_TRUE(Ready());
  const Completion after = Turn("busy", v1::COMMIT_POLICY_NEVER);
  EXPECT_EQ(after.started.revision(), revision + 1);
  EXPECT_EQ(after.token_ids, expected.token_ids);
}

TEST_F(FullDiskTest, AServerThatCannotStartForItSaysSo) {
  ASSERT_TRUE(Ready());
  uint64_t revision = 0;
  for (int i = 0; i < 30; ++i) {
    revision = Turn("s").finished.at(0).revision();
  }
  Fill();
  server_->Signal(SIGKILL);
  server_->Wait();
  Start();
  EXPECT_EQ(server_->Wait(), 1);
  EXPECT_THAT(server_->Log(), HasSubstr("make room on that disk"));
  MakeRoom();
  Start();
  ASSERT_TRUE(Ready());
  EXPECT_EQ(Turn("s", v1::COMMIT_POLICY_NEVER).started.revision(), revision);
}

}  // namespace
}  // namespace reprise

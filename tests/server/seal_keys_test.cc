#include "server/seal_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/support/temp_dir.h"

namespace reprise::seal_keys_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using enum absl::StatusCode;

const std::string kKey =
    "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";

class SealKeysTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_.path() + "/keys"; }
  absl::StatusOr<std::unique_ptr<SealKeys>> Load(const std::string& text,
                                                 mode_t mode = 0600) {
    dir_.Write("keys", text);
    chmod(Path().c_str(), mode);
    return SealKeys::Load(Path());
  }
  void ExpectInvalid(const std::string& text, const std::string& why) {
    const absl::Status status = Load(text).status();
    EXPECT_EQ(status.code(), kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path()));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0011")));
  }

  TempDir dir_;
};

TEST_F(SealKeysTest, ReadsKeysInTheirOrder) {
  const auto keys =
      Load("# keys of the fleet\n\n  new\taes-256-gcm  " + kKey +
           "  # since May\r\nold.1 hmac-sha-256 " + std::string(64, '0'));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ((*keys)->size(), 2u);
  EXPECT_FALSE((*keys)->ephemeral());
  EXPECT_EQ((*keys)->sealing().id, "new");
  EXPECT_EQ((*keys)->sealing().algorithm, SealAlgorithm::kAes256Gcm);
  EXPECT_EQ((*keys)->sealing().secret[1], 0x11);
  EXPECT_EQ((*keys)->sealing().secret[16], 0xff);
  EXPECT_EQ((*keys)->Find("old.1")->algorithm, SealAlgorithm::kHmacSha256);
  EXPECT_EQ((*keys)->Find("old"), nullptr);
}

TEST_F(SealKeysTest, RefusesAFileThatOthersMayUse) {
  for (const mode_t mode : {0640, 0604, 0620, 0610, 0644}) {
    const absl::Status status = Load("k aes-256-gcm " + kKey, mode).status();
    EXPECT_EQ(status.code(), kPermissionDenied) << mode;
    EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600"));
  }
  EXPECT_TRUE(Load("k aes-256-gcm " + kKey, 0400).ok());
  EXPECT_THAT(
      std::string(Load("k aes-256-gcm " + kKey, 0644).status().message()),
      HasSubstr("mode 644"));
}

TEST_F(SealKeysTest, RefusesAFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
  ASSERT_TRUE(Load("k aes-256-gcm " + kKey).ok());
  constexpr uid_t kOther = 12'345;
  ASSERT_EQ(chown(Path().c_str(), kOther, /*group=*/-1), 0);
  const absl::Status status = SealKeys::Load(Path()).status();
  EXPECT_EQ(status.code(), kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(Path() + ": belongs to user 12345"));
  // It is the effective user that counts.
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(seteuid(kOther), 0);
  const absl::Status own = SealKeys::Load(Path()).status();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(own, absl::OkStatus());
}

TEST_F(SealKeysTest, RefusesLinesThatAreNoKeysAndShowsNoKey) {
  ExpectInvalid("", "has no key");
  ExpectInvalid("# nothing\n", "has no key");
  ExpectInvalid("\n" + kKey + "\n", "line 2: the first word is the key's id");
  ExpectInvalid("k/1 aes-256-gcm " + kKey, "line 1: the first word is not an");
  ExpectInvalid(".k aes-256-gcm " + kKey, "without a dot in front");
  ExpectInvalid(std::string(65, 'k') + " aes-256-gcm " + kKey, "1 to 64");
  ExpectInvalid("k " + kKey, "key k: the algorithm is not aes-256-gcm");
  ExpectInvalid("k aes-128-gcm " + kKey, "or hmac-sha-256");
  ExpectInvalid("k aes-256-gcm", "64 hexadecimal digits");
  ExpectInvalid("k aes-256-gcm " + kKey.substr(1), "64 hexadecimal digits");
  ExpectInvalid("k aes-256-gcm " + kKey + "0", "64 hexadecimal digits");
  ExpectInvalid("k aes-256-gcm g" + kKey.substr(1), "64 hexadecimal digits");
  ExpectInvalid("k aes-256-gcm " + kKey + " " + kKey, "words after the key");
  ExpectInvalid("k aes-256-gcm " + kKey + "\nk hmac-sha-256 " + kKey,
                "line 2: key k: that id is taken");
}

TEST_F(SealKeysTest, BoundsWhatItReads) {
  std::string many;
  for (size_t i = 0; i <= kMaxSealKeys; ++i) {
    many += "k" + std::to_string(i) + " aes-256-gcm " + kKey + "\n";
  }
  ExpectInvalid(many, "more than 256 keys");
  ExpectInvalid(std::string(kMaxSealKeyFileBytes + 1, '#'), "65537 bytes");
}

TEST_F(SealKeysTest, NamesAFileThatCannotBeRead) {
  const absl::Status missing = SealKeys::Load(Path()).status();
  EXPECT_EQ(missing.code(), kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("--seal-keys: " + Path()));
  const absl::Status folder = SealKeys::Load(dir_.path()).status();
  EXPECT_EQ(folder.code(), kInvalidArgument);
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EXPECT_EQ(SealKeys::Load(Path()).status().code(), kInvalidArgument);
}

TEST_F(SealKeysTest, AnEphemeralKeyIsItsOwn) {
  const auto one = SealKeys::Ephemeral();
  const auto other = SealKeys::Ephemeral();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_TRUE((*one)->ephemeral());
  EXPECT_NE((*one)->sealing().id, (*other)->sealing().id);
  EXPECT_NE((*one)->sealing().secret, (*other)->sealing().secret);
  // No file can have a key of that id.
  EXPECT_EQ((*one)->sealing().id[0], '.');
  EXPECT_EQ((*one)->Find((*one)->sealing().id), &(*one)->sealing());
}

}  // namespace
}  // namespace reprise::seal_keys_test

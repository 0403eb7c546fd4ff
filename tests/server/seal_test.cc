#include "server/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/escaping.h"
#include "server/seal_cipher.h"
#include "tests/support/temp_dir.h"

namespace reprise::seal_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using enum absl::StatusCode;

const std::string kHexA(64, 'a');
const std::string kHexB(64, 'b');

// Keys from a file with these lines.
std::unique_ptr<SealKeys> KeysOf(const std::string& lines) {
  const TempDir dir;
  dir.Write("keys", lines);
  chmod((dir.path() + "/keys").c_str(), 0600);
  auto keys = SealKeys::Load(dir.path() + "/keys");
  EXPECT_TRUE(keys.ok()) << keys.status();
  return keys.ok() ? *std::move(keys) : nullptr;
}

class SealTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<SealKeys> Keys(const std::string& id = "k",
                                 const std::string& hex = kHexA) {
    return KeysOf(id + " " + GetParam() + " " + hex);
  }

  static SealLabel Label() {
    return {.tenant = "tenant-1",
            .session = "s",
            .model = 0xabc,
            .revision = 7,
            .created_unix_ms = 1000,
            .expires_unix_ms = 5000};
  }
  static SealReader Reader() {
    return {.tenant = "tenant-1", .model = 0xabc, .now_unix_ms = 4999};
  }

  static void ExpectRefused(const SealKeys& keys, std::string_view sealed,
                            const SealReader& reader, absl::StatusCode code,
                            SnapshotFailure failure, const std::string& text) {
    const absl::Status status = OpenSnapshot(keys, sealed, reader).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(SealFailureOf(status), failure) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  const std::string snapshot_ = "the snapshot's bytes" + std::string(100, 'x');
};

INSTANTIATE_TEST_SUITE_P(Algorithms, SealTest,
                         ::testing::Values("aes-256-gcm", "hmac-sha-256"),
                         [](const auto& info) {
                           return info.param[0] == 'a' ? "Gcm" : "Hmac";
                         });

TEST_P(SealTest, GivesBackWhatWasSealed) {
  const auto keys = Keys();
  for (const std::string& bytes : {snapshot_, std::string()}) {
    const auto sealed = SealSnapshot(*keys, Label(), bytes);
    ASSERT_TRUE(sealed.ok()) << sealed.status();
    const auto opened = OpenSnapshot(*keys, *sealed, Reader());
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->snapshot, bytes);
    EXPECT_EQ(opened->label.tenant, "tenant-1");
    EXPECT_EQ(opened->label.session, "s");
    EXPECT_EQ(opened->label.model, 0xabcu);
    EXPECT_EQ(opened->label.revision, 7u);
    EXPECT_EQ(opened->label.created_unix_ms, 1000);
    EXPECT_EQ(opened->label.expires_unix_ms, 5000);
  }
}

TEST_P(SealTest, RefusesEveryFlippedBit) {
  const auto keys = Keys();
  const std::string sealed = *SealSnapshot(*keys, Label(), snapshot_);
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string damaged = sealed;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::Status status = OpenSnapshot(*keys, damaged, Reader()).status();
    const size_t byte = bit / 8;
    // Without its beginning it is no seal; the version has a code of its own;
    // another key's id is no damage.
    absl::StatusCode want = kDataLoss;
    if (byte < 4) want = kInvalidArgument;
    if (byte >= 4 && byte < 8) want = kFailedPrecondition;
    if (byte == 72) want = kPermissionDenied;
    EXPECT_EQ(status.code(), want) << "byte " << byte << ": " << status;
    EXPECT_EQ(SealFailureOf(status).has_value(), byte >= 4) << byte;
  }
}

TEST_P(SealTest, RefusesEveryCutAndEveryExtraByte) {
  const auto keys = Keys();
  const std::string sealed = *SealSnapshot(*keys, Label(), snapshot_);
  for (size_t size = 1; size < sealed.size(); ++size) {
    const std::vector<char> exact(sealed.begin(), sealed.begin() + size);
    ExpectRefused(*keys, {exact.data(), exact.size()}, Reader(), kDataLoss,
                  SnapshotFailure::kTruncated, "snapshot: ");
  }
  ExpectRefused(*keys, sealed + "x", Reader(), kDataLoss,
                SnapshotFailure::kTruncated, "its seal says");
}

TEST_P(SealTest, RefusesLengthsThatTheBytesDoNotBack) {
  const auto keys = Keys();
  const std::string sealed = *SealSnapshot(*keys, Label(), snapshot_);
  for (const size_t at : {size_t{8}, size_t{68}, size_t{73}, size_t{85}}) {
    for (const uint32_t claim : {0u, 129u, 0x7fffffffu, 0xffffffffu}) {
      std::string patched = sealed;
      std::memcpy(patched.data() + at, &claim, sizeof(claim));
      const auto code = OpenSnapshot(*keys, patched, Reader()).status().code();
      EXPECT_TRUE(code == kDataLoss || code == kPermissionDenied)
          << at << " " << claim;
    }
  }
  for (const uint64_t claim : {uint64_t{4} << 30, ~uint64_t{0}}) {
    std::string patched = sealed;
    std::memcpy(patched.data() + 16, &claim, sizeof(claim));
    ExpectRefused(*keys, patched, Reader(), kDataLoss,
                  SnapshotFailure::kTruncated, "its seal says");
  }
}

TEST_P(SealTest, RefusesAnotherKey) {
  const std::string sealed = *SealSnapshot(*Keys(), Label(), snapshot_);
  ExpectRefused(*Keys("other"), sealed, Reader(), kPermissionDenied,
                SnapshotFailure::kSeal, "sealed with key \"k\", which is not");
  ExpectRefused(*Keys("k", kHexB), sealed, Reader(), kDataLoss,
                SnapshotFailure::kSeal, "another key of the same id");
  ExpectRefused(**SealKeys::Ephemeral(), sealed, Reader(), kPermissionDenied,
                SnapshotFailure::kSeal, "without --seal-keys");
}

TEST_P(SealTest, RefusesAKeyOfAnotherAlgorithm) {
  const std::string sealed = *SealSnapshot(*Keys(), Label(), snapshot_);
  const bool gcm = GetParam() == std::string("aes-256-gcm");
  const auto other = KeysOf(std::string("k ") +
                            (gcm ? "hmac-sha-256 " : "aes-256-gcm ") + kHexA);
  ExpectRefused(*other, sealed, Reader(), kDataLoss, SnapshotFailure::kSeal,
                "another algorithm");
}

TEST_P(SealTest, RefusesAnotherTenantAnotherModelAndWhatHasExpired) {
  const auto keys = Keys();
  const std::string sealed = *SealSnapshot(*keys, Label(), snapshot_);
  SealReader reader = Reader();
  reader.now_unix_ms = 8000;
  ExpectRefused(*keys, sealed, reader, kFailedPrecondition,
                SnapshotFailure::kSeal, "expired 3 s ago");
  reader.now_unix_ms = 5000;
  ExpectRefused(*keys, sealed, reader, kFailedPrecondition,
                SnapshotFailure::kSeal, "expired");
  reader.model = 0xabd;
  ExpectRefused(*keys, sealed, reader, kFailedPrecondition,
                SnapshotFailure::kModelMismatch,
                "model fingerprint is 0000000000000abc, must be "
                "0000000000000abd");
  reader.tenant = "tenant-2";
  const absl::Status status = OpenSnapshot(*keys, sealed, reader).status();
  EXPECT_EQ(status.code(), kPermissionDenied);
  // Whose it is stays between them.
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("tenant-1")));
}

TEST_P(SealTest, AnExpiryOfZeroIsNone) {
  const auto keys = Keys();
  SealLabel label = Label();
  label.expires_unix_ms = 0;
  const std::string sealed = *SealSnapshot(*keys, label, snapshot_);
  SealReader reader = Reader();
  reader.now_unix_ms = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(OpenSnapshot(*keys, sealed, reader).ok());
}

// The way of a new key through a fleet: everyone can open it before anyone
// seals with it.
TEST_P(SealTest, KeysAreChangedWithoutAnInterruption) {
  const std::string old_line = "old hmac-sha-256 " + kHexA + "\n";
  const std::string new_line =
      std::string("new ") + GetParam() + " " + kHexB + "\n";
  const auto before = KeysOf(old_line);
  const auto both = KeysOf(old_line + new_line);
  const auto switched = KeysOf(new_line + old_line);
  const auto after = KeysOf(new_line);
  const std::string by_old = *SealSnapshot(*both, Label(), snapshot_);
  EXPECT_TRUE(OpenSnapshot(*before, by_old, Reader()).ok());
  const std::string by_new = *SealSnapshot(*switched, Label(), snapshot_);
  EXPECT_TRUE(OpenSnapshot(*both, by_new, Reader()).ok());
  EXPECT_TRUE(OpenSnapshot(*switched, by_old, Reader()).ok());
  EXPECT_TRUE(OpenSnapshot(*after, by_new, Reader()).ok());
  EXPECT_EQ(OpenSnapshot(*after, by_old, Reader()).status().code(),
            kPermissionDenied);
}

TEST(SealFormatTest, OnlyGcmHidesTheSnapshotAndNeverTwiceAlike) {
  const std::string secret = "a secret conversation";
  const auto gcm = KeysOf("k aes-256-gcm " + kHexA);
  const auto hmac = KeysOf("k hmac-sha-256 " + kHexA);
  const std::string first = *SealSnapshot(*gcm, {}, secret);
  EXPECT_THAT(first, Not(HasSubstr(secret)));
  EXPECT_NE(first, *SealSnapshot(*gcm, {}, secret));  // the nonce
  EXPECT_THAT(*SealSnapshot(*hmac, {}, secret), HasSubstr(secret));
  EXPECT_EQ(*SealSnapshot(*hmac, {}, secret), *SealSnapshot(*hmac, {}, secret));
}

// Where the client looks for it (client/state_file.cc).
TEST(SealFormatTest, AKeyThatWasDrawnIsToldByItsIdAtAFixedPlace) {
  const auto keys = SealKeys::Ephemeral();
  ASSERT_TRUE(keys.ok()) << keys.status();
  SealLabel label;
  label.tenant = "t";
  const auto sealed = SealSnapshot(**keys, label, "bytes");
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  EXPECT_EQ(sealed->substr(0, 8), std::string("RPSE\1\0\0\0", 8));
  EXPECT_EQ(sealed->substr(72, 12), ".until-exit-");
}

TEST(SealFormatTest, ASnapshotWithoutASealIsToldApart) {
  const auto keys = KeysOf("k hmac-sha-256 " + kHexA);
  const absl::Status bare =
      OpenSnapshot(*keys, "RPRS" + std::string(200, '\0'), {}).status();
  EXPECT_EQ(bare.code(), kPermissionDenied);
  EXPECT_THAT(std::string(bare.message()), HasSubstr("has no seal"));
  const absl::Status other =
      OpenSnapshot(*keys, "GIF89a" + std::string(200, '\0'), {}).status();
  EXPECT_EQ(other.code(), kInvalidArgument);
  EXPECT_THAT(std::string(other.message()), HasSubstr("start with RPSE"));
  // However little there is of it.
  EXPECT_EQ(OpenSnapshot(*keys, "G", {}).status().code(), kInvalidArgument);
  EXPECT_EQ(OpenSnapshot(*keys, "", {}).status().code(), kInvalidArgument);
  EXPECT_EQ(OpenSnapshot(*keys, "RP", {}).status().code(), kDataLoss);
}

TEST(SealFormatTest, OtherErrorsHaveNoFailure) {
  EXPECT_FALSE(SealFailureOf(absl::DataLossError("x")).has_value());
  EXPECT_FALSE(SealFailureOf(absl::OkStatus()).has_value());
}

// ---- What others computed ---------------------------------------------------

std::string ReadSeal(const std::string& name) {
  std::ifstream file(REPRISE_TESTDATA "/seals/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// make_seals.py beside them wrote these without OpenSSL.
TEST(SealGoldenTest, Version1) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(255 - i);
  }
  const auto keys =
      KeysOf("gcm-key aes-256-gcm " + absl::BytesToHexString(rising) +
             "\nhmac-key hmac-sha-256 " + absl::BytesToHexString(falling));
  std::string payload = "What is sealed is no business of the seal's: ";
  for (int i = 0; i < 40; ++i) payload += static_cast<char>(i);
  for (const char* name : {"v1_gcm.rpse", "v1_hmac.rpse"}) {
    const auto opened = OpenSnapshot(*keys, ReadSeal(name),
                                     {.tenant = "tenant-1",
                                      .model = 0x1122334455667788,
                                      .now_unix_ms = 1'700'000'000'000});
    ASSERT_TRUE(opened.ok()) << name << opened.status();
    EXPECT_EQ(opened->snapshot, payload);
    EXPECT_EQ(opened->label.session, "session-1");
    EXPECT_EQ(opened->label.revision, 7u);
    EXPECT_EQ(opened->label.created_unix_ms, 1'700'000'000'000);
    EXPECT_EQ(opened->label.expires_unix_ms, 1'700'000'060'000);
    // HMAC is the same each time, so it can be compared whole.
    if (name != std::string("v1_hmac.rpse")) continue;
    const auto hmac =
        KeysOf("hmac-key hmac-sha-256 " + absl::BytesToHexString(falling));
    EXPECT_EQ(*SealSnapshot(*hmac, opened->label, payload), ReadSeal(name));
  }
}

std::string Bytes(const char* hex) { return absl::HexStringToBytes(hex); }

// Test case 16 of "The Galois/Counter Mode of Operation" (McGrew and Viega).
TEST(SealCipherTest, GcmIsThatOfItsAuthors) {
  SealSecret secret;
  const std::string key =
      Bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  std::copy(key.begin(), key.end(), secret.begin());
  SealNonce nonce;
  const std::string iv = Bytes("cafebabefacedbaddecaf888");
  std::copy(iv.begin(), iv.end(), nonce.begin());
  const std::string header = Bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  std::string bytes =
      header +
      Bytes(
          "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
          "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  ASSERT_TRUE(SealInPlace(SealAlgorithm::kAes256Gcm, secret, nonce,
                          header.size(), bytes)
                  .ok());
  EXPECT_EQ(absl::BytesToHexString(bytes.substr(header.size())),
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
            "76fc6ece0f4e1768cddf8853bb2d551b");
}

// RFC 4231, test case 1; HMAC itself pads the key with zeros.
TEST(SealCipherTest, HmacIsThatOfTheRfc) {
  SealSecret secret{};
  std::fill_n(secret.begin(), 20, 0x0b);
  std::string bytes = "Hi There";
  ASSERT_TRUE(SealInPlace(SealAlgorithm::kHmacSha256, secret, {},
                          /*header_bytes=*/3, bytes)
                  .ok());
  EXPECT_EQ(absl::BytesToHexString(bytes.substr(8)),
            "b0344c61d8db38535ca8afceaf0bf12b"
            "881dc200c9833da726e9376c2e32cff7");
}

TEST(SealCipherTest, LongPayloadsAreSealedInPieces) {
  SealSecret secret{};
  const std::string long_payload(40 << 20, 'x');
  std::string bytes = "head" + long_payload;
  ASSERT_TRUE(
      SealInPlace(SealAlgorithm::kAes256Gcm, secret, {}, 4, bytes).ok());
  const auto opened =
      OpenSealed(SealAlgorithm::kAes256Gcm, secret, {}, 4, bytes);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(*opened == long_payload);
}

}  // namespace
}  // namespace reprise::seal_test

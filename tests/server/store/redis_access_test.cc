// How the Redis store gets in: passwords, users with few rights, TLS, clusters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/server/store/redis_fixture.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using enum absl::StatusCode;

// Everything that a server does with a store.
void ExpectWorks(const std::string& uri) {
  const auto store = OpenGood(uri);
  ASSERT_NE(store, nullptr);
  StoredSession session;
  session.revision = 1;
  session.expires_unix_ms = 10;
  ASSERT_TRUE(store->Put(kKey, std::nullopt, session, "one", {}).ok());
  session.revision = 2;
  const absl::Status put =
      store
          ->Put(kKey, 1, session, std::string(300'000, '2'),
                {.checkpoint_bytes = 1000, .outcome = "said"})
          .status();
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_TRUE(store->PutEntry(kKey, 2, session).ok());
  EXPECT_EQ(StateOf(*store, kKey), std::string(300'000, '2'));
  EXPECT_EQ(*store->GetSnapshot(kKey, 1), "one");
  EXPECT_EQ(*store->GetOutcome(kKey, 2), "said");
  EXPECT_EQ(store->List("t", "", 10)->size(), 1u);
  EXPECT_EQ(store->ListExpired(10, 10)->size(), 1u);
  EXPECT_EQ(store->GetUsage()->sessions, 1u);
  EXPECT_EQ(store->GetTenantUsage("t")->sessions, 1u);
  session.revision = 3;
  EXPECT_TRUE(store->Put(kKey, 2, session, "three", {}).ok());
  EXPECT_TRUE(store->Delete(kKey).ok());
}

std::string RefusalOf(const std::string& uri) {
  const absl::Status status = OpenStore(uri).status();
  EXPECT_EQ(status.code(), kUnavailable) << status;
  return std::string(status.message());
}

TEST(RedisAccessTest, APasswordIsNeededIfThereIsOne) {
  const RedisServer server({"--requirepass", "s3cr/t"});
  const std::string at = "@" + server.address();
  ExpectWorks("redis://:s3cr%2ft" + at);
  ExpectWorks("redis://default:s3cr%2ft" + at);
  const TempDir dir;
  ExpectWorks(server.Uri("password_file=" + dir.Write("pass", "s3cr/t\n")));
  EXPECT_THAT(RefusalOf(server.Uri()), HasSubstr("it wants a password"));
  EXPECT_THAT(RefusalOf("redis://:wrong" + at),
              AllOf(HasSubstr("user or password are wrong"),
                    HasSubstr(server.address()), Not(HasSubstr("s3cr"))));
}

TEST(RedisAccessTest, APasswordThatNobodyWantsIsRefused) {
  const RedisServer server;
  EXPECT_THAT(RefusalOf("redis://me:secret@" + server.address()),
              HasSubstr("user or password are wrong"));
}

// As docs/stores.md lists them.
TEST(RedisAccessTest, TheDocumentedRightsAreEnough) {
  const RedisServer server;
  RedisTalk talk(server.Uri());
  talk.Say({"ACL",          "SETUSER",        "reprise", "on",       ">pass",
            "~{reprise}:*", "+hello",         "+select", "+get",     "+set",
            "+hget",        "+hmget",         "+hset",   "+hdel",    "+hkeys",
            "+hstrlen",     "+hincrby",       "+del",    "+zadd",    "+zrem",
            "+zrangebylex", "+zrangebyscore", "+eval",   "+evalsha", "+info",
            "+wait"});
  ExpectWorks("redis://reprise:pass@" + server.address());
  talk.Say({"ACL", "SETUSER", "reprise", "-info"});
  ExpectWorks("redis://reprise:pass@" + server.address());
  talk.Say({"ACL", "SETUSER", "reprise", "-evalsha"});
  const auto store = OpenGood("redis://reprise:pass@" + server.address());
  const absl::Status put = PutState(*store, kKey, std::nullopt, 1, "one");
  EXPECT_EQ(put.code(), kUnavailable);
  EXPECT_THAT(std::string(put.message()),
              AllOf(HasSubstr("NOPERM"), HasSubstr("docs/stores.md")));
}

TEST(RedisAccessTest, AMissingServerIsNamed) {
  const int port = FreePort();
  EXPECT_THAT(RefusalOf("redis://127.0.0.1:" + std::to_string(port)),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)),
                    HasSubstr("Connection refused")));
  EXPECT_THAT(RefusalOf("redis+unix:/nowhere/socket"),
              AllOf(HasSubstr("/nowhere/socket"), HasSubstr("No such file")));
  EXPECT_THAT(RefusalOf("redis://host.invalid"),
              HasSubstr("cannot look the host up"));
}

TEST(RedisAccessTest, ADatabaseThatIsNotThereIsNamed) {
  const RedisServer server;
  EXPECT_THAT(RefusalOf(server.Uri("database=77")), HasSubstr("database 77"));
}

// ---- TLS --------------------------------------------------------------------

class RedisTlsTest : public ::testing::Test {
 protected:
  // An authority and, signed by it, certificates for 127.0.0.1 and for a name.
  void SetUp() override {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-keyout ca.key -out ca.crt "
        "-subj /CN=authority -days 2");
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-keyout other.key -out other.crt "
        "-subj /CN=other -days 2");
    MakeCertificate("ip", "IP:127.0.0.1");
    MakeCertificate("name", "DNS:redis.example");
  }

  void Run(const std::string& arguments) {
    const std::string command =
        "cd " + dir_.path() + " && openssl " + arguments + " 2>openssl.log";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  void MakeCertificate(const std::string& name, const std::string& for_what) {
    Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout " +
        name + ".key -out " + name + ".csr -subj /CN=server");
    dir_.Write(name + ".ext", "subjectAltName=" + for_what + "\n");
    Run("x509 -req -in " + name + ".csr -CA ca.crt -CAkey ca.key " +
        "-CAcreateserial -days 2 -extfile " + name + ".ext -out " + name +
        ".crt");
  }

  std::vector<std::string> Arguments(const std::string& certificate,
                                     int tls_port,
                                     const std::string& clients = "no") {
    return {"--tls-port",         std::to_string(tls_port),
            "--tls-cert-file",    dir_.Path(certificate + ".crt"),
            "--tls-key-file",     dir_.Path(certificate + ".key"),
            "--tls-ca-cert-file", dir_.Path("ca.crt"),
            "--tls-auth-clients", clients};
  }

  static std::string Uri(int port, const std::string& parameters) {
    return "rediss://127.0.0.1:" + std::to_string(port) + "?" + parameters;
  }

  const TempDir dir_;
};

TEST_F(RedisTlsTest, ATrustedServerIsSpokenTo) {
  const int port = FreePort();
  const RedisServer server(Arguments("ip", port));
  ExpectWorks(Uri(port, "ca=" + dir_.Path("ca.crt")));
  const auto store = OpenGood(Uri(port, "ca=" + dir_.Path("ca.crt")));
  const std::string large(5 << 20, 'x');
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, large).ok());
  EXPECT_TRUE(StateOf(*store, kKey) == large);
}

TEST_F(RedisTlsTest, AnUntrustedServerIsRefused) {
  const int port = FreePort();
  const RedisServer server(Arguments("ip", port));
  EXPECT_THAT(RefusalOf(Uri(port, "ca=" + dir_.Path("other.crt"))),
              AllOf(HasSubstr("is not accepted"), HasSubstr("ca=FILE")));
  // The system's authorities do not know it.
  EXPECT_THAT(RefusalOf(Uri(port, "")), HasSubstr("is not accepted"));
}

TEST_F(RedisTlsTest, ACertificateForAnotherNameIsRefused) {
  const int port = FreePort();
  const RedisServer server(Arguments("name", port));
  const std::string ca = "ca=" + dir_.Path("ca.crt");
  EXPECT_THAT(RefusalOf(Uri(port, ca)), HasSubstr("IP address mismatch"));
  EXPECT_THAT(RefusalOf(Uri(port, ca + "&server_name=redis.other")),
              HasSubstr("ostname mismatch"));
  ExpectWorks(Uri(port, ca + "&server_name=redis.example"));
}

TEST_F(RedisTlsTest, TheServerMayAskWhoWeAre) {
  const int port = FreePort();
  const RedisServer server(Arguments("ip", port, /*clients=*/"yes"));
  const std::string ca = "ca=" + dir_.Path("ca.crt");
  // In TLS 1.3 the refusal comes when the handshake is over, as an alert or an
  // end.
  EXPECT_THAT(RefusalOf(Uri(port, ca)), HasSubstr(std::to_string(port)));
  ExpectWorks(Uri(port, ca + "&cert=" + dir_.Path("name.crt") +
                            "&key=" + dir_.Path("name.key")));
}

TEST_F(RedisTlsTest, FilesThatCannotBeUsedAreNamed) {
  for (const std::string& parameters :
       {"ca=" + dir_.Path("none"), "ca=" + dir_.Path("ca.key"),
        "cert=" + dir_.Path("none") + "&key=" + dir_.Path("ca.key"),
        "cert=" + dir_.Path("ca.crt") + "&key=" + dir_.Path("other.key")}) {
    const absl::Status status = OpenStore(Uri(1, parameters)).status();
    EXPECT_EQ(status.code(), kInvalidArgument) << parameters;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(dir_.path()), HasSubstr("cannot be used")));
  }
}

TEST_F(RedisTlsTest, TlsAndPlainDoNotMix) {
  const int port = FreePort();
  const RedisServer server(Arguments("ip", port));
  const std::string ca = "&ca=" + dir_.Path("ca.crt");
  EXPECT_THAT(RefusalOf(Uri(server.port(), "connect_timeout=2000" + ca)),
              HasSubstr(server.address()));
  RefusalOf("redis://127.0.0.1:" + std::to_string(port) +
            "?connect_timeout=500");
}

// ---- Clusters ---------------------------------------------------------------

TEST(RedisClusterTest, TheNodeThatHasTheKeysIsFound) {
  const std::vector<std::string> cluster = {
      "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"};
  RedisServer first(cluster);
  RedisServer second(cluster);
  RedisTalk talk_first(first.Uri());
  RedisTalk talk_second(second.Uri());
  talk_first.Say({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  talk_first.Say(
      {"CLUSTER", "MEET", "127.0.0.1", std::to_string(second.port())});
  const auto knows = [](RedisTalk& talk) {
    return talk.Say({"CLUSTER", "INFO"}).bytes.find("cluster_state:ok") !=
               std::string::npos &&
           talk.Say({"CLUSTER", "SLOTS"}).list.size() == 1;
  };
  ASSERT_TRUE(
      Eventually([&] { return knows(talk_first) && knows(talk_second); }));
  ExpectWorks(second.Uri());
  ExpectWorks(first.Uri());
  const auto store = OpenGood(second.Uri());
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  EXPECT_EQ(StateOf(*OpenGood(first.Uri()), kKey), "one");
}

}  // namespace
}  // namespace reprise

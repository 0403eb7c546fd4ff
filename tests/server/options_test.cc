#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "server/option_values.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Environment Fake(const Variables& variables) {
  return [variables](const std::string& name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

std::variant<ServerOptions, ExitRequest> Parse(
    const std::vector<std::string>& args, const Variables& variables = {}) {
  return ParseCommandLine(args, Fake(variables));
}

ServerOptions ParseOk(const std::vector<std::string>& args,
                      const Variables& variables = {}) {
  auto parsed = Parse(args, variables);
  if (const auto* exit = std::get_if<ExitRequest>(&parsed)) {
    ADD_FAILURE() << exit->text;
    return {};
  }
  return std::get<ServerOptions>(parsed);
}

// The message of a command line that is wrong.
std::string ParseWrong(const std::vector<std::string>& args,
                       const Variables& variables = {}) {
  auto parsed = Parse(args, variables);
  const auto* exit = std::get_if<ExitRequest>(&parsed);
  if (exit == nullptr) return "it was accepted";
  EXPECT_EQ(exit->code, 2);
  return exit->text;
}

// A file that is gone at the end of the test.
class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : path_(::testing::TempDir() + "options." + std::to_string(getpid()) +
              ".toml") {
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(OptionsTest, PackedWeightsAreKeptBesideTheModelNowhereOrInAFolder) {
  EXPECT_EQ(ParseOk({}).packed_cache, "auto");
  EXPECT_EQ(ParseOk({"--packed-cache=off"}).packed_cache, "off");
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(ParseOk({"--packed-cache=" + folder}).packed_cache, folder);
  EXPECT_EQ(ParseOk({}, {{"REPRISE_PACKED_CACHE", "off"}}).packed_cache, "off");
}

TEST(OptionsTest, FixedNamesOfScriptsAreUnderstood) {
  const ServerOptions o =
      ParseOk({"--model=/m", "--listen=0.0.0.0:1", "--metrics-listen=[::1]:0",
               "--store=memory:", "--weights=bf16", "--threads=3"});
  EXPECT_EQ(o.model_dir, "/m");
  EXPECT_EQ(o.listen, "0.0.0.0:1");
  EXPECT_EQ(o.metrics_listen, "[::1]:0");
  EXPECT_EQ(o.store_uri, "memory:");
  EXPECT_EQ(o.weights, WeightType::kBf16);
  EXPECT_EQ(o.threads, 3);
}

TEST(OptionsTest, NothingGivenMeansTheDefaults) {
  const ServerOptions o = ParseOk({});
  EXPECT_EQ(o.listen, "127.0.0.1:8980");
  EXPECT_EQ(o.metrics_listen, "127.0.0.1:8981");
  EXPECT_EQ(o.weights, WeightType::kAuto);
  EXPECT_EQ(o.max_running, 64);
  EXPECT_EQ(o.log_level, LogLevel::kInfo);
}

TEST(OptionsTest, TheContextIsTheModelsUnlessItIsGiven) {
  EXPECT_EQ(ParseOk({}).max_context, 0);
  EXPECT_EQ(ParseOk({"--max-context=131072"}).max_context, 131072);
  EXPECT_EQ(ParseOk({}, {{"REPRISE_MAX_CONTEXT", "5"}}).max_context, 5);
}

TEST(OptionsTest, DurabilityIsTheStoresOwnUnlessItIsGiven) {
  EXPECT_EQ(ParseOk({}).durability, std::nullopt);
  EXPECT_EQ(ParseOk({"--durability=fsync"}).durability, Durability::kFsync);
  EXPECT_EQ(ParseOk({"--durability=async"}).durability, Durability::kAsync);
  EXPECT_EQ(ParseOk({}, {{"REPRISE_DURABILITY", "none"}}).durability,
            Durability::kNone);
}

TEST(OptionsTest, ValueMayFollowAfterABlank) {
  EXPECT_EQ(ParseOk({"--threads", "2", "--log-format", "json"}).log_format,
            LogFormat::kJson);
}

TEST(OptionsTest, UnitsOfSizesAndTimes) {
  const ServerOptions o = ParseOk(
      {"--memory-tier=3MiB", "--max-request-bytes=64K", "--idle-timeout=2h",
       "--drain-timeout=1500ms", "--queue-timeout=30"});
  EXPECT_EQ(o.memory_tier_bytes, 3 * 1024 * 1024);
  EXPECT_EQ(o.max_request_bytes, 65536);
  EXPECT_EQ(o.idle_timeout_ms, 7'200'000);
  EXPECT_EQ(o.drain_timeout_ms, 1500);
  EXPECT_EQ(o.queue_timeout_ms, 30'000);
}

TEST(OptionsTest, CommandLineWinsOverEnvironmentAndThatOverTheFile) {
  const TempFile file("max-running = 1\nmax-queued = 1\nmax-sessions = 1\n");
  const Variables variables = {{"REPRISE_MAX_RUNNING", "2"},
                               {"REPRISE_MAX_QUEUED", "2"}};
  const ServerOptions o =
      ParseOk({"--config=" + file.path(), "--max-running=3"}, variables);
  EXPECT_EQ(o.max_running, 3);
  EXPECT_EQ(o.max_queued, 2);
  EXPECT_EQ(o.max_sessions, 1);
}

TEST(OptionsTest, FileMayBeNamedByTheEnvironment) {
  const TempFile file("idle-timeout = \"5s\"\nlog-level = \"debug\"\n");
  const ServerOptions o = ParseOk({}, {{"REPRISE_CONFIG", file.path()}});
  EXPECT_EQ(o.idle_timeout_ms, 5000);
  EXPECT_EQ(o.log_level, LogLevel::kDebug);
}

TEST(OptionsTest, EmptyVariableIsNotSet) {
  EXPECT_EQ(ParseOk({}, {{"REPRISE_THREADS", ""}}).threads, 0);
}

TEST(OptionsTest, LastOfTwoEqualFlagsCounts) {
  EXPECT_EQ(ParseOk({"--threads=1", "--threads=2"}).threads, 2);
}

TEST(OptionsTest, FileWithAnUnknownNameIsRefusedByName) {
  const TempFile file("max-runing = 1\n");
  EXPECT_THAT(ParseWrong({"--config=" + file.path()}), HasSubstr("max-runing"));
}

TEST(OptionsTest, MissingFileIsRefusedByName) {
  EXPECT_THAT(ParseWrong({"--config=/no/such/file.toml"}),
              AllOf(HasSubstr("--config: "), HasSubstr("/no/such/file.toml"),
                    HasSubstr("No such file")));
}

TEST(OptionsTest, OnlyASmallRegularFileIsRead) {
  for (const std::string path : {"/dev/zero", "/dev/null", "/tmp"}) {
    EXPECT_THAT(ParseWrong({"--config=" + path}),
                AllOf(HasSubstr("--config: "), HasSubstr(path),
                      HasSubstr("not a regular file")));
  }
  const std::string fifo =
      ::testing::TempDir() + "options.fifo." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(ParseWrong({"--config=" + fifo}),
              HasSubstr("not a regular file"));
  std::filesystem::remove(fifo);
  const TempFile longest(std::string(1 << 20, '#'));
  EXPECT_EQ(ParseOk({"--config=" + longest.path()}).max_running, 64);
}

TEST(OptionsTest, FileThatIsTooLongIsRefusedWithTheLimit) {
  const TempFile file(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(ParseWrong({"--config=" + file.path()}),
              AllOf(HasSubstr(file.path()), HasSubstr("1048576 bytes")));
}

TEST(OptionsTest, WrongLineOfTheFileIsNamed) {
  for (const std::string line :
       {"max-runing = 1", "[section]", "max-running", "max-running =", "=",
        "store = \"rocksdb:/a", "store = \"a#b\"", "listen = [::1]:0",
        "config = \"x\"", "help = 1", "max-running = # 5", "store = \"\""}) {
    const TempFile file("# first\n\n" + line + "\nmax-queued = 1\n");
    EXPECT_THAT(ParseWrong({"--config=" + file.path()}),
                AllOf(HasSubstr("--config: "), HasSubstr(file.path() + ":3: ")))
        << line;
  }
}

TEST(OptionsTest, OptionThatTheFileSetsTwiceIsNamed) {
  const TempFile file("threads = 1\nmax-queued = 1\n\nthreads = 2\n");
  EXPECT_THAT(ParseWrong({"--config=" + file.path()}),
              HasSubstr(file.path() +
                        ":4: threads is set a second time, after line 1"));
}

TEST(OptionsTest, TimeOutsideItsRangeIsNotTaughtHowToWriteTimes) {
  EXPECT_THAT(ParseWrong({"--idle-timeout=500ms"}),
              HasSubstr("--idle-timeout: '500ms' is not within 1s to 365d\n"));
  EXPECT_THAT(ParseWrong({"--idle-timeout=soon"}),
              HasSubstr("'soon' is not a time from 1s to 365d (as in 30s, "));
}

TEST(OptionsTest, FileMayHaveCommentsQuotesAndBlanks) {
  const TempFile file(
      "; one\r\n  # two\n\n\tmax-running=3 # three\r\n"
      "listen = \"[::1]:0\"\nstore = 'memory:'");
  const ServerOptions o = ParseOk({"--config", file.path()});
  EXPECT_EQ(o.max_running, 3);
  EXPECT_EQ(o.listen, "[::1]:0");
  EXPECT_EQ(o.store_uri, "memory:");
}

TEST(OptionsTest, FlagWithoutAValueDoesNotEatTheNext) {
  EXPECT_THAT(ParseWrong({"--threads=", "--log-level=error"}),
              HasSubstr("--threads: there is nothing behind the ="));
  EXPECT_THAT(ParseWrong({"--model", "--threads=1"}),
              HasSubstr("--model: the value is missing"));
  EXPECT_THAT(ParseWrong({"--config="}), HasSubstr("--config: "));
  EXPECT_THAT(ParseWrong({"--threads"}), HasSubstr("--threads: "));
}

struct WrongCase {
  const char* argument;
  const char* value;  // in the message, as given
  const char* range;
};

class WrongValueTest : public ::testing::TestWithParam<WrongCase> {};

TEST_P(WrongValueTest, MessageNamesFlagValueAndRange) {
  const std::string argument = GetParam().argument;
  const std::string flag = argument.substr(0, argument.find('='));
  EXPECT_THAT(ParseWrong({argument}),
              AllOf(HasSubstr(flag), HasSubstr(GetParam().value),
                    HasSubstr(GetParam().range)));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongValueTest,
    ::testing::Values(
        WrongCase{"--threads=-1", "'-1'", "0 to 1024"},
        WrongCase{"--threads=two", "'two'", "0 to 1024"},
        WrongCase{"--threads=1.5", "'1.5'", "0 to 1024"},
        WrongCase{"--threads=99999999999999999999", "'99999999999999999999'",
                  "0 to 1024"},
        WrongCase{"--weights=int4", "'int4'", "auto|f32|bf16|int8"},
        WrongCase{"--durability=maybe", "'maybe'", "fsync|async|none"},
        WrongCase{"--packed-cache=/no/such", "'/no/such'",
                  "neither auto nor off nor a folder"},
        WrongCase{"--listen=8980", "'8980'", "HOST:PORT"},
        WrongCase{"--listen=:8980", "':8980'", "HOST:PORT"},
        WrongCase{"--listen=localhost:70000", "'localhost:70000'", "65535"},
        WrongCase{"--listen=::1:8980", "'::1:8980'", "brackets"},
        WrongCase{"--metrics-listen=host:", "'host:'", "HOST:PORT"},
        WrongCase{"--tenant=../x", "'../x'", "1 to 128"},
        WrongCase{"--max-running=0", "'0'", "1 to 4096"},
        WrongCase{"--max-context=-1", "'-1'", "0 to 16777216"},
        WrongCase{"--max-context=16777217", "'16777217'", "0 to 16777216"},
        WrongCase{"--max-queued=0", "'0'", "1 to 1000000"},
        WrongCase{"--prefill-rows=100", "'100'", "a multiple of 64"},
        WrongCase{"--max-request-bytes=1", "'1'", "1KiB to 1GiB"},
        WrongCase{"--memory-tier=1XB", "'1XB'", "0 to 64TiB"},
        WrongCase{"--idle-timeout=5 minutes", "'5 minutes'", "1s to"},
        WrongCase{"--idle-timeout=0", "'0'", "1s to"},
        WrongCase{"--log-level=loud", "'loud'", "debug|info|warning|error"},
        WrongCase{"--max-queued-tokens=5", "5", "--max-prompt-tokens"}));

TEST(OptionsTest, UnknownFlagAndStrayWordAreRefused) {
  EXPECT_THAT(ParseWrong({"--modle=x"}), HasSubstr("--modle"));
  EXPECT_THAT(ParseWrong({"serve"}), HasSubstr("serve"));
}

TEST(OptionsTest, WrongVariableIsRefusedByItsFlag) {
  EXPECT_THAT(ParseWrong({}, {{"REPRISE_THREADS", "x"}}),
              AllOf(HasSubstr("--threads"), HasSubstr("'x'")));
}

TEST(OptionsTest, WhatSessionsMayTakeIsSet) {
  const ServerOptions none = ParseOk({});
  EXPECT_EQ(none.checkpoint_bytes, 64 << 20);
  EXPECT_EQ(none.prefix_cache_bytes, 256 << 20);
  EXPECT_EQ(none.max_tenant_sessions, 0);
  EXPECT_EQ(none.max_tenant_bytes, 0);
  const ServerOptions o =
      ParseOk({"--checkpoint-bytes=0", "--prefix-cache=3KiB",
               "--max-tenant-sessions=7", "--max-tenant-bytes=2GiB"});
  EXPECT_EQ(o.checkpoint_bytes, 0);
  EXPECT_EQ(o.prefix_cache_bytes, 3 << 10);
  EXPECT_EQ(o.max_tenant_sessions, 7);
  EXPECT_EQ(o.max_tenant_bytes, int64_t{2} << 30);
  EXPECT_THAT(ParseWrong({"--checkpoint-bytes=-1"}),
              AllOf(HasSubstr("--checkpoint-bytes"), HasSubstr("'-1'")));
}

TEST(OptionsTest, WhatClientsMayHoldIsSet) {
  const ServerOptions none = ParseOk({});
  EXPECT_EQ(none.seal_keys, "");
  EXPECT_EQ(none.seal_ttl_ms, 0);
  EXPECT_EQ(none.sealed_memory_bytes, 256 << 20);
  const ServerOptions o = ParseOk({"--seal-keys=/etc/reprise/keys",
                                   "--seal-ttl=24h", "--sealed-memory=1GiB"});
  EXPECT_EQ(o.seal_keys, "/etc/reprise/keys");
  EXPECT_EQ(o.seal_ttl_ms, 24 * 3'600'000);
  EXPECT_EQ(o.sealed_memory_bytes, 1 << 30);
  EXPECT_THAT(ParseWrong({"--sealed-memory=1KiB"}),
              HasSubstr("--sealed-memory"));
}

TEST(OptionsTest, HelpShowsDefaultsGroupsAndAnExample) {
  const auto parsed = Parse({"--help"});
  const auto* exit = std::get_if<ExitRequest>(&parsed);
  ASSERT_NE(exit, nullptr);
  EXPECT_EQ(exit->code, 0);
  for (const char* part :
       {"--model", "--listen", "--metrics-listen", "--store", "--weights",
        "--threads", "127.0.0.1:8980", "[10m]", "[1GiB]", "Example",
        "REPRISE_MAX_RUNNING", "Limits of one request", "--max-context",
        "at most 32768 [0]", "fsync|async|none",
        "fsync: on the disk; nothing is lost", "within\n", "100ms; the end of",
        "10s; any end but a drain"}) {
    EXPECT_THAT(exit->text, HasSubstr(part));
  }
}

TEST(OptionsTest, VersionIsOneLine) {
  const auto parsed = Parse({"--version"});
  const auto* exit = std::get_if<ExitRequest>(&parsed);
  ASSERT_NE(exit, nullptr);
  EXPECT_EQ(exit->code, 0);
  EXPECT_THAT(exit->text, ::testing::MatchesRegex("reprise-server [0-9.]+\n"));
}

// ---- Defaults of the machine ------------------------------------------------

class EmbeddedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("embedded." + std::to_string(getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void AddModel(const std::string& folder) {
    std::filesystem::create_directories(root_ / folder);
    std::ofstream(root_ / folder / "config.json") << "{}";
  }
  absl::StatusOr<ServerOptions> Resolve(const std::string& binary_dir) {
    ServerOptions options;
    const absl::Status status = ResolveDefaults(
        root_ / binary_dir, Fake({{"HOME", "/home/me"}}), options);
    if (!status.ok()) return status;
    return options;
  }
  std::filesystem::path root_;
};

TEST_F(EmbeddedModelTest, IsFoundFromABuildTree) {
  AddModel("models/embedded");
  const auto options = Resolve("build/release/bin");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model_dir, (root_ / "models/embedded").string());
  EXPECT_GE(options->threads, 1);
}

TEST_F(EmbeddedModelTest, IsFoundWhenInstalled) {
  AddModel("share/reprise/models/embedded");
  const auto options = Resolve("bin");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model_dir,
            (root_ / "share/reprise/models/embedded").string());
}

TEST_F(EmbeddedModelTest, MissingOneIsNotFoundAndSaysWhereItLooked) {
  const auto options = Resolve("bin");
  EXPECT_EQ(options.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(options.status().message()),
              AllOf(HasSubstr("--model"),
                    HasSubstr((root_ / "share/reprise").string())));
}

TEST(ResolveDefaultsTest, StoreLiesInTheStateFolder) {
  ServerOptions options;
  options.model_dir = "/m";
  ASSERT_TRUE(ResolveDefaults("/", Fake({{"HOME", "/home/me"}}), options).ok());
  EXPECT_EQ(options.store_uri,
            "rocksdb:/home/me/.local/state/reprise/sessions");
  options.store_uri.clear();
  ASSERT_TRUE(ResolveDefaults(
                  "/",
                  Fake({{"HOME", "/home/me"}, {"XDG_STATE_HOME", "/state"}}),
                  options)
                  .ok());
  EXPECT_EQ(options.store_uri, "rocksdb:/state/reprise/sessions");
}

TEST(ResolveDefaultsTest, StateFolderThatIsNotAbsoluteIsIgnored) {
  for (const char* state : {"state", "./state", ""}) {
    ServerOptions options;
    options.model_dir = "/m";
    ASSERT_TRUE(
        ResolveDefaults("/",
                        Fake({{"HOME", "/home/me"}, {"XDG_STATE_HOME", state}}),
                        options)
            .ok());
    EXPECT_EQ(options.store_uri,
              "rocksdb:/home/me/.local/state/reprise/sessions");
  }
}

TEST(ResolveDefaultsTest, PortFileNeedsAFolder) {
  const Environment environment = Fake({{"HOME", "/home/me"}});
  ServerOptions options =
      ParseOk({"--model=/m", "--port-file=/no/such/folder/ports"});
  absl::Status status = ResolveDefaults("/", environment, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--port-file"), HasSubstr("/no/such/folder")));
  options.port_file = "/tmp";
  status = ResolveDefaults("/", environment, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& path :
       {std::string("ports"), ::testing::TempDir() + "ports"}) {
    options.port_file = path;
    EXPECT_TRUE(ResolveDefaults("/", environment, options).ok()) << path;
  }
}

TEST(ResolveDefaultsTest, NoHomeAndNoStoreIsRefused) {
  ServerOptions options;
  options.model_dir = "/m";
  const absl::Status status = ResolveDefaults("/", Fake({}), options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--store"));
}

TEST(ResolveDefaultsTest, WhatIsGivenStays) {
  ServerOptions options =
      ParseOk({"--model=/m", "--store=memory:", "--threads=5"});
  ASSERT_TRUE(ResolveDefaults("/", Fake({}), options).ok());
  EXPECT_EQ(options.model_dir, "/m");
  EXPECT_EQ(options.store_uri, "memory:");
  EXPECT_EQ(options.threads, 5);
}

TEST(ResolveSlotsTest, CountComesFirstThenTheBudget) {
  ServerOptions options;
  options.slots = 7;
  EXPECT_EQ(*ResolveSlots(options, 1 << 20), 7);
  options.slots = 0;
  options.slot_memory_bytes = 100 << 20;
  EXPECT_EQ(*ResolveSlots(options, 1 << 20), 100);
  EXPECT_EQ(*ResolveSlots(options, 64), 4096);
  EXPECT_EQ(ResolveSlots(options, 101 << 20).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- Values -----------------------------------------------------------------

TEST(OptionValuesTest, OverflowIsNotAValue) {
  EXPECT_FALSE(ParseBytes("9223372036854775807KiB").has_value());
  EXPECT_FALSE(ParseDurationMs("9223372036854775807").has_value());
  EXPECT_EQ(ParseBytes("9223372036854775807"), 9223372036854775807);
}

TEST(OptionValuesTest, PrintsInTheLargestUnitThatDivides) {
  EXPECT_EQ(FormatDurationMs(90'000), "90s");
  EXPECT_EQ(FormatDurationMs(3'600'000), "1h");
  EXPECT_EQ(FormatDurationMs(0), "0");
  EXPECT_EQ(FormatBytes(1536), "1536B");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3GiB");
}

TEST(OptionValuesTest, AddressesComeApart) {
  EXPECT_EQ(ParseHostPort("localhost:0")->host, "localhost");
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "[::1]");
  EXPECT_EQ(ParseHostPort("[::1]:80")->port, 80);
  EXPECT_FALSE(ParseHostPort("a b:80").has_value());
  EXPECT_FALSE(ParseHostPort("").has_value());
}

}  // namespace
}  // namespace reprise

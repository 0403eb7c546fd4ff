// Reads every source file and fails on what the project's style rules out:
// includes that go upwards, a library's headers outside their place, files and
// lines that are too long, guards that do not follow the path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileLines = 500;
constexpr size_t kMaxHeaderLines = 150;
constexpr size_t kMaxLineCharacters = 80;

// The layers, bottom first. A file may include its own height and below; the
// longest path that fits a file gives its height.
struct Layer {
  std::string_view path;
  int height = 0;
};
constexpr Layer kLayers[] = {
    {"engine/base/", 0},
    {"engine/tensor.h", 1},
    {"engine/kernels/", 2},
    {"engine/state/", 10},
    {"engine/model/", 11},
    {"engine/mixer/", 12},
    {"engine/", 20},  // engine, tokenizers, sampler
    {"engine/template/", 21},
    {"proto/", 30},
    {"server/metric", 30},
    {"server/process_stats", 30},
    {"server/durability", 30},
    {"server/byte_budget", 30},
    {"server/executor", 30},
    {"server/option", 30},
    {"server/options", 31},  // has --store checked
    {"server/store/", 31},
    {"server/token_stream", 31},
    {"server/seal", 31},
    {"server/session_", 40},
    {"server/client_states", 40},
    {"server/", 41},  // the scheduler and what it is made of
    {"server/inference_service", 42},
    {"client/client", 42},
    {"server/main.cc", 50},
    {"client/", 50},
    {"tools/", 60},
    {"tests/", 100},
};

// Where height alone would allow too much.
struct Wall {
  std::string_view from;
  std::string_view door;  // begins the files of `from` that may all the same
  std::string_view to;
  std::string_view gate;  // begins what may be included all the same
  std::string_view reason;
};
constexpr Wall kWalls[] = {
    {"client/", "-", "server/", "-", "client and server only share proto/"},
    {"client/", "client/command_inspect.", "engine/", "engine/base/",
     "of the engine, the client needs no more than engine/base/"},
    {"server/", "-", "client/", "-", "client and server only share proto/"},
    {"tools/", "-", "server/", "-", "the tools work on the engine alone"},
    {"tools/", "-", "client/", "-", "the tools work on the engine alone"},
};

// A library, and our files, named by how their paths begin, that may see it.
struct Library {
  std::string_view header;
  std::vector<std::string_view> places;
};
const Library kLibraries[] = {
    {"dnnl",
     {"engine/kernels/linear.cc", "engine/kernels/linear_cpu.cc",
      "engine/kernels/matmul.h", "engine/kernels/pack_weights.h"}},
    {"oneapi/dnnl", {"engine/kernels/linear.cc", "engine/kernels/matmul.h"}},
    {"hwy/", {"engine/kernels/", "tests/engine/kernels/", "tests/bench/"}},
    {"omp.h", {"engine/base/parallel.cc", "engine/kernels/linear.cc"}},
    {"spdlog/", {"engine/base/log.cc"}},
    {"pcre2.h", {"engine/"}},
    {"prometheus/",
     {"server/metrics.cc", "server/metrics_registry.h", "tests/server/"}},
    {"sentencepiece_", {"tests/engine/sentencepiece_library.cc"}},
    {"rocksdb/", {"server/store/rocksdb_", "tests/server/store/"}},
    {"zstd.h", {"engine/state/zstd_frame.cc"}},
    {"openssl/",
     {"engine/model/fingerprint.cc", "server/seal_cipher.cc",
      "server/store/redis_client.cc", "server/store/redis_tls.cc"}},
    {"hiredis/", {"server/store/redis_connection.cc"}},
    {"CLI/", {"client/", "server/options", "tools/"}},
    {"grpc",
     {"client/", "server/inference_service", "server/main.cc", "tests/"}},
    {"google/protobuf/", {"client/", "server/inference_service", "tests/"}},
    {"proto/",
     {"client/", "server/inference_service", "server/main.cc", "tests/"}},
    {"gtest/", {"tests/"}},
    {"gmock/", {"tests/"}},
    {"benchmark/", {"tests/"}},
};

struct Source {
  std::string path;  // from the root, as in an #include
  std::vector<std::string> lines;
};

struct Include {
  size_t line = 0;  // from 1
  std::string path;
};

std::vector<Source> ReadSources() {
  const fs::path root = REPRISE_SOURCE_DIR;
  std::vector<Source> sources;
  for (const char* folder : {"client", "engine", "server", "tests", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      Source source;
      source.path = fs::relative(entry.path(), root);
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        source.lines.push_back(line);
      }
      sources.push_back(std::move(source));
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

const std::vector<Source>& Sources() {
  static const std::vector<Source>& sources =
      *new std::vector<Source>(ReadSources());
  return sources;
}

std::vector<Include> IncludesOf(const Source& source) {
  constexpr std::string_view kDirective = "#include ";
  std::vector<Include> includes;
  for (size_t i = 0; i < source.lines.size(); ++i) {
    const std::string_view line = source.lines[i];
    if (!line.starts_with(kDirective)) continue;
    const size_t begin = kDirective.size() + 1;  // after the quote or bracket
    const size_t end = line.find_first_of("\">", begin);
    if (end == std::string_view::npos) continue;  // a macro of Highway's
    includes.push_back({i + 1, std::string(line.substr(begin, end - begin))});
  }
  return includes;
}

bool IsHeader(const Source& source) { return source.path.ends_with(".h"); }

// -1 for what is not ours.
int HeightOf(std::string_view path) {
  const Layer* best = nullptr;
  for (const Layer& layer : kLayers) {
    if (!path.starts_with(layer.path)) continue;
    if (best == nullptr || layer.path.size() > best->path.size()) best = &layer;
  }
  return best == nullptr ? -1 : best->height;
}

bool BeginsWithAny(std::string_view path,
                   const std::vector<std::string_view>& beginnings) {
  return std::any_of(
      beginnings.begin(), beginnings.end(),
      [path](std::string_view begin) { return path.starts_with(begin); });
}

// "file:line: " as compilers write it.
std::string At(const Source& source, size_t line) {
  return source.path + ":" + std::to_string(line) + ": ";
}

size_t Characters(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
      }));
}

TEST(TidyTest, FindsTheSources) {
  EXPECT_GT(Sources().size(), 20u) << "looked in " REPRISE_SOURCE_DIR;
}

TEST(TidyTest, IncludesGoDownwardsOnly) {
  for (const Source& source : Sources()) {
    const int height = HeightOf(source.path);
    for (const Include& include : IncludesOf(source)) {
      EXPECT_LE(HeightOf(include.path), height)
          << At(source, include.line) << "includes " << include.path
          << ", which lies in a layer above it; turn the dependency round or "
             "move the file (kLayers in tests/tidy_test.cc is the table)";
    }
  }
}

TEST(TidyTest, IncludesRespectTheWalls) {
  for (const Source& source : Sources()) {
    for (const Include& include : IncludesOf(source)) {
      for (const Wall& wall : kWalls) {
        const bool breaks = source.path.starts_with(wall.from) &&
                            !source.path.starts_with(wall.door) &&
                            include.path.starts_with(wall.to) &&
                            !include.path.starts_with(wall.gate);
        EXPECT_FALSE(breaks) << At(source, include.line) << "includes "
                             << include.path << ", but " << wall.reason;
      }
    }
  }
}

TEST(TidyTest, LibrariesAreSeenInTheirPlacesOnly) {
  for (const Source& source : Sources()) {
    for (const Include& include : IncludesOf(source)) {
      for (const Library& library : kLibraries) {
        if (!include.path.starts_with(library.header)) continue;
        std::string places;
        for (const std::string_view place : library.places) {
          places.append(" ").append(place);
        }
        EXPECT_TRUE(BeginsWithAny(source.path, library.places))
            << At(source, include.line) << "includes " << include.path
            << ", which only these may:" << places
            << "; put what you need behind one of their headers";
      }
    }
  }
}

TEST(TidyTest, OnlyHeadersAreIncluded) {
  for (const Source& source : Sources()) {
    for (const Include& include : IncludesOf(source)) {
      const bool compiled =
          include.path.ends_with(".cc") || include.path.ends_with(".inc");
      // Highway compiles a source once for each instruction set that way.
      const bool itself = include.path == source.path;
      EXPECT_FALSE(compiled && !itself)
          << At(source, include.line) << "includes " << include.path
          << "; share declarations in a header and compile the rest once";
    }
  }
}

TEST(TidyTest, ASourceIncludesItsOwnHeaderFirst) {
  for (const Source& source : Sources()) {
    if (IsHeader(source)) continue;
    const std::string header =
        source.path.substr(0, source.path.size() - 3) + ".h";
    if (!fs::exists(fs::path(REPRISE_SOURCE_DIR) / header)) continue;
    const std::vector<Include> includes = IncludesOf(source);
    EXPECT_TRUE(!includes.empty() && includes[0].path == header)
        << source.path << " does not include its own header " << header
        << " first, which would prove that the header stands alone";
  }
}

TEST(TidyTest, NoAbseilMutex) {
  for (const Source& source : Sources()) {
    for (const Include& include : IncludesOf(source)) {
      EXPECT_FALSE(include.path.starts_with("absl/synchronization/"))
          << At(source, include.line) << "includes " << include.path
          << "; use engine/base/mutex.h, which ThreadSanitizer can see into";
    }
  }
}

TEST(TidyTest, GuardsFollowThePath) {
  for (const Source& source : Sources()) {
    if (!IsHeader(source)) continue;
    std::string guard = source.path + "_";
    for (char& c : guard) {
      c = std::isalnum(static_cast<unsigned char>(c))
              ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
              : '_';
    }
    for (const std::string& line :
         {"#ifndef " + guard, "#define " + guard, "#endif  // " + guard}) {
      EXPECT_NE(std::find(source.lines.begin(), source.lines.end(), line),
                source.lines.end())
          << source.path << " has no line `" << line
          << "`: guards are named after the path";
    }
  }
}

TEST(TidyTest, FilesAreShort) {
  for (const Source& source : Sources()) {
    const size_t limit = IsHeader(source) ? kMaxHeaderLines : kMaxFileLines;
    EXPECT_LE(source.lines.size(), limit)
        << source.path << " has " << source.lines.size() << " lines, more than "
        << limit << "; split it by what its parts are responsible for";
  }
}

TEST(TidyTest, LinesAreShort) {
  for (const Source& source : Sources()) {
    for (size_t i = 0; i < source.lines.size(); ++i) {
      EXPECT_LE(Characters(source.lines[i]), kMaxLineCharacters)
          << At(source, i + 1) << "has more than " << kMaxLineCharacters
          << " characters; break the line";
    }
  }
}

// A test that no target has would never fail.
TEST(TidyTest, EverySourceIsInTheListOfItsFolder) {
  const fs::path root = REPRISE_SOURCE_DIR;
  for (const Source& source : Sources()) {
    if (IsHeader(source)) continue;
    // tools/ has one list for its folders.
    fs::path folder = fs::path(source.path).parent_path();
    while (!fs::exists(root / folder / "CMakeLists.txt")) {
      folder = folder.parent_path();
    }
    std::ifstream file(root / folder / "CMakeLists.txt");
    const std::string list{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(list.find(fs::path(source.path).lexically_relative(folder)),
              std::string::npos)
        << source.path << " is not in " << folder << "/CMakeLists.txt";
  }
}

TEST(TidyTest, NothingIsLeftForLater) {
  for (const Source& source : Sources()) {
    for (size_t i = 0; i < source.lines.size(); ++i) {
      // Written in two halves, or this file would find itself.
      for (const std::string_view mark : {"TO"
                                          "DO",
                                          "FIX"
                                          "ME"}) {
        EXPECT_EQ(source.lines[i].find(mark), std::string::npos)
            << At(source, i + 1) << "has a note for later; do it now, or make "
            << "it an issue";
      }
    }
  }
}

}  // namespace
}  // namespace reprise

#include "engine/model/packed_cache.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Raised whenever the same tensors become other bits: rounding, scales, the
// order of what is stacked, the words of keys.
constexpr char kPackingVersion[] = "1";

// A file system's clock may stand still for some milliseconds, on some for two
// seconds: a change right after another one would leave the stamp as it was. So
// only a stamp older than that is proof.
constexpr int64_t kSettledNs = 2'000'000'000;

PackedIdentity MakeIdentity(const Checkpoint& checkpoint, WeightType type) {
  PackedIdentity identity = {
      {"packing", kPackingVersion},
      {"program", REPRISE_VERSION},
      {"library", LinearLibraryVersion()},
      {"cpu", CpuIsaName()},
      {"weights", std::string(WeightTypeName(type))},
  };
  for (const CheckpointFile& file : checkpoint.files()) {
    const FileStamp& stamp = file.stamp;
    identity.emplace_back(
        fs::path(file.path).filename().string(),
        absl::StrCat(stamp.bytes, " bytes, inode ", stamp.inode,
                     ", modified at ", stamp.modified_ns, ", changed at ",
                     stamp.changed_ns, ", header ", file.header_checksum));
  }
  return identity;
}

// In a folder of its own, a model's file has the model's name in front, and
// something to tell it from others of that name.
std::string MakePath(const PackedCacheOptions& options,
                     const std::string& model_dir, WeightType type) {
  const std::string kind =
      absl::StrCat(ToAbsl(WeightTypeName(type)), "-", CpuIsaName(), ".bin");
  if (options.dir.empty()) {
    return fs::path(model_dir) / absl::StrCat(".reprise-packed-", kind);
  }
  std::error_code ignored;
  const fs::path model = fs::weakly_canonical(model_dir, ignored);
  const fs::path named = model.has_filename() ? model : model.parent_path();
  const std::string whole = named.string();
  return fs::path(options.dir) /
         absl::StrCat(named.filename().string(), "-",
                      absl::Hex(Crc32c(whole), absl::kZeroPad8), "-", kind);
}

std::vector<uint32_t> OwnersOf(const Checkpoint& checkpoint) {
  std::vector<uint32_t> owners = {0, geteuid()};
  for (const CheckpointFile& file : checkpoint.files()) {
    owners.push_back(file.stamp.owner);
  }
  return owners;
}

// Whoever may read all of the model may read what was made of it.
uint32_t ModeFor(const Checkpoint& checkpoint) {
  uint32_t mode = 0644;
  for (const CheckpointFile& file : checkpoint.files()) {
    mode &= file.stamp.mode | 0600;
  }
  return mode;
}

}  // namespace

std::string_view PackedCacheUseName(PackedCacheUse use) {
  switch (use) {
    case PackedCacheUse::kOff:
      return "off";
    case PackedCacheUse::kSmall:
      return "small";
    case PackedCacheUse::kNone:
      return "none";
    case PackedCacheUse::kRead:
      return "read";
    case PackedCacheUse::kWritten:
      return "written";
  }
  return "unknown";
}

PackedCache::PackedCache(PackedCacheOptions options,
                         const std::string& model_dir,
                         const Checkpoint& checkpoint, WeightType type,
                         const Clock& clock)
    : options_(std::move(options)),
      checkpoint_(checkpoint),
      clock_(clock),
      path_(MakePath(options_, model_dir, type)),
      identity_(MakeIdentity(checkpoint, type)) {}

void PackedCache::Begin(int64_t model_bytes, int64_t packed_bytes) {
  packed_bytes_ = packed_bytes;
  if (!options_.enabled) return;
  use_ = PackedCacheUse::kSmall;
  if (model_bytes < options_.min_model_bytes) return;
  use_ = PackedCacheUse::kNone;
  absl::StatusOr<PackedFile> file =
      PackedFile::Open(path_, identity_, OwnersOf(checkpoint_));
  if (file.ok()) {
    file_ = *std::move(file);
    use_ = PackedCacheUse::kRead;
    return;
  }
  if (!absl::IsNotFound(file.status())) {
    (void)Refuse(file.status());
    return StartOver();
  }
  BeginWriting();
}

absl::Status PackedCache::Refuse(const absl::Status& reason) {
  reason_ = reason;
  return reason;
}

void PackedCache::StartOver() {
  // Another model or program is nothing to worry about.
  const bool stale = absl::IsFailedPrecondition(reason_);
  (stale ? LogInfo : LogWarning)(
      "packed weights ignored",
      {{"file", path_}, {"reason", FromAbsl(reason_.message())}});
  reason_ = absl::OkStatus();
  file_.reset();
  use_ = PackedCacheUse::kNone;
  BeginWriting();
}

void PackedCache::BeginWriting() {
  if (!CheckpointIsSettled()) {
    LogInfo("packed weights not written: the model's files have just changed",
            {{"file", path_}});
    return;
  }
  absl::StatusOr<std::unique_ptr<PackedFileWriter>> writer =
      PackedFileWriter::Create(path_, identity_, packed_bytes_,
                               ModeFor(checkpoint_));
  if (!writer.ok()) return LogNotWritten(writer.status());
  writer_ = *std::move(writer);
}

bool PackedCache::CheckpointIsSettled() const {
  const int64_t now_ns = clock_.UnixMs() * 1'000'000;
  return std::all_of(checkpoint_.files().begin(), checkpoint_.files().end(),
                     [now_ns](const CheckpointFile& file) {
                       return now_ns - file.stamp.changed_ns >= kSettledNs;
                     });
}

bool PackedCache::CheckpointIsUnchanged() const {
  return std::all_of(checkpoint_.files().begin(), checkpoint_.files().end(),
                     [](const CheckpointFile& file) {
                       const auto stamp = StampOf(file.path);
                       return stamp.ok() && *stamp == file.stamp;
                     });
}

void PackedCache::LogNotWritten(const absl::Status& reason) const {
  LogWarning("packed weights not written, so the next start packs them again",
             {{"reason", FromAbsl(reason.message())},
              {"advice", "--packed-cache=DIR or off"}});
}

void PackedCache::Finish(const Fingerprint::Digests& digests) {
  if (writer_ == nullptr) return;
  const std::unique_ptr<PackedFileWriter> writer = std::move(writer_);
  if (!CheckpointIsUnchanged()) {
    return LogNotWritten(absl::FailedPreconditionError(
        "the model's files changed while they were read"));
  }
  const absl::Status status = writer->Finish(digests);
  if (!status.ok()) return LogNotWritten(status);
  use_ = PackedCacheUse::kWritten;
  LogInfo("packed weights written",
          {{"file", path_}, {"bytes", writer->bytes()}});
}

}  // namespace reprise

#include "engine/state/zstd_frame.h"

#include <zstd.h>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

// The library's default. The mantissas of a state are noise that no level
// compresses, and higher ones take ten times as long to find that out.
constexpr int kLevel = 3;
// That level looks back 2 MiB; a reader keeps as much.
constexpr int kMaxWindowLog = 23;

}  // namespace

std::string ZstdCompress(std::string_view bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(frame.data(), frame.size(), bytes.data(),
                                    bytes.size(), kLevel);
  CHECK(!ZSTD_isError(size));  // there was room, and memory
  frame.resize(size);
  return frame;
}

struct ZstdReader::Impl {
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  ZSTD_inBuffer in{};
  bool ended = false;  // the frame is
};

ZstdReader::ZstdReader(std::string_view frame)
    : impl_(std::make_unique<Impl>()) {
  CHECK(impl_->context != nullptr);
  impl_->in = {frame.data(), frame.size(), 0};
  CHECK(!ZSTD_isError(ZSTD_DCtx_setParameter(
      impl_->context, ZSTD_d_windowLogMax, kMaxWindowLog)));
}

ZstdReader::~ZstdReader() { ZSTD_freeDCtx(impl_->context); }

absl::Status ZstdReader::Read(char* out, size_t size) {
  ZSTD_outBuffer buffer{out, size, 0};
  while (buffer.pos < buffer.size) {
    if (impl_->ended)
      return absl::DataLossError("zstd: the frame is too short");
    const size_t before = buffer.pos + impl_->in.pos;
    const size_t left =
        ZSTD_decompressStream(impl_->context, &buffer, &impl_->in);
    if (ZSTD_isError(left)) {
      return absl::DataLossError(
          absl::StrCat("zstd: ", ZSTD_getErrorName(left)));
    }
    impl_->ended = left == 0;
    if (!impl_->ended && buffer.pos + impl_->in.pos == before) {
      return absl::DataLossError("zstd: the frame is cut");
    }
  }
  return absl::OkStatus();
}

absl::Status ZstdReader::End() {
  char more = 0;
  ZSTD_outBuffer buffer{&more, 1, 0};
  while (!impl_->ended) {
    const size_t before = impl_->in.pos;
    const size_t left =
        ZSTD_decompressStream(impl_->context, &buffer, &impl_->in);
    if (ZSTD_isError(left) || buffer.pos > 0) {
      return absl::DataLossError("zstd: the frame is longer than it says");
    }
    impl_->ended = left == 0;
    if (!impl_->ended && impl_->in.pos == before) {
      return absl::DataLossError("zstd: the frame is cut");
    }
  }
  if (impl_->in.pos == impl_->in.size) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "zstd: ", impl_->in.size - impl_->in.pos, " bytes after the frame"));
}

}  // namespace reprise

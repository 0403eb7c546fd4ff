// Export and Import as tests call them, and servers that share keys.
#ifndef TESTS_SUPPORT_SEALED_CALLS_H_
#define TESTS_SUPPORT_SEALED_CALLS_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "proto/inference.grpc.pb.h"
#include "tests/support/generate_call.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// A line of a file of keys: one key, the same for equal arguments.
inline std::string KeyLine(const std::string& id, char digit,
                           const std::string& algorithm = "aes-256-gcm") {
  return id + " " + algorithm + " " + std::string(64, digit) + "\n";
}

// Writes a file of keys that only its owner may read.
inline std::string WriteKeys(const TempDir& dir, const std::string& name,
                             const std::string& lines) {
  const std::string path = dir.Write(name, lines);
  EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  return path;
}

struct Exported {
  grpc::Status status;
  v1::SnapshotInfo info;
  std::string bytes;
  int chunks = 0;
};

inline Exported Export(v1::Sessions::Stub& stub,
                       const v1::ExportSessionRequest& request) {
  Exported exported;
  grpc::ClientContext context;
  auto reader = stub.Export(&context, request);
  v1::SnapshotChunk chunk;
  std::optional<uint32_t> crc32c;
  while (reader->Read(&chunk)) {
    EXPECT_FALSE(crc32c.has_value()) << "a chunk behind the last";
    if (exported.chunks++ == 0) exported.info = chunk.info();
    exported.bytes += chunk.data();
    if (chunk.has_crc32c()) crc32c = chunk.crc32c();
  }
  exported.status = reader->Finish();
  if (exported.status.ok()) {
    EXPECT_EQ(crc32c, Crc32c(exported.bytes));
    EXPECT_EQ(exported.info.sealed_bytes(), exported.bytes.size());
  }
  return exported;
}

inline Exported Export(v1::Sessions::Stub& stub, const std::string& id) {
  v1::ExportSessionRequest request;
  request.set_id(id);
  return Export(stub, request);
}

struct Imported {
  grpc::Status status;
  v1::Session session;
};

inline Imported Import(v1::Sessions::Stub& stub,
                       const std::vector<v1::SnapshotChunk>& chunks) {
  Imported imported;
  grpc::ClientContext context;
  auto writer = stub.Import(&context, &imported.session);
  // A server that refuses does not read to the end.
  for (const v1::SnapshotChunk& chunk : chunks) {
    if (!writer->Write(chunk)) break;
  }
  (void)writer->WritesDone();
  imported.status = writer->Finish();
  return imported;
}

// `bytes` in chunks, with their checksum in the last.
inline std::vector<v1::SnapshotChunk> Chunks(const std::string& bytes,
                                             size_t chunk_bytes = 100) {
  std::vector<v1::SnapshotChunk> chunks(1);
  for (size_t at = 0; at < bytes.size(); at += chunk_bytes) {
    if (at > 0) chunks.emplace_back();
    chunks.back().set_data(bytes.substr(at, chunk_bytes));
  }
  chunks.back().set_crc32c(Crc32c(bytes));
  return chunks;
}

inline Imported Import(v1::Sessions::Stub& stub, const std::string& bytes,
                       const std::string& id = "") {
  std::vector<v1::SnapshotChunk> chunks = Chunks(bytes);
  if (!id.empty()) chunks.front().set_session_id(id);
  return Import(stub, chunks);
}

// An import whose client has sent the beginning of a seal, and nothing since.
struct IdleImport {
  explicit IdleImport(v1::Sessions::Stub& stub)
      : writer(stub.Import(&context, &session)) {
    v1::SnapshotChunk chunk;
    chunk.set_data("RPSE");
    EXPECT_TRUE(writer->Write(chunk));
  }

  grpc::ClientContext context;
  v1::Session session;
  std::unique_ptr<grpc::ClientWriter<v1::SnapshotChunk>> writer;
};

// Two turns that began alike, in states that are equal bit for bit.
inline void ExpectSame(const Completion& a, const Completion& b) {
  ASSERT_TRUE(a.status.ok()) << a.status.error_message();
  ASSERT_TRUE(b.status.ok()) << b.status.error_message();
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.started.cached_tokens(), b.started.cached_tokens());
  EXPECT_EQ(a.started.revision(), b.started.revision());
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_SEALED_CALLS_H_

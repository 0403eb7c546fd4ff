// The engine: a loaded model that advances states. It knows tokens, states and
// logits, and nothing of sessions, text or clients.
#ifndef ENGINE_ENGINE_H_
#define ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/kernels/linear.h"
#include "engine/model/load_progress.h"
#include "engine/model/packed_cache_options.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_layout.h"
#include "engine/tensor.h"

namespace reprise {

// Which rows of a segment get logits.
enum class LogitsFor { kNone, kLastRow, kAllRows };

// The next tokens of one session. A session's tokens may be cut into segments
// at multiples of kTileRows counted from the first token of its prompt without
// changing a bit of the result.
struct StepSegment {
  std::span<const int32_t> tokens;  // >= 1, each in [0, vocab_size)
  int64_t position = 0;             // tokens the state has consumed so far
  std::byte* slot = nullptr;        // the state, advanced in place
  LogitsFor logits = LogitsFor::kLastRow;
};

// What is known of a model once it is loaded.
struct ModelInfo {
  std::string name;         // as ModelName
  std::string family;       // as in config.json's model_type
  std::string description;  // one line for people: layers, widths, mixers
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t num_layers = 0;
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;       // as packed
  int64_t step_weight_bytes = 0;  // of those, what every step reads
  // Of one session, without gaps: what does not grow with its tokens (windows
  // counted in full), and what each token adds where softmax attention looks
  // back on all of them.
  int64_t state_bytes = 0;
  int64_t state_bytes_per_token = 0;
  // Most tokens a session can consume; none: no limit.
  std::optional<int64_t> max_context;
  WeightType weight_type = WeightType::kF32;
  std::string cpu_isa;
  PackedCacheUse packed_cache = PackedCacheUse::kOff;
  std::vector<int32_t> eos_tokens;  // may be empty
  std::optional<int32_t> bos_token;
  ModelFingerprints fingerprints;  // tokenizer is 0: the server fills it
};

// Used by one thread at a time; the accessors by any thread. An interface, so
// that the scheduler can be tested on a fake.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const StateLayout& layout() const = 0;
  // Most rows, of all segments together, that Step takes.
  virtual int64_t max_rows() const = 0;

  // Advances every segment's state by its tokens. Slots are distinct. Returns
  // the logits, one row of vocab_size for every row that asked, in the order
  // of the segments; the memory is the engine's, valid and writable until the
  // next Step. CHECKs its limits: callers enforce them. Blocks for as long as
  // the computation takes; allocates nothing. Among the limits: no session
  // consumes more than info().max_context tokens.
  virtual MatrixView<float> Step(std::span<const StepSegment> segments) = 0;
};

struct EngineOptions {
  std::string model_dir;
  WeightType weights = WeightType::kAuto;
  int64_t max_rows = 512;  // a multiple of kTileRows
  // Most tokens per session, for models whose state grows with them: address
  // space that every slot reserves. None: as many as the model was made for,
  // but no more than StateLayout::kDefaultMaxContext.
  std::optional<int64_t> max_context = std::nullopt;
  PackedCacheOptions packed_cache = {};
  LoadProgressCallback progress = nullptr;
  const Clock* clock = &Clock::Real();  // while loading
};

// What a model is called: its folder, without the path, whatever path leads
// there.
std::string ModelName(const std::string& model_dir);

// Far above any published model's context.
inline constexpr int64_t kMostContext = int64_t{1} << 24;

// Loads the checkpoint in `options.model_dir` (config.json and
// model.safetensors, or shards and their index). Uses the calling thread's
// team (SetNumThreads) and takes as long as reading and packing the weights, or
// only reading them where options.packed_cache has them. All shapes are
// compared before memory is taken for weights, which then is that of the packed
// weights and of one more matrix.
// InvalidArgument, naming the field or the tensor, for a checkpoint that is
// not what its config says; NotFound if a file is missing, Unavailable if it
// cannot be read; Internal if oneDNN fails.
absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(
    const EngineOptions& options);

}  // namespace reprise

#endif  // ENGINE_ENGINE_H_

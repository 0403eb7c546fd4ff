// What a checkpoint is made of and what serving it takes, as its config.json
// and the headers of its files tell: for looking before loading.
#ifndef ENGINE_MODEL_SUMMARY_H_
#define ENGINE_MODEL_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/state/state_layout.h"

namespace reprise {

// One named part of a layer's state.
struct FieldSummary {
  std::string name;            // "recurrent", without the layer
  std::vector<int64_t> shape;  // if it grows: of the row of one token
  Growth growth = Growth::kNone;
  int64_t window = 0;  // kWindow: most rows

  bool operator==(const FieldSummary&) const = default;
};

struct LayerSummary {
  std::vector<std::string> mixers;  // kinds, in the order of their run
  std::vector<FieldSummary> state;

  bool operator==(const LayerSummary&) const = default;
};

// Equal layers that follow each other.
struct LayerRun {
  int64_t count = 0;
  LayerSummary layer;
};

// Memory of one session that has consumed `tokens` tokens, f32.
struct SessionMemory {
  int64_t tokens = 0;
  int64_t state_bytes = 0;
  // What a softmax model of the same geometry would keep: as many layers, and
  // for each token a key and a value as wide as the model in every one.
  int64_t kv_cache_bytes = 0;
};

// Floating-point operations for one token, a multiply-add being two: two for
// every weight in a matrix (of a mixture of experts, those that a token
// visits), four for every number of the state, which is brought up to date and
// read once each, and in softmax attention four for every number of a query
// and every token that it looks back on. Norms, activations and gates, a few
// per cent, are left out.
struct TokenWork {
  int64_t weights = 0;
  int64_t state = 0;  // windows being full
  // For every token before, where attention looks back on all of them.
  int64_t per_context_token = 0;
};

struct ModelSummary {
  std::string family;
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t num_layers = 0;
  // The layers are those of `period`, in order, `repeats` times.
  int64_t repeats = 1;
  std::vector<LayerRun> period;
  // Of the tensors that the model uses, each counted once.
  int64_t num_parameters = 0;
  std::map<std::string, int64_t> bytes_by_dtype;  // in the files: "BF16"
  std::vector<std::string> unused_tensors;        // by name
  int64_t unused_bytes = 0;
  // Of a session: what does not grow with its tokens (windows being full), and
  // what each token adds.
  int64_t state_bytes = 0;
  int64_t state_bytes_per_token = 0;
  std::vector<SessionMemory> memory;  // at 1k, 32k, 128k and 1M tokens
  // Tokens from which on the state is smaller than the KV cache; none if it is
  // not within kMostContext.
  std::optional<int64_t> smaller_from_tokens;
  TokenWork work;
  std::optional<int64_t> max_positions;  // the config's
};

// Summarises the checkpoint in the folder `dir`. Checks what loading it would
// check, but for the numbers in its tensors, of which it reads none; errors are
// those of LoadEngine.
absl::StatusOr<ModelSummary> SummariseModel(const std::string& dir);

}  // namespace reprise

#endif  // ENGINE_MODEL_SUMMARY_H_

// Byte-pair encoding as a tokenizer.json describes it.
#ifndef ENGINE_BPE_TOKENIZER_H_
#define ENGINE_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_json.h"

namespace reprise {

// InvalidArgument, naming the field, if a merge or a pattern of the file is
// bad, or there is text that it has no tokens for.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(
    const BpeSpec& spec, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_BPE_TOKENIZER_H_

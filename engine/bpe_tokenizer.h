// Byte-level byte-pair encoding, as GPT-2 began it: every byte is a character
// of its vocabulary's alphabet, so any text can be written with it.
#ifndef ENGINE_BPE_TOKENIZER_H_
#define ENGINE_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_json.h"

namespace reprise {

// InvalidArgument, naming the field, if a merge or a pattern of the file is
// bad, or a byte that texts can hold is not in its vocabulary.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(
    const BpeSpec& spec, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_BPE_TOKENIZER_H_

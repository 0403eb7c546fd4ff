// The tokenizer of RWKV World models: always the longest token that fits.
#ifndef ENGINE_RWKV_TOKENIZER_H_
#define ENGINE_RWKV_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"

namespace reprise {

// `contents` is a file like rwkv_vocab_v20230424.txt: a line for each token
// with its id, its bytes as Python writes them ('text' or b'bytes'), and their
// number. Token 0, end of text, is not in the file; it is called
// "<|endoftext|>". The tokenizer takes any bytes, not UTF-8 only.
//
// InvalidArgument, naming `file` and the line, for a line that is not of that
// form, an id or a token that occurs twice, ids past `vocab_size`, tokens of
// more than 256 bytes, and if one of the 256 bytes has no token.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateRwkvTokenizer(
    std::string_view contents, std::string_view file, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_RWKV_TOKENIZER_H_

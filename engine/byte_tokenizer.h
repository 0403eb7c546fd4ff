// Token id = byte.
#ifndef ENGINE_BYTE_TOKENIZER_H_
#define ENGINE_BYTE_TOKENIZER_H_

#include <cstdint>
#include <memory>

#include "engine/tokenizer.h"

namespace reprise {

// A tokenizer whose ids are bytes; ids past 255 have none. Takes any text, also
// what is no UTF-8.
std::unique_ptr<Tokenizer> CreateByteTokenizer(int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_BYTE_TOKENIZER_H_

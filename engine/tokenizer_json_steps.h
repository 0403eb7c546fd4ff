// The parts of tokenizer.json that say what is done with a text before and
// after its tokens: normalizer, pre_tokenizer, decoder.
#ifndef ENGINE_TOKENIZER_JSON_STEPS_H_
#define ENGINE_TOKENIZER_JSON_STEPS_H_

#include "absl/status/status.h"
#include "engine/tokenizer_json.h"
#include "engine/tokenizer_json_object.h"

namespace reprise {

// Fill spec->normalizer; spec->steps and spec->byte_level; spec->decoding.
// InvalidArgument, naming the field, for what is malformed or not supported.
absl::Status ReadNormalizer(const JsonObject& document, BpeSpec* spec);
absl::Status ReadPreTokenizer(const JsonObject& document, BpeSpec* spec);
absl::Status ReadDecoder(const JsonObject& document, BpeSpec* spec);

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_JSON_STEPS_H_

// Tokenizers for models of random weights: every token has a text of its own,
// so that whatever such a model says can be shown.
#ifndef TOOLS_BENCH_RANDOM_VOCABULARY_H_
#define TOOLS_BENCH_RANDOM_VOCABULARY_H_

#include <cstdint>
#include <string>

namespace reprise::bench {

// A tokenizer.json of byte pairs, at least 257 ids: 0 ends a text, then come
// all bytes, then words, each after a space. It has no merges, so a text
// becomes its bytes.
std::string BytePairTokenizerJson(int64_t vocab_size);

// The same as a vocabulary file of RWKV, where 0 is left out by convention. It
// takes the longest token, so known words are one.
std::string RwkvVocabulary(int64_t vocab_size);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_RANDOM_VOCABULARY_H_

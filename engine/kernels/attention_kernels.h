// Softmax attention of a few heads of one session over its keys and values
// (Vaswani et al. 2017, causal; tiled with a running maximum and sum as in Dao
// et al. 2022):
//
//   o_t = sum_s exp(q_t . k_s - m_t) v_s / sum_s exp(q_t . k_s - m_t)
//
// over the tokens s that t sees. q comes scaled and, like k, with its position
// applied. A row's result has the same bits however rows are split among calls:
// keys are taken in blocks of kTileRows counted from the session's first token,
// and every sum in the order of tokens.
#ifndef ENGINE_KERNELS_ATTENTION_KERNELS_H_
#define ENGINE_KERNELS_ATTENTION_KERNELS_H_

#include <cstdint>

namespace reprise {

// Limits of Attend, whose scratch is on the stack.
inline constexpr int64_t kMaxHeadDim = 512;
inline constexpr int64_t kMaxAttendHeads = 8;

// Keys and values of one head: row r at k + r * stride and v + r * stride.
struct KeyValueRows {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t stride = 0;
};

struct AttentionArgs {
  // Row r of head h: q + r * q_stride + h * q_head_stride; o likewise.
  const float* q = nullptr;
  float* o = nullptr;
  int64_t q_stride = 0;
  int64_t o_stride = 0;
  int64_t q_head_stride = 0;
  int64_t o_head_stride = 0;
  int64_t heads = 0;     // 1..kMaxAttendHeads, with the same keys and values
  int64_t head_dim = 0;  // 1..kMaxHeadDim
  int64_t rows = 0;      // 1..kTileRows
  int64_t position = 0;  // of row 0; tokens are counted from 0
  int64_t window = 0;    // a row sees that many tokens, itself the last; 0: all
  // Tokens before `fresh_position` are in `past`, token p in row p % past_rows;
  // those from there up to the last row's are in `fresh`, the first in row 0.
  KeyValueRows past;
  int64_t past_rows = 1;
  KeyValueRows fresh;
  int64_t fresh_position = 0;
};

void Attend(const AttentionArgs& args);

// x[i] *= 1 / (1 + exp(-gate[i])).
void GateBySigmoid(const float* gate, int64_t n, float* x);

}  // namespace reprise

#endif  // ENGINE_KERNELS_ATTENTION_KERNELS_H_

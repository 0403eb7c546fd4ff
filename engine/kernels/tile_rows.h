// Sums of x W for any number of rows, in bf16 or 8 bits, on CPUs with AMX,
// straight from the layout that oneDNN packs W in. A part of linear.cc and
// matmul.cc.
//
// Why: oneDNN's AMX kernels wait for every line of W, and reach a tenth of what
// the tiles can do with many rows. These fetch ahead, a little for every tile,
// and go over W while rows of x stay in the second cache. bf16 is 1.8 times as
// fast with one row and 1.4 to 2 times with 512; 8 bits 1.6 to 2.4 times as
// fast as few_rows.h with 64 (one thread of a shared Xeon of 2023, oneDNN
// 2.6.3).
//
// Exactness: an element's sum begins with zero and takes the products of 64
// bytes of a row after the other, by the same instruction as oneDNN's. So the
// bits are theirs, whatever the number of rows. Linear makes sure of it for
// every matrix.
#ifndef ENGINE_KERNELS_TILE_ROWS_H_
#define ENGINE_KERNELS_TILE_ROWS_H_

#include <cstdint>

#include "engine/kernels/few_rows.h"

namespace reprise {

// Whether rows of `in` numbers are cut into whole tiles: bf16 and int8, of a
// multiple of 64 bytes.
bool FitTiles(WeightType type, int64_t in);

// Bytes from row to row of x: an odd number of cache lines, so that the rows of
// a tile do not fall on the same few sets of the cache.
int64_t TileRowStride(WeightType type, int64_t in);

// As MultiplyFewRows, of any number of rows of that stride; `first` is a
// multiple of kBlockColumns. FitTiles, and the CPU has AMX and the process may
// use it: oneDNN asks for that when it picks an AMX kernel.
void MultiplyTileRows(const PackedColumns& w, const FewRows& rows,
                      int64_t first, int64_t last);

}  // namespace reprise

#endif  // ENGINE_KERNELS_TILE_ROWS_H_

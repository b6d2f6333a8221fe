// What the two matrix products of these tests share: C = A B^T, E4M3 in, fp32 out. Four warps
// compute a tile of 64 x 32, each 16 rows.
#pragma once

#include <cstddef>

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u32;
using ptx::u8;

inline constexpr u32 kTileM = 64, kTileN = 32, kRowsPerWarp = 16;
inline constexpr u32 kMmaK = 32, kChunk = 16;  // bytes
inline constexpr u32 kOutRow = kTileN * 4;     // bytes

// One step of 32 bytes along K. `a_at` and `b_at` give the place of a 16-byte chunk in a tile.
template <class PlaceA, class PlaceB>
QUATT_DEV void multiply_step(float (&acc)[4][4], tile::Shared a, tile::Shared b, u32 first_row,
                             u32 step, PlaceA a_at, PlaceB b_at) {
    const u32 lane = ptx::lane_id(), matrix = lane / 8, row = lane % 8;
    u32 fa[4];
    ptx::ldmatrix_x4(fa, a, a_at(first_row + row + 8 * (matrix % 2), 2 * step + matrix / 2));
    QUATT_UNROLL
    for (u32 n = 0; n < 2; n++) {
        u32 fb[4];
        ptx::ldmatrix_x4(fb, b, b_at(16 * n + row + 8 * (matrix / 2), 2 * step + matrix % 2));
        ptx::mma_e4m3_fast(acc[2 * n], fa, fb[0], fb[1]);
        ptx::mma_e4m3_fast(acc[2 * n + 1], fa, fb[2], fb[3]);
    }
}

// Accumulators of a warp to its rows of the tile of C in shared memory.
QUATT_DEV void store_accumulators(const float (&acc)[4][4], tile::Shared out, u32 first_row) {
    const u32 lane = ptx::lane_id(), g = lane / 4, t = lane % 4;
    QUATT_UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 n = i / 2, r = i % 2;
        out.store(((first_row + g + 8 * r) * kTileN + 8 * n + 2 * t) * 4,
                  ptx::F32x2{acc[n][2 * r], acc[n][2 * r + 1]});
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::test

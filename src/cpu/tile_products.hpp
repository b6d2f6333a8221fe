// The products of level_kernels.hpp in AMX's tile registers, of 16 rows of 64 bytes:
//
//   2 x 2 of C, 16 rows x 16 columns:  0 1    2 of A, 16 rows x 16 units:     4
//                                      2 3                                    5
//                                             2 of B, 16 units x 16 columns:  6 7
//
// The units and tiles of kernels.hpp are what the instructions read: nothing is packed anew.
#pragma once
#include "cpu/instructions.hpp"
#include "cpu/kernels.hpp"
#include "cpu/lanes.hpp"

namespace quatt::cpu {
namespace {

constexpr std::int64_t kTileBytes = 64;  // of a row of a register

void configure_tiles() {
    TileConfig config{};
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.rows[t] = kTileRows;
        config.row_bytes[t] = kTileBytes;
    }
    tile_configure(config);
}

void release_tiles() {
    tile_release();
}

struct DotBf16 {
    static constexpr bool kOffset = false;
    template <int kC, int kA, int kB>
    QUATT_INLINE static void dot() {
        tile_dot_bf16<kC, kA, kB>();
    }
};

struct DotInt8 {
    static constexpr bool kOffset = true;
    template <int kC, int kA, int kB>
    QUATT_INLINE static void dot() {
        tile_dot_bytes<kC, kA, kB>();
    }
};

// C += A [16 kRows, steps] . B [steps, 16 kColumns]; strides in units. steps is a multiple of 16.
template <class Dot, int kRows, int kColumns>
QUATT_INLINE void dot_tiles(const std::uint32_t* a, std::int64_t a_stride, const std::uint32_t* b,
                            std::int64_t b_stride, std::int64_t steps) {
    for (std::int64_t k = 0; k < steps; k += kTileRows) {
        tile_load<4>(a + k, 4 * a_stride);
        tile_load<6>(b + k * b_stride, 4 * b_stride);
        Dot::template dot<0, 4, 6>();
        if constexpr (kColumns == 2) {
            tile_load<7>(b + k * b_stride + kTileRows, 4 * b_stride);
            Dot::template dot<1, 4, 7>();
        }
        if constexpr (kRows == 2) {
            tile_load<5>(a + kTileRows * a_stride + k, 4 * a_stride);
            Dot::template dot<2, 5, 6>();
        }
        if constexpr (kRows == 2 && kColumns == 2) {
            Dot::template dot<3, 5, 7>();
        }
    }
}

template <int kRows, int kColumns>
QUATT_INLINE void zero_tiles() {
    tile_zero<0>();
    tile_zero<1>();
    if constexpr (kRows == 2) {
        tile_zero<2>();
        tile_zero<3>();
    }
}

// to [16 kRows, 16 kColumns], 32-bit numbers
template <int kRows, int kColumns>
QUATT_INLINE void store_tiles(float* to, std::int64_t stride) {
    tile_store<0>(to, 4 * stride);
    if constexpr (kColumns == 2) {
        tile_store<1>(to + kTileRows, 4 * stride);
    }
    if constexpr (kRows == 2) {
        tile_store<2>(to + kTileRows * stride, 4 * stride);
    }
    if constexpr (kRows == 2 && kColumns == 2) {
        tile_store<3>(to + kTileRows * stride + kTileRows, 4 * stride);
    }
}

template <class Dot, int kRows>
QUATT_INLINE void tile_scores_of(const std::uint32_t* q, const std::uint32_t* k, std::int64_t steps,
                                 float* c) {
    for (std::int64_t j = 0; j < kTile; j += 2 * kTileRows) {
        if constexpr (Dot::kOffset) {  // each row of C begins as the same 16 numbers
            tile_load<0>(k + j, 0);
            tile_load<1>(k + j + kTileRows, 0);
            if constexpr (kRows == 2) {
                tile_load<2>(k + j, 0);
                tile_load<3>(k + j + kTileRows, 0);
            }
        } else {
            zero_tiles<kRows, 2>();
        }
        const std::uint32_t* tile = k + (Dot::kOffset ? kTile : 0) + j;
        dot_tiles<Dot, kRows, 2>(q, steps, tile, kTile, steps);
        store_tiles<kRows, 2>(c + j, kTile);
    }
    for (std::int64_t i = 0; Dot::kOffset && i < kRows * kTileRows * kTile; i += kLanes) {
        store(c + i, to_floats(as_ints(load(c + i))));
    }
}

template <class Dot>
void tile_scores(const std::uint32_t* q, const std::uint32_t* k, std::int64_t rows,
                 std::int64_t steps, float* c) {
    std::int64_t r = 0;
    for (; r + 2 * kTileRows <= rows; r += 2 * kTileRows) {
        tile_scores_of<Dot, 2>(q + r * steps, k, steps, c + r * kTile);
    }
    if (r < rows) {
        tile_scores_of<Dot, 1>(q + r * steps, k, steps, c + r * kTile);
    }
}

template <int kRows, int kColumns>
void tile_values_of(const std::uint32_t* p, const std::uint32_t* v, std::int64_t dv,
                    const float* factor, float* o) {
    constexpr std::int64_t kSteps = kTile / 2, kWidth = kColumns * kTileRows;
    alignas(64) float sum[kRows * kTileRows][kWidth];
    zero_tiles<kRows, kColumns>();
    dot_tiles<DotBf16, kRows, kColumns>(p, kSteps, v, dv, kSteps);
    store_tiles<kRows, kColumns>(sum[0], kWidth);
    for (std::int64_t r = 0; r < kRows * kTileRows; r++) {
        for (std::int64_t d = 0; d < kWidth; d += kLanes) {
            float* to = o + r * dv + d;
            store(to, mul_add(load(to), all(factor[r]), load(sum[r] + d)));
        }
    }
}

// As pv_product(): the 64 keys of the tile are summed on their own.
void tile_values(const std::uint32_t* p, const std::uint32_t* v, std::int64_t rows, std::int64_t dv,
                 const float* factor, float* o) {
    for (std::int64_t d = 0; d < dv; d += 2 * kTileRows) {
        const bool wide = dv - d >= 2 * kTileRows;
        for (std::int64_t r = 0; r < rows; r += 2 * kTileRows) {
            const bool high = rows - r >= 2 * kTileRows;
            const auto of = high ? (wide ? tile_values_of<2, 2> : tile_values_of<2, 1>)
                                 : (wide ? tile_values_of<1, 2> : tile_values_of<1, 1>);
            of(p + r * (kTile / 2), v + d, dv, factor + r, o + r * dv + d);
        }
    }
}

}  // namespace
}  // namespace quatt::cpu

// The results of 16-row blocks: out in three formats and any strides, and the LSE.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::epilogue {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;

struct Output {
    enum class Type : u32 { kBf16, kF16, kF32 };
    ptx::Global<u16> out16;  // bf16 or f16
    ptx::Global<float> out32;
    tile::Strides strides;
    ptx::Global<float> lse;
    i64 lse_head, lse_token;
    u32 channels;
    Type type;
    bool has_lse;
    bool pairs;  // `channels` is even, and two neighbouring channels of out may be stored at once
    bool bulk;   // 16 bits a number, and each row is a whole number of 16 bytes at a multiple of 16
};

// Two neighbouring channels as bf16 or f16.
QUATT_DEV u32 pack_out(Output::Type type, float x, float y) {
    return type == Output::Type::kF16 ? ptx::pack_f16x2(x, y) : ptx::pack_bf16x2(x, y);
}

// Writes channels 8 n + 2 t and 8 n + 2 t + 1, n < Tiles, of Rows rows of a lane:
// value(r, n, i) of row row_of(r) goes to out[at + row * strides.token + channel], if the row is
// below row_count. NOTE: the formats are apart, and each small, or the compiler keeps a loop and
// moves the accumulators to local memory.
template <u32 Rows, u32 Tiles, class RowOf, class Value>
QUATT_DEV void store_rows(const Output& to, i64 at, i32 row_count, u32 t, RowOf&& row_of,
                          Value&& value) {
    // emit(element of out, channel, y of it, y of the next channel)
    const auto each = [&](auto&& emit) {
        QUATT_UNROLL
        for (u32 r = 0; r < Rows; r++) {
            if (row_of(r) < row_count) {
                const i64 row_at = at + row_of(r) * to.strides.token;
                QUATT_UNROLL
                for (u32 n = 0; n < Tiles; n++) {
                    const u32 channel = 8 * n + 2 * t;
                    if (channel < to.channels) {
                        emit(row_at, channel, value(r, n, 0), value(r, n, 1));
                    }
                }
            }
        }
    };
    const auto pack = [&](float x, float y) { return pack_out(to.type, x, y); };
    if (to.pairs && to.type == Output::Type::kF32) {
        each([&](i64 row_at, u32 channel, float x, float y) {
            to.out32.store(row_at + channel, ptx::F32x2{x, y});
        });
    } else if (to.pairs) {
        each([&](i64 row_at, u32 channel, float x, float y) {
            to.out16.store(row_at + channel, pack(x, y));
        });
    } else {
        each([&](i64 row_at, u32 channel, float x, float y) {
            const u32 packed = pack(x, y);
            const i64 first = row_at + channel * to.strides.channel,
                      second = first + to.strides.channel;
            const bool both = channel + 1 < to.channels;
            if (to.type == Output::Type::kF32) {
                to.out32.store(first, x);
                if (both) {
                    to.out32.store(second, y);
                }
            } else {
                to.out16.store(first, u16(packed));
                if (both) {
                    to.out16.store(second, u16(packed >> 16));
                }
            }
        });
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::epilogue

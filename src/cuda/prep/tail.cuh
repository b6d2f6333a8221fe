// Rows of the packed stream past the last segment: out = 0, lse = -inf, where the call asks for it.
#pragma once

#include <cmath>

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/segments.hpp"
#include "cuda/tile/turn.hpp"

namespace quatt::prep {
inline namespace QUATT_ABI {

inline constexpr ptx::u32 kTailThreads = 256;

struct TailParams {
    ptx::Global<const ptx::u32> work;
    ptx::Global<ptx::u16> out16;  // one of the two
    ptx::Global<float> out32;
    tile::Strides out_strides;
    ptx::Global<float> lse;
    ptx::i64 lse_head, lse_token;
    ptx::i64 out_origin, lse_origin;  // element 0 of each in its view
    ptx::u32 tokens_q, heads_q, channels;
    bool is_f32, has_lse;
};

// grid: (any, heads)
template <class = void>
QUATT_KERNEL(kTailThreads) zero_tail(const TailParams p) {
    tile::take_turn();
    const ptx::i64 used = p.work.load(tile::kUsedRows);
    const ptx::i64 head = ptx::block_y(), count = (p.tokens_q - used) * p.channels;
    QUATT_NO_UNROLL
    for (ptx::i64 i = ptx::i64(ptx::block_x()) * kTailThreads + ptx::thread_x(); i < count;
         i += ptx::i64(ptx::blocks_x()) * kTailThreads) {
        const ptx::i64 row = used + i / p.channels, channel = i % p.channels;
        const ptx::i64 at = p.out_origin + row * p.out_strides.token + head * p.out_strides.head +
                            channel * p.out_strides.channel;
        if (p.is_f32) {
            p.out32.store(at, 0.0f);
        } else {
            p.out16.store(at, ptx::u16(0));
        }
        if (p.has_lse && channel == 0) {
            p.lse.store(p.lse_origin + head * p.lse_head + row * p.lse_token, -INFINITY);
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::prep

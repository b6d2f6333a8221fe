// Rows of the packed stream past the last segment: out = 0, lse = -inf, where the call asks for it.
#pragma once

#include <cmath>

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/segments.hpp"

namespace quatt::prep {
inline namespace QUATT_ABI {

inline constexpr ptx::u32 kTailThreads = 256;

struct TailParams {
    ptx::Global<const ptx::i32> cu_seqlens_q;  // [segments + 1]
    ptx::i64 cu_q_stride;
    ptx::Global<ptx::u16> out16;  // one of the two
    ptx::Global<float> out32;
    tile::Strides out_strides;
    ptx::Global<float> lse;
    ptx::i64 lse_head, lse_token;
    ptx::u32 segments, tokens_q, heads_q, channels;
    bool is_f32, has_lse;
};

// grid: (any, heads)
template <class = void>
QUATT_KERNEL(kTailThreads) zero_tail(const TailParams p) {
    const ptx::i64 end = p.cu_seqlens_q.load(p.segments * p.cu_q_stride);
    const ptx::i64 used = end < 0 || end > p.tokens_q ? p.tokens_q : end;  // bad lengths: nothing is known to be past them
    const ptx::i64 head = ptx::block_y(), count = (p.tokens_q - used) * p.channels;
    QUATT_NO_UNROLL for (ptx::i64 i = ptx::i64(ptx::block_x()) * kTailThreads + ptx::thread_x(); i < count;
                         i += ptx::i64(ptx::blocks_x()) * kTailThreads) {
        const ptx::i64 row = used + i / p.channels, channel = i % p.channels;
        const ptx::i64 at = row * p.out_strides.token + head * p.out_strides.head + channel * p.out_strides.channel;
        if (p.is_f32) {
            p.out32.store(at, 0.0f);
        } else {
            p.out16.store(at, ptx::u16(0));
        }
        if (p.has_lse && channel == 0) {
            p.lse.store(head * p.lse_head + row * p.lse_token, -INFINITY);
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::prep

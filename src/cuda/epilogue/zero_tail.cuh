// Rows of the packed stream past the last segment: out = 0, lse = -inf, where the call asks for it.
#pragma once

#include <cmath>

#include "cuda/epilogue/output.cuh"
#include "cuda/launch/pdl.hpp"
#include "cuda/ptx/ptx.hpp"
#include "cuda/worklist/segments.hpp"

namespace quatt::epilogue {
inline namespace QUATT_ABI {

inline constexpr ptx::u32 kTailThreads = 256;

struct TailParams {
    ptx::Global<const ptx::u32> work;
    Output out;
    ptx::i64 out_origin, lse_origin;  // element 0 of each in its view
    ptx::u32 tokens_q;
};

// grid: (any, heads)
template <class = void>
QUATT_KERNEL(kTailThreads) zero_tail(const TailParams p) {
    launch::pdl_wait_then_trigger();
    const ptx::i64 used = p.work.load(worklist::kUsedRows);
    const ptx::i64 head = ptx::block_y(), count = (p.tokens_q - used) * p.out.channels;
    QUATT_NO_UNROLL
    for (ptx::i64 i = ptx::i64(ptx::block_x()) * kTailThreads + ptx::thread_x(); i < count;
         i += ptx::i64(ptx::blocks_x()) * kTailThreads) {
        const ptx::i64 row = used + i / p.out.channels, channel = i % p.out.channels;
        const ptx::i64 at = p.out_origin + row * p.out.strides.token + head * p.out.strides.head +
                            channel * p.out.strides.channel;
        if (p.out.type == Output::Type::kF32) {
            p.out.out32.store(at, 0.0f);
        } else {
            p.out.out16.store(at, ptx::u16(0));
        }
        if (p.out.has_lse && channel == 0) {
            p.out.lse.store(p.lse_origin + head * p.out.lse_head + row * p.out.lse_token,
                            -INFINITY);
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::epilogue

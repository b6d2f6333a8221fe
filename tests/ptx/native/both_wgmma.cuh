// A kernel that writes down what wgmma gives, for a GPU of sm_90a and the executor.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {
namespace wgmma_record {

using ptx::i64;
using ptx::u32;
using ptx::u64;
using ptx::u8;

inline constexpr u32 kRowsA = 64, kRowsB = 128, kDepth = 128;  // bytes along K
inline constexpr u32 kCases = 6, kValues = kRowsA * kRowsB;    // of a case; N = 64 uses half
inline constexpr u32 kSharedBytes = (kRowsA + kRowsB) * kDepth;

struct Params {
    tile::Global<const u8> a;     // [blocks, 64, 128] E4M3
    tile::Global<const u8> b;     // [blocks, 128, 128] E4M3
    tile::Global<const float> c;  // [blocks, 64, 128]
    tile::Global<float> out;      // [blocks, cases, 64, N]
};

// The first Span bytes of each row, in that swizzle.
template <u32 Span>
QUATT_DEV void fill(tile::Shared to, tile::Global<const u8> from, u32 rows) {
    constexpr u32 kChunks = Span / 16;
    QUATT_NO_UNROLL
    for (u32 i = ptx::thread_x(); i < rows * kChunks; i += 128) {
        const u32 row = i / kChunks, chunk = i % kChunks;
        to.store(row * Span + (chunk ^ (row * Span / 128 % kChunks)) * 16,
                 from.load<ptx::U32x4>(i64(row) * kDepth + chunk * 16));
    }
}

template <u32 N, u32 Span, bool InRegisters>
QUATT_DEV void product(const Params& p, u32 block, u32 number, bool accumulate) {
    const tile::Shared shared = ptx::dynamic_shared(kSharedBytes);
    const tile::Shared sa = shared.sub(0, kRowsA * kDepth);
    const tile::Shared sb = shared.sub(kRowsA * kDepth, kRowsB * kDepth);
    const auto a = p.a.sub(i64(block) * (kRowsA * kDepth), kRowsA * kDepth);
    const auto c = p.c.sub(i64(block) * kValues, kValues);
    const auto out = p.out.sub(i64(block * kCases + number) * kValues, kValues);
    ptx::barrier_sync();
    fill<Span>(sa, a, kRowsA);
    fill<Span>(sb, p.b.sub(i64(block) * (kRowsB * kDepth), kRowsB * kDepth), N);
    ptx::fence_proxy_async();
    ptx::barrier_sync();

    const u32 lane = ptx::lane_id(), row = ptx::warp_id() * 16 + lane / 4;
    const auto at = [&](u32 i) {
        return i64(row + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    };
    float d[N / 2];
    u32 ra[Span / 32][4];
    QUATT_UNROLL
    for (u32 i = 0; i < N / 2; i++)
        d[i] = c.load(at(i));
    QUATT_UNROLL
    for (u32 i = 0; i < Span / 8; i++)
        ra[i / 4][i % 4] = a.load<u32>(i64(row + 8 * (i % 2)) * kDepth + 32 * (i / 4) +
                                       16 * (i / 2 % 2) + 4 * (lane % 4));
    ptx::wgmma_fence();
    QUATT_UNROLL
    for (u32 step = 0; step < Span / 32; step++) {
        const u64 b = ptx::k_major<Span>(sb.sub(32 * step, N * Span - 32 * step));
        const bool add = accumulate || step != 0;
        if constexpr (InRegisters)
            ptx::wgmma_e4m3<N>(d, ra[step], b, add);
        else
            ptx::wgmma_e4m3<N>(d, ptx::k_major<Span>(sa.sub(32 * step, kRowsA * Span - 32 * step)),
                               b, add);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    QUATT_UNROLL
    for (u32 i = 0; i < N / 2; i++)
        out.store(at(i), d[i]);
}

// One warpgroup a block.
QUATT_KERNEL(128) record(const Params p) {
    const u32 block = ptx::block_x();
    product<64, 128, false>(p, block, 0, false);
    product<128, 128, false>(p, block, 1, true);
    product<128, 64, false>(p, block, 2, true);
    product<64, 64, true>(p, block, 3, false);
    product<128, 128, true>(p, block, 4, true);
    product<64, 32, true>(p, block, 5, true);
}

}  // namespace wgmma_record
}  // namespace QUATT_ABI
}  // namespace quatt::test

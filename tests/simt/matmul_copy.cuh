// The product with cp.async and two stages: ordered by waits and named barriers.
#pragma once

#include "simt/tiles.cuh"

namespace quatt::test {
inline namespace QUATT_ABI {
namespace copy_kernel {

inline constexpr u32 kWarps = 4, kThreads = 32 * kWarps, kTileK = 64, kStages = 2;
inline constexpr u32 kFull = 1, kFree = 2;  // named barriers

struct SharedPlan {
    u8 a[kStages][kTileM * kTileK];
    u8 b[kStages][kTileN * kTileK];
    u8 out[kTileM * kOutRow];
};

struct Params {
    tile::Global<const u8> a;  // [m, k] E4M3
    tile::Global<const u8> b;  // [n, k] E4M3
    tile::Global<float> c;     // [m, n]
    u32 m, n, k;               // n % 32 == 0, k % 64 == 0
};

// What a test can take away or put in; kNone is the kernel.
enum class Planted {
    kNone,
    kNoWait,             // the wait for the copies
    kNoFullBarrier,      // the barrier before a stage is read
    kNoFreeBarrier,      // the barrier before a stage is filled again
    kSmallCount,         // the full barrier lets two warps through
    kUnequalCounts,      // warps disagree on the count
    kNoSyncwarp,         // between a warp's writes and reads of its rows
    kDivergent,          // two halves of a warp in different shuffles
    kOutOfBounds,        // rows past m are read
    kSharedOutOfBounds,  // one chunk past a stage
    kMisaligned,
    kEndless,        // the retry loop has no bound
    kEarlyReturn,    // lanes leave before the last collective
    kMissedBarrier,  // a warp skips a barrier
    kNoTailWait,     // ends with copies in flight
    kUninitialised,  // reads a row that nobody wrote
};

template <Planted P = Planted::kNone>
QUATT_KERNEL(kThreads) matmul(const Params p) {
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id();
    const u32 m0 = ptx::block_y() * kTileM, n0 = ptx::block_x() * kTileN;
    const tile::Shared shared = ptx::dynamic_shared(sizeof(SharedPlan));
    const auto b_rows = p.b.sub(i64(n0) * p.k, i64(kTileN) * p.k);

    // 64-byte rows; the XOR spreads the rows of an 8-row matrix over the banks.
    const auto place = [](u32 row, u32 chunk) {
        return row * kTileK + ((chunk ^ (row / 2 % 4)) * kChunk);
    };
    const auto stage_a = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, a) + stage * kTileM * kTileK, kTileM * kTileK);
    };
    const auto stage_b = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, b) + stage * kTileN * kTileK, kTileN * kTileK);
    };
    const auto fill = [&](u32 stage, u32 tile) {
        QUATT_UNROLL
        for (u32 i = 0; i < kTileM * kTileK / kChunk / kThreads; i++) {
            const u32 index = thread + i * kThreads, row = index / 4, chunk = index % 4;
            const bool is_real = m0 + row < p.m || P == Planted::kOutOfBounds;
            const i64 from = is_real ? i64(m0 + row) * p.k + tile * kTileK + chunk * kChunk : 0;
            const u32 to = place(row, chunk) + (P == Planted::kSharedOutOfBounds ? kChunk : 0) +
                           (P == Planted::kMisaligned ? 4 : 0);
            ptx::cp_async<16>(stage_a(stage), to, p.a, from, is_real ? 16 : 0);
        }
        const u32 row = thread / 4, chunk = thread % 4;
        ptx::cp_async<16>(stage_b(stage), place(row, chunk), b_rows,
                          i64(row) * p.k + tile * kTileK + chunk * kChunk);
    };

    float acc[4][4] = {};
    const u32 tiles = p.k / kTileK;
    fill(0, 0);
    ptx::cp_async_commit();
    QUATT_NO_UNROLL
    for (u32 tile = 0; tile < tiles; tile++) {
        const u32 stage = tile % kStages;
        if (tile + 1 < tiles || P == Planted::kNoTailWait)
            fill(stage ^ 1, tile + 1 < tiles ? tile + 1 : 0);
        ptx::cp_async_commit();
        if constexpr (P != Planted::kNoWait) ptx::cp_async_wait<1>();
        if constexpr (P == Planted::kUnequalCounts)
            ptx::barrier_sync(kFull, warp == 0 ? kThreads : kThreads / 2);
        else if constexpr (P != Planted::kNoFullBarrier)
            ptx::barrier_sync(kFull, P == Planted::kSmallCount ? kThreads / 2 : kThreads);
        QUATT_UNROLL
        for (u32 step = 0; step < kTileK / kMmaK; step++)
            multiply_step(acc, stage_a(stage), stage_b(stage), kRowsPerWarp * warp, step, place,
                          place);
        if (P == Planted::kMissedBarrier && warp == 1 && tile == 1) continue;
        if constexpr (P != Planted::kNoFreeBarrier) ptx::barrier_sync(kFree, kThreads);
    }

    // Large sums are halved, whole warps at a time; bounded, since NaN would ask for ever.
    float scale = 1;
    QUATT_NO_UNROLL
    for (u32 tries = 0; tries < 3 || P == Planted::kEndless; tries++) {
        bool is_large = false;
        QUATT_UNROLL
        for (u32 i = 0; i < 16; i++) {
            const float value = acc[i / 4][i % 4];
            is_large = is_large || ptx::max(value, -value) > 64;
        }
        if (!ptx::any(is_large) && P != Planted::kEndless) break;
        QUATT_UNROLL
        for (u32 i = 0; i < 16; i++)
            acc[i / 4][i % 4] *= 0.5f;
        scale *= 2;
    }

    if (P == Planted::kEarlyReturn && lane > 20) return;
    const tile::Shared out = shared.sub(offsetof(SharedPlan, out), kTileM * kOutRow);
    const u32 first_row = kRowsPerWarp * warp;
    if (P != Planted::kUninitialised || warp != 2) store_accumulators(acc, out, first_row);
    if constexpr (P == Planted::kDivergent) {
        if (lane % 2 == 0)
            scale = ptx::shfl_idx(scale, 0);
        else
            scale = ptx::shfl_idx(scale, 1);
    }
    if constexpr (P != Planted::kNoSyncwarp) ptx::syncwarp();
    QUATT_UNROLL
    for (u32 i = 0; i < kRowsPerWarp / 4; i++) {
        const u32 row = first_row + 4 * i + lane / 8, column = lane % 8 * 4;
        ptx::F32x4 v = out.load<ptx::F32x4>((row * kTileN + column) * 4);
        v = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
        if (m0 + row < p.m) p.c.store(i64(m0 + row) * p.n + n0 + column, v);
    }
}

}  // namespace copy_kernel
}  // namespace QUATT_ABI
}  // namespace quatt::test

// The product with tensor copies: a producer warp, four consumer warps, a ring of two stages
// between full and empty mbarriers, and the result written by a bulk store.
#pragma once

#include "simt/tiles.cuh"

namespace quatt::test {
inline namespace QUATT_ABI {
namespace bulk_kernel {

inline constexpr u32 kConsumers = 4, kThreads = 32 * (kConsumers + 1), kTileK = 128, kStages = 2;
inline constexpr u32 kStageBytes = (kTileM + kTileN) * kTileK;
inline constexpr u32 kOutReady = 1;  // named barrier

struct SharedPlan {
    u8 a[kStages][kTileM * kTileK];
    u8 b[kStages][kTileN * kTileK];
    u8 out[kTileM * kOutRow];
    u8 full[kStages][8];
    u8 empty[kStages][8];
};

struct Params {
    ptx::TensorMap a;  // [m, k] E4M3, box 64 x 128, 128-byte swizzle
    ptx::TensorMap b;  // [n, k] E4M3, box 32 x 128, 128-byte swizzle
    ptx::TensorMap c;  // [m, n] fp32, box 64 x 32
    u32 k;
};

enum class Planted {
    kNone,
    kNoFullWait,   // consumers do not wait for the bytes
    kNoEmptyWait,  // the producer does not wait for the consumers
    kEarlyEmpty,   // consumers let go of a stage before they read it
    kNoEmptyArrive,
    kNoSyncwarp,     // lane 0 lets go of a stage for lanes that may still read it
    kNoProxyFence,   // between the writes of C and the bulk store
    kNoInitFence,    // between mbarrier.init and the first copy
    kNoInitBarrier,  // the block does not wait for mbarrier.init
    kSmallExpect,    // fewer bytes are expected than come
    kLargeExpect,
    kWrongCount,  // the barrier before the bulk store counts the producer too
    kNoStoreWait,
    kMisplacedBox,  // a destination that the swizzle does not allow
};

template <Planted P = Planted::kNone>
QUATT_KERNEL(kThreads) matmul(QUATT_GRID_CONSTANT(Params) p) {
    const u32 lane = ptx::lane_id(), warp = ptx::warp_id();
    const i32 m0 = i32(ptx::block_y() * kTileM), n0 = i32(ptx::block_x() * kTileN);
    const tile::Shared shared = ptx::dynamic_shared(sizeof(SharedPlan));
    const auto stage_a = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, a) + stage * kTileM * kTileK, kTileM * kTileK);
    };
    const auto stage_b = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, b) + stage * kTileN * kTileK, kTileN * kTileK);
    };
    const auto full = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, full) + 8 * stage, 8);
    };
    const auto empty = [&](u32 stage) {
        return shared.sub(offsetof(SharedPlan, empty) + 8 * stage, 8);
    };

    if (warp == 0 && lane == 0) {
        QUATT_UNROLL
        for (u32 s = 0; s < kStages; s++) {
            ptx::mbarrier_init(full(s), 1);
            ptx::mbarrier_init(empty(s), kConsumers);
        }
        if constexpr (P != Planted::kNoInitFence) ptx::fence_mbarrier_init();
    }
    if constexpr (P != Planted::kNoInitBarrier) ptx::barrier_sync();

    const u32 tiles = p.k / kTileK;
    if (warp == kConsumers) {
        if (lane == 0) {
            QUATT_NO_UNROLL
            for (u32 tile = 0; tile < tiles; tile++) {
                const u32 stage = tile % kStages, round = tile / kStages;
                if constexpr (P != Planted::kNoEmptyWait)
                    ptx::mbarrier_wait(empty(stage), (round + 1) % 2);
                constexpr u32 kExpected = P == Planted::kSmallExpect   ? kStageBytes - 4096
                                          : P == Planted::kLargeExpect ? kStageBytes + 16
                                                                       : kStageBytes;
                ptx::mbarrier_arrive_expect_tx(full(stage), kExpected);
                const i32 k0 = i32(tile * kTileK);
                if constexpr (P == Planted::kMisplacedBox)
                    ptx::tensor_load_2d(shared.sub(512, kTileM * kTileK), p.a, k0, m0, full(stage));
                else
                    ptx::tensor_load_2d(stage_a(stage), p.a, k0, m0, full(stage));
                ptx::tensor_load_2d(stage_b(stage), p.b, k0, n0, full(stage));
            }
        }
        if (P == Planted::kWrongCount) ptx::barrier_arrive(kOutReady, kThreads);
    } else {
        // The 128-byte swizzle: chunk c of row r lies at chunk c ^ (r % 8).
        const auto place = [](u32 row, u32 chunk) {
            return row * kTileK + ((chunk ^ (row % 8)) * kChunk);
        };
        const u32 first_row = kRowsPerWarp * warp;
        float acc[4][4] = {};
        QUATT_NO_UNROLL
        for (u32 tile = 0; tile < tiles; tile++) {
            const u32 stage = tile % kStages, round = tile / kStages;
            if constexpr (P != Planted::kNoFullWait) ptx::mbarrier_wait(full(stage), round % 2);
            if (P == Planted::kEarlyEmpty && lane == 0) ptx::mbarrier_arrive(empty(stage));
            QUATT_UNROLL
            for (u32 step = 0; step < kTileK / kMmaK; step++)
                multiply_step(acc, stage_a(stage), stage_b(stage), first_row, step, place, place);
            if constexpr (P != Planted::kNoSyncwarp) ptx::syncwarp();
            if (P != Planted::kNoEmptyArrive && P != Planted::kEarlyEmpty && lane == 0)
                ptx::mbarrier_arrive(empty(stage));
        }
        const tile::Shared out = shared.sub(offsetof(SharedPlan, out), kTileM * kOutRow);
        store_accumulators(acc, out, first_row);
        if constexpr (P != Planted::kNoProxyFence) ptx::fence_proxy_async();
        ptx::barrier_sync(kOutReady, P == Planted::kWrongCount ? kThreads - 64 : 32 * kConsumers);
        if (warp == 0 && lane == 0) {
            ptx::tensor_store_2d(p.c, n0, m0, out);
            ptx::bulk_commit();
            if constexpr (P != Planted::kNoStoreWait) ptx::bulk_wait_read<0>();
        }
    }
}

}  // namespace bulk_kernel
}  // namespace QUATT_ABI
}  // namespace quatt::test

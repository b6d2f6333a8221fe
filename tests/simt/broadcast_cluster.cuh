// A pipeline over a cluster of two blocks: each loads half of every tile and sends it to both, and
// a stage is loaded again when the warps of both blocks have let go of it. Each block sums its
// rows.
#pragma once

#include <cstddef>

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {
namespace cluster_kernel {

using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

inline constexpr u32 kCluster = 2, kConsumers = 2, kThreads = 32 * (kConsumers + 1), kStages = 2;
inline constexpr u32 kTileBytes = 1024, kPart = kTileBytes / kCluster;

struct SharedPlan {
    u8 tile[kStages][kTileBytes];
    u8 full[kStages][8];
    u8 empty[kStages][8];
};

struct Params {
    tile::Global<const u8> in;  // [tiles, 1024]
    tile::Global<u32> out;      // [blocks, 64 threads]
    u32 tiles;
};

enum class Planted {
    kNone,
    kNoStartSync,   // others may use an mbarrier before its init
    kNoEndSync,     // a block may end before the other's last arrival
    kNoFullWait,    // bytes are read before they are there
    kNoEmptyWait,   // the other block's stage is filled while it is read
    kOwnEmptyOnly,  // only this block's warps are waited for
    kEarlyArrive,   // a warp lets go of a stage before it reads it
    kNoSyncwarp,    // lane 0 lets go of a stage for lanes that may still read it
    kSmallExpect,   // a block expects its own half only
    kWrongRank,     // an arrival beyond the cluster
    kWrongRanks,    // a copy to a block beyond the cluster
    kNoInitFence,   // between mbarrier.init and the first copy
};

template <Planted P>
QUATT_DEV void produce(const Params& p, tile::Shared shared, u32 rank) {
    QUATT_NO_UNROLL
    for (u32 tile = 0; tile < p.tiles; tile++) {
        const u32 stage = tile % kStages, round = tile / kStages;
        const tile::Shared full = shared.sub(offsetof(SharedPlan, full) + 8 * stage, 8);
        if constexpr (P != Planted::kNoEmptyWait)
            ptx::mbarrier_wait(shared.sub(offsetof(SharedPlan, empty) + 8 * stage, 8),
                               (round + 1) % 2);
        ptx::mbarrier_arrive_expect_tx(full, P == Planted::kSmallExpect ? kPart : kTileBytes);
        const u16 ranks = P == Planted::kWrongRanks ? 5 : 3;
        ptx::bulk_load_multicast(
            shared.sub(offsetof(SharedPlan, tile) + stage * kTileBytes + rank * kPart, kPart),
            p.in.sub(i64(tile) * kTileBytes + rank * kPart, kPart), kPart, full, ranks);
    }
}

template <Planted P>
QUATT_DEV void consume(const Params& p, tile::Shared shared) {
    const u32 lane = ptx::lane_id(), thread = ptx::thread_x();
    u32 sum = 0;
    QUATT_NO_UNROLL
    for (u32 tile = 0; tile < p.tiles; tile++) {
        const u32 stage = tile % kStages, round = tile / kStages;
        const tile::Shared empty = shared.sub(offsetof(SharedPlan, empty) + 8 * stage, 8);
        const auto let_go = [&] {
            if (lane < kCluster && (P != Planted::kOwnEmptyOnly || lane == ptx::cluster_rank()))
                ptx::mbarrier_arrive_at(empty, lane + (P == Planted::kWrongRank ? 1 : 0));
        };
        if constexpr (P != Planted::kNoFullWait)
            ptx::mbarrier_wait(shared.sub(offsetof(SharedPlan, full) + 8 * stage, 8), round % 2);
        if constexpr (P == Planted::kEarlyArrive) let_go();
        const u32 at = offsetof(SharedPlan, tile) + stage * kTileBytes + 4 * thread;
        QUATT_UNROLL
        for (u32 i = 0; i < kTileBytes / 256; i++)
            sum = sum * 5 + shared.load<u32>(at + 256 * i);
        if constexpr (P != Planted::kNoSyncwarp) ptx::syncwarp();
        if constexpr (P != Planted::kEarlyArrive) let_go();
    }
    p.out.store(i64(ptx::block_x()) * 64 + thread, sum);
}

template <Planted P = Planted::kNone>
QUATT_KERNEL(kThreads) broadcast(const Params p) {
    const tile::Shared shared = ptx::dynamic_shared(sizeof(SharedPlan));
    const u32 rank = ptx::cluster_rank();
    if (ptx::thread_x() == 0) {
        constexpr u32 kArrivals = P == Planted::kOwnEmptyOnly ? kConsumers : kConsumers * kCluster;
        QUATT_UNROLL
        for (u32 s = 0; s < kStages; s++) {
            ptx::mbarrier_init(shared.sub(offsetof(SharedPlan, full) + 8 * s, 8), 1);
            ptx::mbarrier_init(shared.sub(offsetof(SharedPlan, empty) + 8 * s, 8), kArrivals);
        }
        if constexpr (P != Planted::kNoInitFence) ptx::fence_mbarrier_init();
    }
    if constexpr (P == Planted::kNoStartSync)
        ptx::barrier_sync();
    else
        ptx::cluster_sync();
    if (ptx::warp_id() == kConsumers) {
        if (ptx::lane_id() == 0) produce<P>(p, shared, rank);
        ptx::syncwarp();
    } else {
        consume<P>(p, shared);
    }
    if constexpr (P != Planted::kNoEndSync) ptx::cluster_sync();
}

}  // namespace cluster_kernel
}  // namespace QUATT_ABI
}  // namespace quatt::test

// How K and V come into shared memory, tile by tile: packed tiles by bulk copies that one thread
// asks for, or rows of 16-bit numbers by copies of all threads. A kernel has one of the two:
//
//   request(n, used)   asks for position n of the walk, as the used-th tile of the block
//   wait(used)         the tile is there, for this warp
//   release(stage)     this warp has read it
#pragma once

#include "cuda/warp_mma/config.hpp"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

// 16-byte chunk `chunk` of row `row`, in rows of Pitch bytes: eight rows of a matrix fall on eight
// different bank groups, in rows of 64 and 128 bytes because the quantiser swizzled the chunks, in
// others because Pitch is an odd number of chunks.
template <u32 Pitch>
QUATT_DEV u32 chunk_at(u32 row, u32 chunk) {
    if constexpr (Pitch == 64 || Pitch == 128) {
        return row * Pitch + tile::swizzled_chunk(Pitch, row, chunk) * 16;
    } else {
        static_assert(Pitch / 16 % 2 == 1);
        return row * Pitch + chunk * 16;
    }
}

// Where an item's tiles are.
template <class C>
struct ItemKeys {
    typename C::Walk walk;
    i32 keys;        // of the segment
    i32 k_tile;      // packed: its first tile in [Hkv, k_tiles], of which there are below 2^31
    i64 k_at, v_at;  // rows: token 0 of the segment and head
};

template <class C>
struct StageViews {
    ptx::Shared all;

    [[nodiscard]] QUATT_DEV ptx::Shared k(u32 stage) const {
        return all.sub(offsetof(SharedPlan<C>, k) + stage * C::kTileBytes, C::kTileBytes);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared v(u32 stage) const {
        return all.sub(offsetof(SharedPlan<C>, v) + stage * C::kTileBytes, C::kTileBytes);
    }
};

template <class C>
struct PackedTiles {
    StageViews<C> stages;
    const schedule::AttendParams& p;
    u32 thread;

    QUATT_DEV PackedTiles(const schedule::AttendParams& params, ptx::Shared shared, u32 thread_x)
        : stages{shared}, p(params), thread(thread_x) {
        if (thread == 0) {
            QUATT_UNROLL
            for (u32 s = 0; s < C::kStages; s++) {
                ptx::mbarrier_init(full(s), 1);
                ptx::mbarrier_init(empty(s), C::kWarps);
            }
            ptx::fence_mbarrier_init();
        }
        // NOTE: the barriers around an item's number come before any use. PTX ISA 9.7.13.1
    }

    QUATT_DEV void request(const ItemKeys<C>& item, i32 n, u32 used) const {
        if (thread == 0) {
            const u32 stage = used % C::kStages;
            const i64 at = i64(item.k_tile + item.walk.tile(n)) * C::kTileBytes;
            ptx::mbarrier_wait(empty(stage), (used / C::kStages + 1) % 2);
            ptx::mbarrier_arrive_expect_tx(full(stage), 2 * C::kTileBytes);
            ptx::bulk_load(stages.k(stage), p.packed.k.sub(at, C::kTileBytes), C::kTileBytes,
                           full(stage));
            ptx::bulk_load(stages.v(stage), p.packed.v.sub(at, C::kTileBytes), C::kTileBytes,
                           full(stage));
        }
    }
    QUATT_DEV void wait(u32 used) const {
        ptx::mbarrier_wait(full(used % C::kStages), used / C::kStages % 2);
    }
    QUATT_DEV void release(u32 stage) const {
        ptx::fence_proxy_async();  // our reads come before the copy that refills the stage
        ptx::syncwarp();
        if (thread % 32 == 0) {
            ptx::mbarrier_arrive(empty(stage));
        }
    }

private:
    [[nodiscard]] QUATT_DEV ptx::Shared full(u32 stage) const {
        return stages.all.sub(offsetof(SharedPlan<C>, full) + 8 * stage, 8);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared empty(u32 stage) const {
        return stages.all.sub(offsetof(SharedPlan<C>, empty) + 8 * stage, 8);
    }
};

// ZeroFills: rows past the last key are zeros; P is 0 there, but 0 times NaN is not.
template <class C, bool ZeroFills>
struct RowTiles {
    StageViews<C> stages;
    const schedule::AttendParams& p;
    u32 thread;

    QUATT_DEV RowTiles(const schedule::AttendParams& params, ptx::Shared shared, u32 thread_x)
        : stages{shared}, p(params), thread(thread_x) {}

    QUATT_DEV void request(const ItemKeys<C>& item, i32 n, u32 used) const {
        // A thread copies the same chunk of every kStep-th row.
        constexpr u32 kChunks = C::kRowBytes / 16, kStep = C::kThreads / kChunks,
                      kCopies = C::kKeys / kStep;
        const u32 stage = used % C::kStages, row = thread / kChunks, chunk = thread % kChunks;
        const i32 key_tile = item.walk.tile(n);
        const i64 key = i64(key_tile) * C::kKeys + row;
        const i64 k_from = item.k_at + key * p.rows.k_strides.token + 8 * chunk;
        const i64 v_from = item.v_at + key * p.rows.v_strides.token + 8 * chunk;
        const auto copy = [&](u32 i, bool is_real) {
            const u32 to = chunk_at<C::kPitch>(row + i * kStep, chunk), bytes = is_real ? 16 : 0;
            ptx::cp_async<16>(stages.k(stage), to, p.rows.k,
                              is_real ? k_from + i * kStep * p.rows.k_strides.token : 0, bytes);
            ptx::cp_async<16>(stages.v(stage), to, p.rows.v,
                              is_real ? v_from + i * kStep * p.rows.v_strides.token : 0, bytes);
        };
        if ((key_tile + 1) * i32(C::kKeys) <= item.keys || !ZeroFills) {
            QUATT_UNROLL
            for (u32 i = 0; i < kCopies; i++) {
                copy(i, true);
            }
        } else {
            QUATT_UNROLL
            for (u32 i = 0; i < kCopies; i++) {
                copy(i, key + i * kStep < item.keys);
            }
        }
        ptx::cp_async_commit();
    }
    QUATT_DEV void wait(u32) const {
        ptx::cp_async_wait<0>();
        ptx::barrier_sync();  // the tile is here for all, and all have left the other stage
    }
    QUATT_DEV void release(u32) const {}
};

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma

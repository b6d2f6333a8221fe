// Two chained products by wgmma, as attention has them: for each tile of 64 keys S = Q K^T, P = the
// E4M3 codes of S / 64, O += P V. A producer warpgroup loads tiles, two consumer warpgroups take 64
// rows each.
#pragma once

#include <cstddef>

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {
namespace wgmma_kernel {

using ptx::i32;
using ptx::i64;
using ptx::u32;
using ptx::u64;
using ptx::u8;

inline constexpr u32 kConsumers = 2, kThreads = 128 * (kConsumers + 1), kStages = 2;
inline constexpr u32 kRows = 64 * kConsumers, kKeys = 64, kDim = 128, kDimV = 64;
inline constexpr u32 kKBytes = kKeys * kDim, kVBytes = kDimV * kKeys;

struct SharedPlan {
    u8 q[kRows * kDim];
    u8 k[kStages][kKBytes];
    u8 v[kStages][kVBytes];
    u8 full[kStages][8];
    u8 empty[kStages][8];
};

struct Params {
    tile::Global<const u8> q;  // [128, 128] E4M3
    ptx::TensorMap k;          // [keys, 128] E4M3, box 64 x 128, 128-byte swizzle
    ptx::TensorMap v;  // [64, keys] E4M3, keys in the order of P, box 64 x 64, 64-byte swizzle
    tile::Global<float> out;  // [128, 64]
    u32 tiles;
};

enum class Planted {
    kNone,
    kNoScoreWait,     // the scores are read while their wgmma runs
    kNoFinalWait,     // threads end with a wgmma in flight
    kNoCommit,        // or with one in no group
    kNoFirstFence,    // no wgmma.fence at all
    kNoFence,         // none between the writes of P and the wgmma that reads it
    kNoProxyFence,    // Q is stored by threads, and no proxy fence follows
    kNoFullWait,      // consumers do not wait for the bytes
    kNoEmptyWait,     // the producer does not wait for the consumers
    kEarlyEmpty,      // a stage is let go of before the wait for the wgmma that reads it
    kWritesP,         // P is written while a wgmma reads it
    kWritesO,         // O is scaled while a wgmma adds to it
    kWrongSwizzle,    // K is read with the pattern of V
    kStride,          // a descriptor whose stride does not fit the swizzle
    kBeyond,          // one that leaves shared memory
    kUnaligned,       // one that starts within a pattern
    kTooMany,         // registers: more than the pool holds
    kNoDecrease,      // the producer keeps its own
    kWrongDirection,  // an increase to less
    kOneWarp,         // only one warp of the warpgroup gives registers back
};

// The codes of P, four a register: byte b of register r of step j is key 32 j + 16 (r / 2) + 8 (b /
// 2)
// + 2 t + b % 2, which is where S has it.
QUATT_DEV void pack(u32 (&p)[2][4], const float (&s)[kKeys / 2]) {
    QUATT_UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 j = i / 4, r = i % 4, first = 16 * j + 8 * (r / 2) + 2 * (r % 2);
        p[j][r] = ptx::pack_e4m3x4(s[first] / 64, s[first + 1] / 64, s[first + 4] / 64,
                                   s[first + 5] / 64);
    }
}

template <Planted P>
QUATT_DEV void produce(const Params& p, tile::Shared shared) {
    if constexpr (P == Planted::kWrongDirection) ptx::setmaxnreg_inc<24>();
    if (P != Planted::kNoDecrease && (P != Planted::kOneWarp || ptx::warp_id() == 0))
        ptx::setmaxnreg_dec<24>();
    if (ptx::thread_x() != 0) return;
    QUATT_NO_UNROLL
    for (u32 tile = 0; tile < p.tiles; tile++) {
        const u32 stage = tile % kStages, round = tile / kStages;
        const tile::Shared full = shared.sub(offsetof(SharedPlan, full) + 8 * stage, 8);
        if constexpr (P != Planted::kNoEmptyWait)
            ptx::mbarrier_wait(shared.sub(offsetof(SharedPlan, empty) + 8 * stage, 8),
                               (round + 1) % 2);
        ptx::mbarrier_arrive_expect_tx(full, kKBytes + kVBytes);
        ptx::tensor_load_2d(shared.sub(offsetof(SharedPlan, k) + stage * kKBytes, kKBytes), p.k, 0,
                            i32(tile * kKeys), full);
        ptx::tensor_load_2d(shared.sub(offsetof(SharedPlan, v) + stage * kVBytes, kVBytes), p.v,
                            i32(tile * kKeys), 0, full);
    }
}

// One tile of keys: s and p are the registers that the caller keeps.
template <Planted P>
QUATT_DEV void consume_tile(float (&s)[kKeys / 2], u32 (&codes)[2][4], float (&o)[kDimV / 2],
                            tile::Shared q, tile::Shared k, tile::Shared v, tile::Shared empty,
                            bool is_first, bool is_last) {
    if constexpr (P != Planted::kNoFirstFence) ptx::wgmma_fence();
    QUATT_UNROLL
    for (u32 step = 0; step < kDim / 32; step++) {
        const tile::Shared at = k.sub(32 * step, kKBytes - 32 * step);
        u64 b = ptx::k_major<128>(at);
        if constexpr (P == Planted::kWrongSwizzle)
            b = ptx::k_major<64>(k.sub(32 * (step % 2), kKBytes / 2));
        if constexpr (P == Planted::kStride) b ^= u64(1) << 32;
        if constexpr (P == Planted::kBeyond) b |= 0x3FC0;
        if constexpr (P == Planted::kUnaligned) b += 8;
        ptx::wgmma_e4m3<kKeys>(s, ptx::k_major<128>(q.sub(32 * step, kRows / 2 * kDim - 32 * step)),
                               b, step != 0);
    }
    ptx::wgmma_commit();
    if constexpr (P != Planted::kNoScoreWait) ptx::wgmma_wait<0>();
    if (P == Planted::kEarlyEmpty && ptx::lane_id() == 0) ptx::mbarrier_arrive(empty);
    pack(codes, s);
    if constexpr (P != Planted::kNoFence && P != Planted::kNoFirstFence) ptx::wgmma_fence();
    QUATT_UNROLL
    for (u32 step = 0; step < kKeys / 32; step++)
        ptx::wgmma_e4m3<kDimV>(o, codes[step],
                               ptx::k_major<64>(v.sub(32 * step, kVBytes - 32 * step)),
                               !is_first || step != 0);
    if (P != Planted::kNoCommit || !is_last) ptx::wgmma_commit();
    if constexpr (P == Planted::kWritesP) codes[0][1] = 0x38383838;
    if constexpr (P == Planted::kWritesO) o[5] *= 0.5f;
    if (P != Planted::kNoFinalWait || !is_last) ptx::wgmma_wait<0>();
    if (P != Planted::kEarlyEmpty && ptx::lane_id() == 0) ptx::mbarrier_arrive(empty);
}

template <Planted P>
QUATT_DEV void consume(const Params& p, tile::Shared shared) {
    ptx::setmaxnreg_inc<P == Planted::kTooMany ? 248 : 240>();
    const u32 thread = ptx::thread_x() - 128, group = thread / 128, lane = ptx::lane_id();
    const u32 row = thread / 32 % 4 * 16 + lane / 4;
    const tile::Shared q =
        shared.sub(offsetof(SharedPlan, q) + group * (kRows / 2 * kDim), kRows / 2 * kDim);
    // The warpgroup's rows, in the 128-byte swizzle: chunk c of row r lies at chunk c ^ (r % 8).
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 chunk = thread % 128 + 128 * i, r = chunk / 8, c = chunk % 8;
        q.store(r * kDim + (c ^ (r % 8)) * 16,
                p.q.load<ptx::U32x4>(i64(group * 64 + r) * kDim + c * 16));
    }
    if constexpr (P != Planted::kNoProxyFence) ptx::fence_proxy_async();
    ptx::barrier_sync(1 + group, 128);

    float s[kKeys / 2], o[kDimV / 2];
    u32 codes[2][4];
    QUATT_NO_UNROLL
    for (u32 tile = 0; tile < p.tiles; tile++) {
        const u32 stage = tile % kStages, round = tile / kStages;
        if constexpr (P != Planted::kNoFullWait)
            ptx::mbarrier_wait(shared.sub(offsetof(SharedPlan, full) + 8 * stage, 8), round % 2);
        consume_tile<P>(
            s, codes, o, q, shared.sub(offsetof(SharedPlan, k) + stage * kKBytes, kKBytes),
            shared.sub(offsetof(SharedPlan, v) + stage * kVBytes, kVBytes),
            shared.sub(offsetof(SharedPlan, empty) + 8 * stage, 8), tile == 0, tile + 1 == p.tiles);
    }
    QUATT_UNROLL
    for (u32 i = 0; i < kDimV / 2; i += 2)
        p.out.store(i64(group * 64 + row + 8 * (i / 2 % 2)) * kDimV + 8 * (i / 4) + 2 * (lane % 4),
                    ptx::F32x2{o[i], o[i + 1]});
}

template <Planted P = Planted::kNone>
QUATT_KERNEL(kThreads, 1) attend(QUATT_GRID_CONSTANT(Params) p) {
    const tile::Shared shared = ptx::dynamic_shared(sizeof(SharedPlan));
    if (ptx::thread_x() == 0) {
        QUATT_UNROLL
        for (u32 s = 0; s < kStages; s++) {
            ptx::mbarrier_init(shared.sub(offsetof(SharedPlan, full) + 8 * s, 8), 1);
            ptx::mbarrier_init(shared.sub(offsetof(SharedPlan, empty) + 8 * s, 8), 4 * kConsumers);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::barrier_sync();
    if (ptx::warp_id() < 4)
        produce<P>(p, shared);
    else
        consume<P>(p, shared);
}

}  // namespace wgmma_kernel
}  // namespace QUATT_ABI
}  // namespace quatt::test

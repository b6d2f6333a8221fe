// Builds what the other kernels walk, on the device, so that a captured graph follows new lengths:
// the segment table and the list of work.
#pragma once

#include "cuda/launch/pdl.hpp"
#include "cuda/ptx/ptx.hpp"
#include "cuda/worklist/segments.hpp"

namespace quatt::worklist {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u32;
using worklist::SegmentEntry;

inline constexpr u32 kBuildThreads = 256, kBuildWarps = kBuildThreads / 32;
inline constexpr u32 kSortedSegments =
    1024;  // with more, segments are worked through in their own order
inline constexpr i32 kBadSeqlens = 1, kBadKvLens = 2;  // bits of the status word

struct BuildParams {
    ptx::Global<const i32> cu_seqlens_q,
        cu_seqlens_k;                  // [segments + 1]; packed with more than one segment only
    ptx::Global<const i32> kv_lens;    // [segments]
    ptx::Global<ptx::U32x4> segments;  // [segments], see worklist::store_segment
    ptx::Global<u32> work;             // [4 + 2 * segments], see worklist::kHeaderWords
    ptx::Global<i32> status_word;      // [1]
    i64 cu_q_stride, cu_k_stride, kv_lens_stride;
    i64 cu_q_origin, cu_k_origin, kv_lens_origin;              // element 0 of each in its view
    i64 q_origin, k_origin, v_origin, out_origin, lse_origin;  // element 0 of each in its view
    i64 q_batch, k_batch, v_batch, out_batch, lse_batch;  // elements between batch items (dense)
    i64 q_token, k_token, v_token, out_token, lse_token;  // elements between tokens (packed)
    u32 count;                                            // segments or batch items
    u32 tokens_q, tokens_k;      // Sq, Sk (dense) or the capacities of the packed stream
    u32 heads_q, rows_per_item;  // an item of work: so many query rows of one head
    bool is_packed, has_cu_seqlens, has_kv_lens, has_status_word;
};

// Segment s, which begins at token q of the queries and k of the keys.
[[nodiscard]] QUATT_DEV SegmentEntry entry_at(const BuildParams& p, u32 s, i64 q, i64 k, i64 q_len,
                                              i64 k_len) {
    SegmentEntry g{};
    g.q = p.q_origin + (p.is_packed ? q * p.q_token : s * p.q_batch);
    g.k = p.k_origin + (p.is_packed ? k * p.k_token : s * p.k_batch);
    g.v = p.v_origin + (p.is_packed ? k * p.v_token : s * p.v_batch);
    g.out = p.out_origin + (p.is_packed ? q * p.out_token : s * p.out_batch);
    g.lse = p.lse_origin + (p.is_packed ? q * p.lse_token : s * p.lse_batch);
    g.q_len = i32(q_len);
    g.k_len = i32(k_len);
    g.q_row = i32(q);
    g.k_tile = tile::first_tile(k, s, tile::kKeyTile);
    return g;
}

// A call of one segment without lengths on the device needs no launch of its own for its list: any
// other kernel's first thread may write it.
[[nodiscard]] QUATT_DEV SegmentEntry only_segment(const BuildParams& p) {
    return entry_at(p, 0, 0, 0, p.tokens_q, p.tokens_k);
}
QUATT_DEV void store_only_segment(const BuildParams& p) {
    const u32 items = (p.tokens_q + p.rows_per_item - 1) / p.rows_per_item * p.heads_q;
    worklist::store_segment(p.segments, 0, only_segment(p));
    p.work.store(worklist::kNextItem, 0u);
    p.work.store(worklist::kItems, items);
    p.work.store(worklist::kUsedRows, p.tokens_q);
    p.work.store(worklist::kHeaderWords, items);
    p.work.store(worklist::kHeaderWords + 1, 0u);
    if (p.has_status_word) {
        p.status_word.store(0, 0);
    }
}

struct BuildShared {
    u32 warp_sum[kBuildWarps];
    u32 first_bad, bad_kv_lens;
    u32 cost[kSortedSegments];
};

template <class = void>  // a template, so that several files may include it
QUATT_KERNEL(kBuildThreads) build_worklist(const BuildParams p) {
    launch::pdl_wait_then_trigger();
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id();
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(BuildShared));
    constexpr u32 kFirstBad = offsetof(BuildShared, first_bad),
                  kBadLens = offsetof(BuildShared, bad_kv_lens);
    constexpr u32 kCost = offsetof(BuildShared, cost), kWarpSum = offsetof(BuildShared, warp_sum);
    const auto work = p.work, order = p.work.sub(worklist::kHeaderWords + i64(p.count), p.count);

    const auto cu_q = [&](u32 i) { return p.cu_seqlens_q.load(p.cu_q_origin + i * p.cu_q_stride); };
    const auto cu_k = [&](u32 i) { return p.cu_seqlens_k.load(p.cu_k_origin + i * p.cu_k_stride); };

    // The first segment whose bounds are wrong: it and all after it count as empty.
    u32 bad = p.count;
    if (p.has_cu_seqlens) {
        QUATT_NO_UNROLL
        for (u32 s = thread; s < p.count; s += kBuildThreads) {
            const i32 q0 = cu_q(s), q1 = cu_q(s + 1);
            const i32 k0 = cu_k(s), k1 = cu_k(s + 1);
            const bool ok = q0 >= 0 && q0 <= q1 && i64(q1) <= i64(p.tokens_q) && k0 >= 0 &&
                            k0 <= k1 && i64(k1) <= i64(p.tokens_k) &&
                            (s != 0 || (q0 == 0 && k0 == 0));
            bad = !ok && s < bad ? s : bad;
        }
    }
    QUATT_UNROLL
    for (u32 mask = 16; mask != 0; mask /= 2) {
        const u32 other = ptx::shfl_xor(bad, mask);
        bad = other < bad ? other : bad;
    }
    if (lane == 0) {
        shared.store(kWarpSum + 4 * warp, bad);
    }
    if (thread == 0) {
        shared.store(kBadLens, 0u);
    }
    ptx::barrier_sync();
    if (thread == 0) {
        QUATT_UNROLL
        for (u32 w = 1; w < kBuildWarps; w++) {
            const u32 other = shared.load<u32>(kWarpSum + 4 * w);
            bad = other < bad ? other : bad;
        }
        shared.store(kFirstBad, bad);
    }
    ptx::barrier_sync();
    const u32 first_bad = shared.load<u32>(kFirstBad);

    bool bad_lens = false;
    QUATT_NO_UNROLL
    for (u32 s = thread; s < p.count; s += kBuildThreads) {
        i64 q = 0, k = 0, q_len = p.tokens_q, k_len = p.tokens_k;
        if (p.has_cu_seqlens) {
            const bool ok = s < first_bad;
            // A bad one starts at the end: packed places must not fall from one segment to the
            // next.
            q = ok ? cu_q(s) : p.tokens_q;
            k = ok ? cu_k(s) : p.tokens_k;
            q_len = ok ? cu_q(s + 1) - q : 0;
            k_len = ok ? cu_k(s + 1) - k : 0;
        } else if (!p.is_packed) {
            q = i64(s) * p.tokens_q;
            k = i64(s) * p.tokens_k;
        }
        if (p.has_kv_lens) {
            const i32 n = p.kv_lens.load(p.kv_lens_origin + s * p.kv_lens_stride);
            const bool ok = n >= 0 && n <= k_len;
            bad_lens = bad_lens || (!ok && s < first_bad);
            q_len = ok ? q_len : 0;
            k_len = ok ? n : 0;
        }
        worklist::store_segment(p.segments, s, entry_at(p, s, q, k, q_len, k_len));
        if (s < kSortedSegments) {
            shared.store(kCost + 4 * s, u32(k_len));
        }
        if (p.count > kSortedSegments) {
            order.store(s, s);
        }
    }
    if (bad_lens) {
        shared.store(kBadLens, 1u);
    }
    ptx::barrier_sync();

    // Longest first: a segment's place is the number of those before it.
    if (p.count <= kSortedSegments) {
        QUATT_NO_UNROLL
        for (u32 s = thread; s < p.count; s += kBuildThreads) {
            const u32 mine = shared.load<u32>(kCost + 4 * s);
            u32 place = 0;
            QUATT_NO_UNROLL
            for (u32 other = 0; other < p.count; other++) {
                const u32 cost = shared.load<u32>(kCost + 4 * other);
                place += cost > mine || (cost == mine && other < s) ? 1 : 0;
            }
            order.store(place, s);
        }
    }
    ptx::barrier_sync();

    // item_end: running sum of items in that order.
    u32 before = 0;
    QUATT_NO_UNROLL
    for (u32 first = 0; first < p.count; first += kBuildThreads) {
        const u32 i = first + thread;
        u32 items = 0;
        if (i < p.count) {
            const u32 rows = u32(worklist::load_segment(p.segments, order.load(i)).q_len);
            items = (rows + p.rows_per_item - 1) / p.rows_per_item * p.heads_q;
        }
        u32 sum = items;
        QUATT_UNROLL
        for (u32 delta = 1; delta < 32; delta *= 2) {
            const u32 below = ptx::shfl_up(sum, delta);
            sum += lane >= delta ? below : 0;
        }
        ptx::barrier_sync();  // the sums of the chunk before have been read
        if (lane == 31) {
            shared.store(kWarpSum + 4 * warp, sum);
        }
        ptx::barrier_sync();
        u32 all = 0;
        QUATT_UNROLL
        for (u32 w = 0; w < kBuildWarps; w++) {
            const u32 part = shared.load<u32>(kWarpSum + 4 * w);
            sum += w < warp ? part : 0;
            all += part;
        }
        if (i < p.count) {
            work.store(worklist::kHeaderWords + i64(i), before + sum);
        }
        before += all;
    }
    if (thread == 0) {
        work.store(worklist::kNextItem, 0u);
        work.store(worklist::kItems, before);
        // Bad lengths: no row is known to be past them.
        const bool has_tail = p.has_cu_seqlens && first_bad == p.count;
        work.store(worklist::kUsedRows, has_tail ? u32(cu_q(p.count)) : p.tokens_q);
        if (p.has_status_word) {
            const u32 lens = shared.load<u32>(kBadLens);
            p.status_word.store(
                0, i32((first_bad < p.count ? kBadSeqlens : 0) | (lens != 0 ? kBadKvLens : 0)));
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::worklist

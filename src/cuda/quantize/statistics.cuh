// Channel statistics of K and V, a segment and head: K's mean, V's mean and scale.
//
// Deterministic: within a tile, rows are folded in an order that only Dim decides; tiles are folded
// from the segment's first on. So a segment gives the bits that it gives alone.
#pragma once

#include "cuda/quantize/pack.cuh"

namespace quatt::quantize {
inline namespace QUATT_ABI {

// Partials of one tile of 128 keys of one KV head a block, after the blocks that pack Q.
template <class Format, u32 Dim, bool Aligned16>
QUATT_KERNEL(StatisticsConfig<Dim>::kThreads) statistics(const StatisticsParams p) {
    launch::pdl_wait_then_trigger();
    if (ptx::block_x() < p.q_blocks) {
        pack_queries<Format, Dim, Aligned16>(p.q, ptx::block_x());
        return;
    }
    using C = StatisticsConfig<Dim>;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id();
    // Heads are next to each other in memory: blocks that run together read whole tokens.
    const u32 block = ptx::block_x() - p.q_blocks, slot = block / p.kv_heads,
              head = block % p.kv_heads;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(typename C::SharedPlan));
    const u32 s = find_segment(p.segments, p.segment_count, i32(slot),
                               [](const SegmentStarts& places, u32) { return places.stat_tile; });
    const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
    const i32 first = (i32(slot) - segment.stat_tile) * i32(kStatTile);
    const i32 tokens = rows_from(first, segment.k_len);
    if (tokens > 0) {
        const u32 piece = thread % C::kPieces, row = thread / C::kPieces;
        float k_sum[8] = {}, v_sum[8] = {}, v_min[8], v_max[8];
        QUATT_UNROLL
        for (u32 i = 0; i < 8; i++) {
            v_min[i] = formats::bit_cast<float>(kInfBits);
            v_max[i] = -v_min[i];
        }

        // Rows past the end read the last one again: minimum and maximum do not mind, and sums take
        // it with weight 0.
        const i64 k_from = segment.k + head * p.k.strides.head + first * p.k.strides.token;
        const i64 v_from = segment.v + head * p.v.strides.head + first * p.v.strides.token;
        u32 k[C::kPasses][4], v[C::kPasses][4];
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const i64 token = row_or_last(row + pass * C::kRows, tokens);
            load_piece<Aligned16>(k[pass], p.k, k_from + token * p.k.strides.token, 8 * piece,
                                  p.channels);
        }
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const i64 token = row_or_last(row + pass * C::kRows, tokens);
            load_piece<Aligned16>(v[pass], p.v, v_from + token * p.v.strides.token, 8 * piece,
                                  p.channels_v);
        }
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const float weight = i32(row + pass * C::kRows) < tokens ? kSumFactor : 0.0f;
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                const ptx::F32x2 x = unpack(Format{}, k[pass][i]);
                k_sum[2 * i] = ptx::fma(x.x, weight, k_sum[2 * i]);
                k_sum[2 * i + 1] = ptx::fma(x.y, weight, k_sum[2 * i + 1]);
            }
        }
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const float weight = i32(row + pass * C::kRows) < tokens ? kSumFactor : 0.0f;
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                const ptx::F32x2 x = unpack(Format{}, v[pass][i]);
                v_sum[2 * i] = ptx::fma(x.x, weight, v_sum[2 * i]);
                v_sum[2 * i + 1] = ptx::fma(x.y, weight, v_sum[2 * i + 1]);
                // NaN is dropped here; it shows in the sum.
                v_min[2 * i] = ptx::min(v_min[2 * i], x.x);
                v_min[2 * i + 1] = ptx::min(v_min[2 * i + 1], x.y);
                v_max[2 * i] = ptx::max(v_max[2 * i], x.x);
                v_max[2 * i + 1] = ptx::max(v_max[2 * i + 1], x.y);
            }
        }

        // The lanes that hold the same channels of other rows.
        QUATT_UNROLL
        for (u32 mask = C::kPieces; mask < 32; mask *= 2) {
            QUATT_UNROLL
            for (u32 i = 0; i < 8; i++) {
                k_sum[i] += ptx::shfl_xor(k_sum[i], mask);
                v_sum[i] += ptx::shfl_xor(v_sum[i], mask);
                v_min[i] = ptx::min(v_min[i], ptx::shfl_xor(v_min[i], mask));
                v_max[i] = ptx::max(v_max[i], ptx::shfl_xor(v_max[i], mask));
            }
        }
        // Then the warps. Word 4(half * kPieces + piece) + i holds channel 8 piece + 4 half + i:
        // neighbouring lanes store neighbouring 16 bytes.
        constexpr u32 kStatBytes = Dim * sizeof(float), kWarpBytes = kStats * kStatBytes;
        if (lane < C::kPieces) {
            QUATT_UNROLL
            for (u32 half = 0; half < 2; half++) {
                const u32 at = warp * kWarpBytes + 16 * (half * C::kPieces + piece);
                const u32 i = 4 * half;
                shared.store(at + kKSum * kStatBytes,
                             ptx::F32x4{k_sum[i], k_sum[i + 1], k_sum[i + 2], k_sum[i + 3]});
                shared.store(at + kVSum * kStatBytes,
                             ptx::F32x4{v_sum[i], v_sum[i + 1], v_sum[i + 2], v_sum[i + 3]});
                shared.store(at + kVMin * kStatBytes,
                             ptx::F32x4{v_min[i], v_min[i + 1], v_min[i + 2], v_min[i + 3]});
                shared.store(at + kVMax * kStatBytes,
                             ptx::F32x4{v_max[i], v_max[i + 1], v_max[i + 2], v_max[i + 3]});
            }
        }
        ptx::barrier_sync();
        const auto partial =
            p.partials.sub((head * p.stat_slots + slot) * C::kColumns, C::kColumns);
        QUATT_UNROLL
        for (u32 column = thread; column < C::kColumns; column += C::kThreads) {
            const u32 stat = column / Dim, word = column % Dim;
            float folded = shared.load<float>(4 * column);
            QUATT_UNROLL
            for (u32 w = 1; w < C::kWarps; w++) {
                const float x = shared.load<float>(w * kWarpBytes + 4 * column);
                folded = stat == kVMin   ? ptx::min(folded, x)
                         : stat == kVMax ? ptx::max(folded, x)
                                         : folded + x;
            }
            const u32 half = word / (4 * C::kPieces),
                      channel = word / 4 % C::kPieces * 8 + half * 4;
            partial.store(stat * Dim + channel + word % 4, folded);
        }
    }
}

// Means and V's scale of one segment and KV head; 0 and 1 for a segment without keys.
template <u32 Dim>
QUATT_KERNEL(FinaliseConfig<Dim>::kThreads) finalise(const FinaliseParams p) {
    launch::pdl_wait_then_trigger();
    using C = FinaliseConfig<Dim>;
    using Plan = typename C::SharedPlan;
    const u32 thread = ptx::thread_x(), group = thread / C::kLanes,
              first = 4 * (thread % C::kLanes);
    const u32 s = ptx::block_x() / p.kv_heads, head = ptx::block_x() % p.kv_heads;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(Plan));
    const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
    const u32 tiles = (u32(segment.k_len) + kStatTile - 1) / kStatTile;

    // In double: the partials of a long segment would lose bits of each other.
    double k_sum[4] = {}, v_sum[4] = {};
    float v_min[4], v_max[4];
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        v_min[i] = formats::bit_cast<float>(kInfBits);
        v_max[i] = -v_min[i];
    }
    const auto partials = p.partials.sub((head * p.stat_slots + segment.stat_tile) * (kStats * Dim),
                                         i64(tiles) * (kStats * Dim));
    QUATT_NO_UNROLL
    for (u32 t0 = group; t0 < tiles; t0 += C::kAhead * C::kGroups) {
        float x[C::kAhead][kStats][4];
        QUATT_UNROLL
        for (u32 a = 0; a < C::kAhead; a++) {
            // Past the end the last tile is read again, and not used.
            const u32 t = t0 + a * C::kGroups < tiles ? t0 + a * C::kGroups : tiles - 1;
            QUATT_UNROLL
            for (u32 stat = 0; stat < kStats; stat++) {
                load_floats(x[a][stat], partials, (i64(t) * kStats + stat) * Dim + first);
            }
        }
        QUATT_UNROLL
        for (u32 a = 0; a < C::kAhead; a++) {
            if (t0 + a * C::kGroups < tiles) {
                QUATT_UNROLL
                for (u32 i = 0; i < 4; i++) {
                    k_sum[i] += double(x[a][kKSum][i]);
                    v_sum[i] += double(x[a][kVSum][i]);
                    v_min[i] = ptx::min(v_min[i], x[a][kVMin][i]);
                    v_max[i] = ptx::max(v_max[i], x[a][kVMax][i]);
                }
            }
        }
    }
    constexpr u32 kSum = offsetof(Plan, sum), kEdge = offsetof(Plan, edge);
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 at = group * Dim + first + i;
        shared.store(kSum + 8 * at, k_sum[i]);
        shared.store(kSum + 8 * (C::kGroups * Dim + at), v_sum[i]);
        shared.store(kEdge + 4 * at, v_min[i]);
        shared.store(kEdge + 4 * (C::kGroups * Dim + at), v_max[i]);
    }
    ptx::barrier_sync();

    const u32 channel = thread;
    if (channel < Dim) {
        double k_all = 0, v_all = 0;
        float low = formats::bit_cast<float>(kInfBits), high = -low;
        QUATT_UNROLL
        for (u32 g = 0; g < C::kGroups; g++) {
            const u32 at = g * Dim + channel;
            k_all += shared.load<double>(kSum + 8 * at);
            v_all += shared.load<double>(kSum + 8 * (C::kGroups * Dim + at));
            low = ptx::min(low, shared.load<float>(kEdge + 4 * at));
            high = ptx::max(high, shared.load<float>(kEdge + 4 * (C::kGroups * Dim + at)));
        }
        const auto mean_of = [&](double sum) {
            const double mean = sum * double(1 / kSumFactor) / double(segment.k_len);
            return formats::Bf16::decode(formats::Bf16::encode(float(mean)));
        };
        float k_mean = 0, v_mean = 0, v_scale = 1;
        if (segment.k_len > 0) {
            k_mean = mean_of(k_all);
            v_mean = mean_of(v_all);
            // |x - mean| in fp32 is largest at an edge, since rounding keeps order. The sum, and so
            // the mean, is not finite if a value is not; a difference can also overflow.
            u32 amax = larger(formats::bit_cast<u32>(magnitude(low - v_mean)),
                              formats::bit_cast<u32>(magnitude(high - v_mean)));
            if (amax < kInfBits &&
                magnitude(v_mean) < formats::bit_cast<float>(amax) * kLeastMean) {
                v_mean = 0;
                amax = larger(formats::bit_cast<u32>(magnitude(low)),
                              formats::bit_cast<u32>(magnitude(high)));
            }
            v_scale = scale_of(amax);
        }
        const i64 at = (i64(s) * p.kv_heads + head) * Dim + channel;
        p.k_mean.store(at, k_mean);
        p.v_mean.store(at, v_mean);
        p.v_scale.store(at, v_scale);
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::quantize

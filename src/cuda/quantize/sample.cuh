// Centres of K and V and V's scales, from a sample of each segment (docs/recipes.md, "The sample";
// the rule itself is recipe/sample.hpp). No block depends on another one, so a segment gives the
// bits that it gives alone.
#pragma once

#include "cuda/quantize/input.cuh"
#include "recipe/sample.hpp"

namespace quatt::quantize {
inline namespace QUATT_ABI {

// 32 channels of K or V, one KV head and segment a block. A warp has a group of the sample: lane
// (sub, piece) holds 8 channels of tokens sub, sub + 8, sub + 16 ... of its 64, so that the folds
// of a sum are first the lane's own, then between lanes.
template <class Format, u32 Dim, bool Aligned16>
QUATT_KERNEL(SampleConfig::kThreads) sample(const SampleParams p) {
    launch::pdl_wait_then_trigger();
    using C = SampleConfig;
    using Plan = C::SharedPlan;
    constexpr u32 kSlices = Dim / C::kChannels;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), group = ptx::warp_id();
    const u32 block = ptx::block_x(), slice = block % kSlices, pair = block / (2 * kSlices);
    const u32 head = pair % p.kv_heads, s = pair / p.kv_heads;
    const bool is_v = block / kSlices % 2 != 0;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(Plan));
    if (p.builds_list && block == 0 && thread == 0) {
        worklist::store_only_segment(p.build);
    }
    const worklist::SegmentEntry segment =
        p.builds_list ? worklist::only_segment(p.build) : worklist::load_segment(p.segments, s);
    const i64 tokens = segment.k_len;

    const u32 piece = lane % C::kPieces, sub = lane / C::kPieces;
    const Input x{is_v ? p.v.data : p.k.data, is_v ? p.v.strides : p.k.strides};
    const i64 from = (is_v ? segment.v : segment.k) + head * x.strides.head;
    // Where the group has fewer tokens its first one is read again: minimum and maximum do not
    // mind, and sums take it with weight 0. Each lane finds two tokens.
    const u32 size = recipe::group_size(group, tokens);
    const i32 token[2] = {i32(recipe::sample_token(group, lane, tokens)),
                          i32(recipe::sample_token(group, lane + 32, tokens))};
    const i32 first = ptx::shfl_idx(token[0], 0);
    const u32 channels = size == 0 ? 0 : is_v ? p.channels_v : p.channels;
    i32 mine[C::kPasses];
    QUATT_UNROLL
    for (u32 pass = 0; pass < C::kPasses; pass++) {
        mine[pass] = ptx::shfl_idx(token[C::kSubs * pass / 32], (sub + C::kSubs * pass) % 32);
    }
    u32 w[C::kPasses][4];
    load_pieces<Aligned16>(w, x, C::kChannels * slice + 8 * piece, channels, [&](u32 pass) {
        return from + i64(mine[pass] < 0 ? first : mine[pass]) * x.strides.token;
    });
    const float factor = recipe::mean_factor(size);
    const auto at = [](u32 offset, u32 g, u32 channel) {
        return offset + 4 * (g * C::kChannels + channel);
    };
    constexpr u32 kMean = offsetof(Plan, mean), kHalf = offsetof(Plan, half),
                  kLow = offsetof(Plan, low), kHigh = offsetof(Plan, high);
    const float inf = formats::bit_cast<float>(kInfBits);
    QUATT_UNROLL
    for (u32 i = 0; i < 8; i++) {
        float sum[C::kPasses], smallest = inf, largest = -inf;
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const ptx::F32x2 two = unpack(Format{}, w[pass][i / 2]);
            const float value = i % 2 == 0 ? two.x : two.y;
            sum[pass] = value * (mine[pass] < 0 ? 0.0f : recipe::kSumFactor);
            // NaN is dropped here; it shows in the sum.
            smallest = ptx::min(smallest, value);
            largest = ptx::max(largest, value);
        }
        QUATT_UNROLL
        for (u32 fold = 0; fold < C::kFolds; fold++) {
            QUATT_UNROLL
            for (u32 pass = 0; pass < C::kPasses / 2; pass++) {
                if (pass < C::kPasses >> (fold + 1)) {
                    sum[pass] += sum[pass + (C::kPasses >> (fold + 1))];
                }
            }
        }
        QUATT_UNROLL
        for (u32 fold = 0; fold < C::kLaneFolds; fold++) {
            const u32 mask = 16 >> fold;
            sum[0] += ptx::shfl_xor(sum[0], mask);
            smallest = ptx::min(smallest, ptx::shfl_xor(smallest, mask));
            largest = ptx::max(largest, ptx::shfl_xor(largest, mask));
        }
        if (sub == 0) {
            const bool is_counted = size > 0 && recipe::is_finite(sum[0]);
            const u32 channel = 8 * piece + i;
            shared.store(at(kMean, group, channel), is_counted ? sum[0] * factor : inf);
            shared.store(at(kHalf, group, channel),
                         is_counted ? recipe::half_range(smallest, largest) : inf);
            shared.store(at(kLow, group, channel), is_counted ? smallest : inf);
            shared.store(at(kHigh, group, channel), is_counted ? largest : -inf);
        }
    }
    ptx::barrier_sync();

    const u32 channel = thread;
    if (channel < C::kChannels) {
        float means[recipe::kSampleGroups], halves[recipe::kSampleGroups];
        u32 count = 0;
        float smallest = inf, largest = -inf;
        QUATT_UNROLL
        for (u32 g = 0; g < recipe::kSampleGroups; g++) {
            means[g] = shared.load<float>(at(kMean, g, channel));
            halves[g] = shared.load<float>(at(kHalf, g, channel));
            smallest = ptx::min(smallest, shared.load<float>(at(kLow, g, channel)));
            largest = ptx::max(largest, shared.load<float>(at(kHigh, g, channel)));
            count += means[g] < inf ? 1 : 0;
        }
        const float median = recipe::median(means, count);
        const i64 to = i64(pair) * Dim + C::kChannels * slice + channel;
        if (!is_v) {
            p.k_mean.store(to, recipe::rounded_center(median));
        } else {
            recipe::SampledChannel c{0, recipe::kLeastScale};
            if (count > 0) {
                c = recipe::sampled_channel(median, recipe::median(halves, count), smallest,
                                            largest, recipe::sample_size(tokens), kTarget);
            }
            p.v_mean.store(to, c.center);
            p.v_scale.store(to, c.scale);
            p.v_sample_scale.store(to, c.scale);
            p.v_beyond.store(to, 0u);
            if (slice == 0 && channel == 0) {
                p.v_lied.store(i64(pair), 0u);
            }
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::quantize

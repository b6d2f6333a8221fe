// The sample of a segment's tokens that its centres and V's scale come from (docs/recipes.md, "The
// sample"). One source for the host and the GPU's quantisers, which agree in bits: what is left to
// each is how it sums a group, in the order of folds that the text gives: 64 numbers, 0 where there
// is no token, of which t and t + n join for n = 32, 16, 8, 4, 2, 1.
#pragma once

#include <cstdint>

#include "formats/bf16.hpp"
#include "formats/platform.hpp"

namespace quatt::recipe {

inline constexpr std::uint32_t kSampleGroups = 16, kGroupTokens = 64;
inline constexpr std::uint64_t kSampleTokens = std::uint64_t{kSampleGroups} * kGroupTokens;

// Sums of a group are of x / 256, so that 64 of the largest bf16 numbers do not overflow: a sum
// that is not finite then says that an x is not. Exact, for subnormals of bf16 and f16 too.
inline constexpr float kSumFactor = 0x1p-8f;

inline constexpr float kHeadRoom = 8;     // of V's scale above the sample's amax, at most
inline constexpr float kHalfRanges = 16;  // and at most up to so many half ranges of a group
// A channel of V keeps its mean where that is below this part of its amax (short accumulators then
// lose less of it than rounding does), or not known from the sample: below so many standard errors,
// as half ranges, which are two standard deviations or so.
inline constexpr float kLeastMean = 1.0f / 64, kStandardErrors = 2;
inline constexpr float kLeastScale = 0x1p-126f;

[[nodiscard]] QUATT_HD constexpr std::uint32_t scrambled(std::uint32_t x) {
    x *= 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

// Token t of group g in a segment of so many tokens, or -1. All tokens where there are no more than
// 1024, else one of each 1024th, at a place that no grid in the data resonates with. Of 16
// neighbours in the sample each group has one, in an order that does not repeat.
[[nodiscard]] QUATT_HD constexpr std::int64_t sample_token(std::uint32_t g, std::uint32_t t,
                                                           std::int64_t tokens) {
    const std::uint32_t i = kSampleGroups * t + (g ^ scrambled(t) % kSampleGroups);
    const auto n = static_cast<std::uint64_t>(tokens);
    if (n <= kSampleTokens) {
        return i < n ? std::int64_t{i} : -1;
    }
    const std::uint64_t first = i * n / kSampleTokens,
                        end = (i + std::uint64_t{1}) * n / kSampleTokens;
    return static_cast<std::int64_t>(first + (std::uint64_t{scrambled(~i)} * (end - first) >> 32));
}

[[nodiscard]] QUATT_HD constexpr std::int64_t sample_size(std::int64_t tokens) {
    constexpr auto kMost = static_cast<std::int64_t>(kSampleTokens);
    return tokens < kMost ? tokens : kMost;
}
// Tokens of group g.
[[nodiscard]] QUATT_HD constexpr std::uint32_t group_size(std::uint32_t g, std::int64_t tokens) {
    if (static_cast<std::uint64_t>(tokens) >= kSampleTokens) {
        return kGroupTokens;
    }
    const auto whole = static_cast<std::uint32_t>(tokens) / kSampleGroups;
    return whole + (sample_token(g, whole, tokens) >= 0 ? 1u : 0u);
}

// Sorts up (Batcher's merge exchange, from numbers I and I + K of round P on): the same comparisons
// for all, without a branch. NOTE: not loops, which nvcc leaves as they are, and x in local memory.
template <std::uint32_t P = 1, std::uint32_t K = 1, std::uint32_t I = 0>
QUATT_HD_INLINE constexpr void sort(float (&x)[kSampleGroups]) {
    if constexpr (I + K < kSampleGroups && I >= K % P && (I - K % P) % (2 * K) < K &&
                  I / (2 * P) == (I + K) / (2 * P)) {
        const float low = x[I] < x[I + K] ? x[I] : x[I + K];
        x[I + K] = x[I] < x[I + K] ? x[I + K] : x[I];
        x[I] = low;
    }
    if constexpr (I + 1 < kSampleGroups) {
        sort<P, K, I + 1>(x);
    } else if constexpr (K > 1) {
        sort<P, K / 2, 0>(x);
    } else if constexpr (2 * P < kSampleGroups) {
        sort<2 * P, 2 * P, 0>(x);
    }
}

// The median of `count` finite numbers, 0 of none; the others are +infinity. Halves are added,
// since a sum may overflow.
[[nodiscard]] QUATT_HD_INLINE constexpr float median(float (&x)[kSampleGroups],
                                                     std::uint32_t count) {
    // Every other one that does not count goes below all, so that the middle stays where it is.
    // NOTE: an index that depends on `count` would bring x into local memory.
    constexpr float kInf = formats::bit_cast<float>(0x7F800000u);
    bool is_below = false;
    QUATT_HD_UNROLL
    for (std::uint32_t i = 0; i < kSampleGroups; i++) {
        const bool is_out = x[i] == kInf;
        x[i] = is_out && is_below ? -kInf : x[i];
        is_below = is_below != is_out;
    }
    sort(x);
    const float low = x[kSampleGroups / 2 - 1], high = x[kSampleGroups / 2];
    return count == 0 ? 0.0f : count % 2 != 0 ? low : 0.5f * low + 0.5f * high;
}

[[nodiscard]] QUATT_HD constexpr bool is_finite(float x) {
    return x - x == 0;
}
[[nodiscard]] QUATT_HD constexpr float magnitude(float x) {
    return formats::bit_cast<float>(formats::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}
[[nodiscard]] QUATT_HD constexpr float larger(float a, float b) {
    return a < b ? b : a;
}

// What the sum of a group, of x / 256, is multiplied by. A group with a value that is not finite in
// the channel is left out: its sum is not finite.
[[nodiscard]] QUATT_HD constexpr float mean_factor(std::uint32_t size) {
    return (1 / kSumFactor) / static_cast<float>(size);
}
// NOTE: of halves, since a difference may overflow.
[[nodiscard]] QUATT_HD constexpr float half_range(float smallest, float largest) {
    return 0.5f * largest - 0.5f * smallest;
}

// A centre, rounded to bf16: what is subtracted need not be exact, but the same everywhere. Never
// -0, since a sum of zeros may have either sign.
[[nodiscard]] QUATT_HD constexpr float rounded_center(float x) {
    return formats::Bf16::decode(formats::Bf16::encode(x)) + 0.0f;
}

// fp32 scale of a group with this amax: 1 for a group of zeros, and never so small that its
// reciprocal is infinite.
[[nodiscard]] QUATT_HD constexpr float scale_of_amax(float amax, float target) {
    const float s = amax * (1.0f / target);
    return amax == 0 ? 1.0f : s < kLeastScale ? kLeastScale : s;
}

struct SampledChannel {
    float center, scale;
};

// A channel of V from its medians over the groups that count and its edges over all their tokens.
// `tokens`: of the sample. Values beyond the scale's range show that the sample lied: the channel
// then takes the exact amax (quantize.cpp).
[[nodiscard]] QUATT_HD constexpr SampledChannel sampled_channel(float median_of_means,
                                                                float median_half_range,
                                                                float smallest, float largest,
                                                                std::int64_t tokens, float target) {
    float c = rounded_center(median_of_means);
    const float h = median_half_range;
    float amax = larger(magnitude(smallest - c), magnitude(largest - c));
    const bool is_known =
        c * c * static_cast<float>(tokens) >= kStandardErrors * kStandardErrors * h * h;
    if (!is_known || magnitude(c) < amax * kLeastMean) {
        c = 0;
        amax = larger(magnitude(smallest), magnitude(largest));
    }
    const float most = larger(amax, kHalfRanges * h);
    const float room = kHeadRoom * amax < most ? kHeadRoom * amax : most;
    constexpr float kLargest = 0x1.FFFFFEp127f;
    // A channel of equal numbers has the smallest scale, so that any other number is beyond it.
    return {c, amax == 0 ? kLeastScale : scale_of_amax(room < kLargest ? room : kLargest, target)};
}

// A token of V is far from the centre c where |v - c|^2 > 2 |v|^2, over the head's channels: then
// c would cost its code more than it takes off the others'. The same as |v + c|^2 < 2 |c|^2, which
// does not cancel. Both sums are folds: lane l of 32 adds channels 4 l to 4 l + 3 of each 128 in
// order, by fused multiply-adds, then lanes l and l + n join for n = 16, 8, 4, 2, 1.
inline constexpr std::uint32_t kFarLanes = 32, kFarChannels = 4;
// NaN is far; no token is where the centre is 0.
[[nodiscard]] QUATT_HD constexpr bool is_far(float sum_of_squares, float center_squares) {
    return center_squares > 0 && !(sum_of_squares >= 2 * center_squares);
}

}  // namespace quatt::recipe

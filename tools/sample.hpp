// Seeded queries, keys and values that look like what attention meets.
//
// Same spec, same bits, on every machine: the random numbers, the logarithm, the exponential, the
// sine and the cosine are our own, made of integer operations and of IEEE operations that round
// exactly.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"

namespace quatt::tools {

// No kernel takes larger heads: a file of them could be neither checked nor attended.
inline constexpr std::int64_t kMaxHeadDim = 256;

enum class SampleKind : std::uint8_t { kGaussian, kDit, kOutlier, kSink };
inline constexpr std::array<SampleKind, 4> kSampleKinds = {SampleKind::kGaussian, SampleKind::kDit,
                                                           SampleKind::kOutlier, SampleKind::kSink};

[[nodiscard]] std::string_view sample_kind_name(SampleKind kind) noexcept;
[[nodiscard]] std::optional<SampleKind> sample_kind_from_name(std::string_view name) noexcept;

// What each kind makes (t, h, c: token, head, channel; z: independent N(0,1); scores are with
// softmax_scale = 1/sqrt(D); kv(h): the KV head of query head h):
//
// gaussian  q = z, k = z + kmean[h,c], v = z + vmean[h,c]; kmean and vmean are N(0,1) times
//           k_mean_std and v_mean_std, here and in the other kinds.
//
// dit       A video transformer after RMS norm and rotary embedding. Every KV head has 8 random
//           waves f_j over the token grid, sqrt(2) cos 2 pi (n_j . pos / grid + phase_j), with
//           n_j ~ N(0, 1.5^2) cycles along y and x, N(0, .5^2) along t. A channel mixes them:
//             x = .8 sum_j a[c,j] f_j / sqrt(8) + .6 z,   a ~ N(0,1),
//           so that neighbours correlate by .64. Queries share a fifth of their mixture (in power)
//           with the keys of their head, which makes like attend to like:
//             a_q = sqrt(.2) a_k + sqrt(.8) a'.
//           q and k are then RMS-normed over the head, multiplied by a gain per channel,
//             gain max(.1, 1 + .3 z[h,c]),
//           and rotated: of the D/2 pairs (2i, 2i+1) the last D/6 turn with x, the D/6 before them
//           with y and the others with t, pair i of the n of its axis by pos 10000^(-i/n) radians.
//           Last, k += kmean. v = x + vmean with a mixture of its own. Each segment is a grid of
//           its own, filled in the order t, y, x; the phases differ between segments, the rest is
//           the network's.
//
// outlier   gaussian, but in each KV head 2 channels of k, 2 other channels of its queries and one
//           element of v in 1024 are outlier_gain z (one channel each below D = 8). The means are
//           added as they are.
//
// sink      In each segment of n keys one key, at round(sink_position (n - 1)), has the weight
//           sink_weight in every row, and V = 0; the scores of the others are N(0, score_std^2).
//           Per KV head, u is one channel, as real sinks ride on few; w is a random direction per
//           query, and both it and z' = z - (z.u) u are orthogonal to u:
//             q = sqrt(D) u + sqrt(D-1) w
//             k = score_std sqrt(D/(D-1)) z',   v = z + vmean
//             k_sink = s u,  s = ln(sink_weight / (1 - sink_weight)) + ln(n-1) + score_std^2 / 2,
//           so q.k_sink / sqrt(D) = s, and the others' exponentials sum to (n-1) e^(score_std^2/2)
//           in the mean. kmean is added to all keys, which changes no weight.
struct SampleSpec {
    SampleKind kind = SampleKind::kGaussian;
    std::vector<std::int64_t> segment_tokens;  // lengths; zero is allowed
    std::int64_t heads_q = 8;
    std::int64_t heads_kv = 8;
    std::int64_t head_dim = 128;
    std::uint64_t seed = 1;

    double k_mean_std = 0.0;
    double v_mean_std = 0.0;

    // dit: (t, y, x). Zeros: chosen for each segment, four times as wide and high as it is long.
    std::array<std::int64_t, 3> grid = {0, 0, 0};
    double gain = 1.25;

    double outlier_gain = 20.0;

    double sink_weight = 0.9;
    double sink_position = 0.3;  // 0: first key, 1: last
    double score_std = 0.5;

    // The kind with its usual means: dit has k_mean_std = 1 and v_mean_std = .5, the others none.
    [[nodiscard]] static SampleSpec defaults(SampleKind kind);
};

struct Sample {
    std::vector<float> q;                  // [T, heads_q, head_dim]
    std::vector<float> k;                  // [T, heads_kv, head_dim]
    std::vector<float> v;                  // [T, heads_kv, head_dim]
    std::vector<std::int32_t> cu_seqlens;  // [segments + 1]
    // What made it, softmax_scale and causal included, for the file's metadata.
    std::map<std::string, std::string, std::less<>> metadata;
};

// Throws Error where the spec makes no sense.
[[nodiscard]] Sample make_sample(const SampleSpec& spec);

}  // namespace quatt::tools

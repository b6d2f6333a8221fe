// The end of a row, for every engine that keeps its sums under a running max.
#include <array>
#include <cmath>
#include <limits>

#include "recipe/attend.hpp"
#include "recipe/lazy_softmax.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {
namespace {

// Natural-log units that smoothing K took from all scores of a row: q . mean(K) * softmax_scale,
// with the unquantised q.
[[nodiscard]] float lost_to_smoothing(const HeadProblem& p, const CanonicalHead& k,
                                      std::int64_t row) {
    if (k.shape.mean_blocks == 0) {
        return 0;
    }
    std::array<float, kMaxHeadDim> q;
    load_row(p.q, row, q.data());
    float sum = 0;
    for (std::int64_t d = 0; d < k.channels; d++) {
        sum += q[static_cast<std::size_t>(d)] * k.mean[d];
    }
    return sum * p.softmax_scale;
}

QUATT_CLONES void scale_sums(const float* o, std::int64_t n, float keys_scale, const float* factor,
                             float inv, float* out) {
    for (std::int64_t d = 0; d < n; d++) {
        out[d] = o[d] * keys_scale * factor[d] * inv;
    }
}

QUATT_CLONES void add_mean(const float* mean, std::int64_t n, float share, float* out) {
    for (std::int64_t d = 0; d < n; d++) {
        out[d] += mean[d] * share;
    }
}

}  // namespace

void finish_row(const HeadProblem& p, const quatt_recipe& r, const CanonicalHead& k,
                const CanonicalHead& v, std::int64_t row, float m, float l, float l_far,
                const float* o) {
    std::array<float, kMaxHeadDim> out{};
    const float w = static_cast<float>(r.exponent_bias);
    if (l == 0.0f) {
        const float lse = p.has_sink ? p.sink : -std::numeric_limits<float>::infinity();
        store_row(p.to, row, out.data(), lse);
        return;
    }
    const bool wanted = p.has_sink || p.to.lse != nullptr;
    const float shift = wanted ? lost_to_smoothing(p, k, row) : 0.0f;
    const float l_centred = l - l_far;
    float keys_scale = 1;  // of O and of the keys' part of l, after the sink moved m
    const float s = p.has_sink ? (p.sink - shift) * kLog2E : kNoMax;
    const bool only_sink = s == std::numeric_limits<float>::infinity();
    if (only_sink) {  // no score of a key comes near, or fp32 would not hold it in log2 units
        keys_scale = 0;
        l = l * keys_scale + exp2_fast(w);
    } else if (p.has_sink) {
        const float to = std::fmax(m, std::ceil(s));
        keys_scale = rescaling(m, to);
        l = l * keys_scale + exp2_fast(s - to + w);
        m = to;
    }
    const float inv = 1.0f / l;
    const float share = l_centred * keys_scale * inv;  // (l - l_far - l_sink) / l
    std::array<float, kMaxHeadDim> factor;
    channel_factors(r.v, v, factor.data());
    scale_sums(o, v.channels, keys_scale, factor.data(), inv, out.data());
    if (v.shape.mean_blocks > 0) {
        add_mean(v.mean, v.channels, share, out.data());
    }
    const float lse = only_sink ? p.sink + 0 * l : (m - w + std::log2(l)) * kLn2 + shift;
    store_row(p.to, row, out.data(), lse);
}

}  // namespace quatt::recipe

#include "recipe/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/e2m1.hpp"
#include "formats/int8.hpp"
#include "formats/tables.hpp"
#include "formats/ue4m3.hpp"
#include "recipe/recipes.hpp"
#include "recipe/rows.hpp"
#include "recipe/sample.hpp"

namespace quatt::recipe {
namespace {

using formats::Bf16;
using formats::E2m1;
using formats::E4m3;
using formats::Int8;
using formats::Ue4m3;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kChannelGroup = 16;  // channels or keys that share a UE4M3 scale

using Row = std::array<float, kMaxHeadDim>;

[[nodiscard]] std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// |x|max that remembers a value which is not finite: fmax would drop it.
class Amax {
public:
    void add(const float* x, std::int64_t n) { bits_ = std::max(bits_, largest_magnitude(x, n)); }
    void add(float x) { add(&x, 1); }
    [[nodiscard]] float value() const { return of(bits_); }

    [[nodiscard]] static float of(std::uint32_t bits) {
        return bits >= kNotFinite ? kNaN : formats::bit_cast<float>(bits);
    }

private:
    std::uint32_t bits_ = 0;
};

// UE4M3 scale as the number it decodes to; 0 for a group of zeros.
[[nodiscard]] float ue4m3_scale(float amax, float target) {
    return Ue4m3::decode(Ue4m3::encode(amax * (1.0f / target)));
}

[[nodiscard]] float reciprocal(float scale) {
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

// The power of two that brings amax into [1344, 2688) = [1.3125, 2.625) * 2^10 when divided by it.
[[nodiscard]] float normalizer(float amax) {
    if (!(amax > 0.0f)) {
        return std::isnan(amax) ? kNaN : 1.0f;
    }
    int exponent = 0;
    const float fraction = std::frexp(amax, &exponent);  // in [.5, 1)
    const int e = exponent - (fraction >= 1.3125f / 2 ? 11 : 12);
    return std::ldexp(1.0f, std::clamp(e, -126, 126));
}

void decode_codes(quatt_format format, const std::byte* c, std::int64_t n, float* out) {
    const auto byte_table = [&](const std::array<float, 256>& table) {
        for (std::int64_t d = 0; d < n; d++) {
            out[d] = table[static_cast<std::uint8_t>(c[d])];
        }
    };
    switch (format) {
        case QUATT_FORMAT_F32:
            std::memcpy(out, c, static_cast<std::size_t>(n) * sizeof(float));
            break;
        case QUATT_FORMAT_BF16:
        case QUATT_FORMAT_F16:
            decode_wide_row(format, c, n, out);
            break;
        case QUATT_FORMAT_E4M3:
            byte_table(formats::kDecodeTable<E4m3>);
            break;
        case QUATT_FORMAT_INT8:
            byte_table(formats::kDecodeTable<Int8>);
            break;
        default:
            byte_table(formats::kDecodeTable<E2m1>);
    }
}

// One row in groups of 16 channels with UE4M3 scales.
void encode_fp4_row(const float* x, std::int64_t n, float target, std::byte* codes, float* scales) {
    for (std::int64_t d0 = 0; d0 < n; d0 += kChannelGroup) {
        const std::int64_t d1 = std::min(n, d0 + kChannelGroup);
        Amax amax;
        amax.add(x + d0, d1 - d0);
        const float s = ue4m3_scale(amax.value(), target), inv = reciprocal(s);
        scales[d0 / kChannelGroup] = s;
        for (std::int64_t d = d0; d < d1; d++) {
            codes[d] = static_cast<std::byte>(E2m1::encode(x[d] * inv));
        }
    }
}

// Quantises a head: the input with its mean and norm removed, row by row.
class Quantizer {
public:
    Quantizer(const quatt_operand_recipe& r, const HeadView& x, const CanonicalHead& to)
        : r_(r), x_(x), to_(to) {}

    // Returns QUATT_DATA_* bits.
    std::int32_t run() {
        find_means();
        find_norms();
        if (r_.scale_format == QUATT_SCALE_NONE) {
            return without_scales();
        }
        if (r_.scale_format == QUATT_SCALE_F32) {
            r_.group_channels != 1             ? per_token_group()
            : r_.center == QUATT_CENTER_SAMPLE ? per_sampled_channel()
                                               : per_channel();
        } else if (r_.key_groups != 0 || r_.group_channels == 1) {
            fp4_along_keys();
        } else {
            fp4_along_channels();
        }
        return 0;
    }

private:
    [[nodiscard]] std::int64_t block_of(std::int64_t j, bool per_block) const {
        return per_block ? j / r_.block_tokens : 0;
    }

    // Channel means over real tokens, summed in double and rounded to bf16: the order of a kernel's
    // sum then rarely shows.
    void find_means() {
        if (r_.center == QUATT_CENTER_SAMPLE) {
            find_sampled_centers();
            return;
        }
        for (std::int64_t b = 0; b < to_.shape.mean_blocks; b++) {
            const std::int64_t first = r_.center == QUATT_CENTER_BLOCK ? b * r_.block_tokens : 0;
            const std::int64_t last = r_.center == QUATT_CENTER_BLOCK
                                          ? std::min(x_.tokens, first + r_.block_tokens)
                                          : x_.tokens;
            std::array<double, kMaxHeadDim> sum{};
            Row row;
            for (std::int64_t j = first; j < last; j++) {
                load_row(x_, j, row.data());
                add_to_sums(row.data(), x_.channels, sum.data());
            }
            for (std::int64_t d = 0; d < x_.channels; d++) {
                const double mean =
                    sum[static_cast<std::size_t>(d)] / static_cast<double>(last - first);
                to_.mean[b * x_.channels + d] =
                    Bf16::decode(Bf16::encode(static_cast<float>(mean)));
            }
        }
    }

    // What a group of the sample says about each channel.
    struct Group {
        Row sum{}, smallest, largest;  // the sum of x / 256
    };

    // to = the sum of tokens t, t + step, t + 2 step ... of group g, in the order of a fold.
    void fold(std::uint32_t g, std::uint32_t t, std::uint32_t step, Row& to, Group& group) const {
        if (step == kGroupTokens) {
            const std::int64_t token = sample_token(g, t, x_.tokens);
            if (token < 0) {
                to.fill(0);
                return;
            }
            load_row(x_, token, to.data());
            lower_row(group.smallest.data(), to.data(), x_.channels);
            raise_row(group.largest.data(), to.data(), x_.channels);
            scale_row(to.data(), kSumFactor, x_.channels);
            return;
        }
        Row other;
        fold(g, t, 2 * step, to, group);
        fold(g, t + step, 2 * step, other, group);
        add_row(to.data(), other.data(), x_.channels);
    }

    // Centres of all channels, and for a scale a channel the scale that the sample suggests.
    void find_sampled_centers() {
        if (x_.tokens == 0) {
            return;
        }
        constexpr float kInf = std::numeric_limits<float>::infinity();
        std::array<Row, kSampleGroups> mean, half;
        Row smallest, largest;
        std::array<std::uint32_t, kMaxHeadDim> count{};
        smallest.fill(kInf);
        largest.fill(-kInf);
        for (std::uint32_t g = 0; g < kSampleGroups; g++) {
            Group group;
            group.smallest.fill(kInf);
            group.largest.fill(-kInf);
            const std::uint32_t size = group_size(g, x_.tokens);
            if (size > 0) {
                fold(g, 0, 1, group.sum, group);
            }
            for (std::size_t d = 0; d < static_cast<std::size_t>(x_.channels); d++) {
                const bool is_counted = size > 0 && is_finite(group.sum[d]);
                mean[g][d] = is_counted ? group.sum[d] * mean_factor(size) : kInf;
                half[g][d] = is_counted ? half_range(group.smallest[d], group.largest[d]) : kInf;
                if (is_counted) {
                    count[d]++;
                    smallest[d] = std::min(smallest[d], group.smallest[d]);
                    largest[d] = std::max(largest[d], group.largest[d]);
                }
            }
        }
        for (std::size_t d = 0; d < static_cast<std::size_t>(x_.channels); d++) {
            float means[kSampleGroups], halves[kSampleGroups];
            for (std::uint32_t g = 0; g < kSampleGroups; g++) {
                means[g] = mean[g][d];
                halves[g] = half[g][d];
            }
            if (r_.group_channels == 1 && count[d] > 0) {
                const SampledChannel c =
                    sampled_channel(median(means, count[d]), median(halves, count[d]), smallest[d],
                                    largest[d], sample_size(x_.tokens), r_.amax_target);
                to_.mean[d] = c.center;
                to_.scales[d] = c.scale;
            } else {
                to_.mean[d] = rounded_center(median(means, count[d]));
                if (r_.group_channels == 1) {
                    to_.scales[d] = kLeastScale;
                }
            }
        }
    }

    // Which tokens are far from the centre.
    void find_far_tokens() const {
        const float center_squares = folded_squares(nullptr, to_.mean, x_.channels);
        Row row;
        for (std::int64_t j = 0; j < x_.tokens; j++) {
            if (j % 64 == 0) {
                to_.far[j / 64] = 0;
            }
            load_row(x_, j, row.data());
            const bool far =
                is_far(folded_squares(row.data(), to_.mean, x_.channels), center_squares);
            to_.far[j / 64] |= std::uint64_t{far} << j % 64;
        }
    }

    void find_norms() {
        for (std::int64_t b = 0; b < to_.shape.norm_blocks; b++) {
            const bool per_block = r_.normalize == QUATT_NORMALIZE_BLOCK;
            const std::int64_t first = per_block ? b * r_.block_tokens : 0;
            const std::int64_t last =
                per_block ? std::min(x_.tokens, first + r_.block_tokens) : x_.tokens;
            Amax amax;
            Row row;
            for (std::int64_t j = first; j < last; j++) {
                centred_row(j, row.data());
                amax.add(row.data(), x_.channels);
            }
            if (to_.shape.mean_row_codes) {  // blocks of mean and norm are the same
                amax.add(to_.mean + b * x_.channels, x_.channels);
            }
            to_.norm[b] = normalizer(amax.value());
        }
    }

    void centred_row(std::int64_t j, float* out) const {
        load_row(x_, j, out);
        if (to_.shape.mean_blocks > 0) {
            subtract_row(out, to_.mean + block_of(j, r_.center == QUATT_CENTER_BLOCK) * x_.channels,
                         x_.channels);
        }
    }

    void prepared_row(std::int64_t j, float* out) const {
        centred_row(j, out);
        if (to_.shape.norm_blocks > 0) {
            scale_row(out, 1.0f / to_.norm[block_of(j, r_.normalize == QUATT_NORMALIZE_BLOCK)],
                      x_.channels);
        }
    }

    // Rows [first, last), each changed by f before it is encoded.
    template <class F>
    void encode_rows(std::int64_t first, std::int64_t last, F&& f) const {
        Row row;
        for (std::int64_t j = first; j < last; j++) {
            prepared_row(j, row.data());
            f(row.data());
            encode_row(r_.format, row.data(), x_.channels,
                       to_.codes + j * x_.channels * to_.shape.code_bytes);
        }
    }

    // NOTE: an infinite score would make the key one without weight, or the row one without keys.
    std::int32_t without_scales() const {
        // The first magnitude that rounds to infinity.
        const float end = r_.format == QUATT_FORMAT_F16    ? 65520.0f
                          : r_.format == QUATT_FORMAT_BF16 ? 0x1.FFp127f
                                                           : std::numeric_limits<float>::infinity();
        const bool fits = to_.shape.mean_blocks == 0 && to_.shape.norm_blocks == 0 &&
                          ((x_.dtype == QUATT_F16 && r_.format == QUATT_FORMAT_F16) ||
                           (x_.dtype == QUATT_BF16 && r_.format == QUATT_FORMAT_BF16));
        bool overflowed = false;
        encode_rows(0, x_.tokens, [&](float* x) {
            if (fits) {
                return;
            }
            const std::uint32_t largest = largest_magnitude(x, x_.channels);
            if (largest < formats::bit_cast<std::uint32_t>(end)) {
                return;
            }
            for (std::int64_t d = 0; d < x_.channels; d++) {
                if (std::isfinite(x[d]) && std::fabs(x[d]) >= end) {
                    x[d] = kNaN;
                    overflowed = true;
                }
            }
        });
        return overflowed ? QUATT_DATA_OVERFLOW : 0;
    }

    void per_token_group() const {
        const std::int64_t size =
            r_.group_tokens == 0 ? std::max<std::int64_t>(x_.tokens, 1) : r_.group_tokens;
        Row row;
        for (std::int64_t g = 0; g < to_.shape.token_groups; g++) {
            const std::int64_t first = g * size, last = std::min(x_.tokens, first + size);
            Amax amax;
            for (std::int64_t j = first; j < last; j++) {
                prepared_row(j, row.data());
                amax.add(row.data(), x_.channels);
            }
            to_.scales[g] = scale_of_amax(amax.value(), r_.amax_target);
            const float inverse = 1.0f / to_.scales[g];
            encode_rows(first, last, [&](float* x) { scale_row(x, inverse, x_.channels); });
        }
    }

    void per_channel() const {
        std::array<std::uint32_t, kMaxHeadDim> largest{}, largest_uncentred{};
        Row row, inverse;
        for (std::int64_t j = 0; j < x_.tokens; j++) {
            load_row(x_, j, row.data());
            raise_magnitudes(row.data(), x_.channels, largest_uncentred.data());
            if (to_.shape.mean_blocks > 0) {
                subtract_row(row.data(), to_.mean, x_.channels);
            }
            raise_magnitudes(row.data(), x_.channels, largest.data());
        }
        for (std::int64_t d = 0; d < x_.channels && to_.shape.token_groups > 0; d++) {
            const auto u = static_cast<std::size_t>(d);
            float a = Amax::of(largest[u]);
            if (to_.shape.mean_blocks > 0 && std::fabs(to_.mean[d]) < a * kLeastMean) {
                to_.mean[d] = 0;
                a = Amax::of(largest_uncentred[u]);
            }
            to_.scales[d] = scale_of_amax(a, r_.amax_target);
            inverse[u] = 1.0f / to_.scales[d];
        }
        encode_rows(0, x_.tokens, [&](float* x) { multiply_row(x, inverse.data(), x_.channels); });
    }

    // A token that is far from the centre is coded as it is. Where a code does not reach the value,
    // the sample lied about the channel, which takes the exact amax then.
    void per_sampled_channel() const {
        if (x_.tokens == 0) {
            return;
        }
        find_far_tokens();
        std::array<std::uint32_t, kMaxHeadDim> largest{};
        Row inverse;
        const auto encode_all = [&](auto&& look) {
            for (std::size_t d = 0; d < static_cast<std::size_t>(x_.channels); d++) {
                inverse[d] = 1.0f / to_.scales[d];
            }
            Row row;
            for (std::int64_t j = 0; j < x_.tokens; j++) {
                load_row(x_, j, row.data());
                if (!is_far_token(to_, j)) {
                    subtract_row(row.data(), to_.mean, x_.channels);
                }
                look(row.data());
                multiply_row(row.data(), inverse.data(), x_.channels);
                encode_row(r_.format, row.data(), x_.channels, to_.codes + j * x_.channels);
            }
        };
        bool lied = false;
        encode_all([&](const float* x) {
            lied |= raise_beyond(x, inverse.data(), r_.amax_target, x_.channels, largest.data());
        });
        if (lied) {
            for (std::size_t d = 0; d < static_cast<std::size_t>(x_.channels); d++) {
                if (largest[d] != 0) {
                    to_.scales[d] = scale_of_amax(Amax::of(largest[d]), r_.amax_target);
                }
            }
            encode_all([](const float*) {});
        }
    }

    void fp4_along_channels() const {
        Row row;
        for (std::int64_t j = 0; j < x_.tokens; j++) {
            prepared_row(j, row.data());
            encode_fp4_row(row.data(), x_.channels, r_.amax_target, to_.codes + j * x_.channels,
                           to_.scales + j * to_.shape.channel_groups);
        }
        for (std::int64_t b = 0; b < (to_.shape.mean_row_codes ? to_.shape.mean_blocks : 0); b++) {
            const float inv = 1.0f / to_.norm[b];
            for (std::int64_t d = 0; d < x_.channels; d++) {
                row[static_cast<std::size_t>(d)] = to_.mean[b * x_.channels + d] * inv;
            }
            encode_fp4_row(row.data(), x_.channels, r_.amax_target,
                           to_.mean_codes + b * x_.channels,
                           to_.mean_scales + b * to_.shape.channel_groups);
        }
    }

    void fp4_along_keys() const {
        constexpr std::int64_t kChunk = 32;  // keys of two scale groups
        std::array<Row, kChunk> rows;
        for (std::int64_t first = 0; first < x_.tokens; first += kChunk) {
            const std::int64_t n = std::min(kChunk, x_.tokens - first);
            for (std::int64_t i = 0; i < n; i++) {
                prepared_row(first + i, rows[static_cast<std::size_t>(i)].data());
            }
            for (std::int64_t d = 0; d < x_.channels; d++) {
                const auto column = [&](std::int64_t i) -> float {
                    return rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)];
                };
                std::array<Amax, 2> amax;
                const std::int64_t g0 = token_group(r_, first);
                for (std::int64_t i = 0; i < n; i++) {
                    amax[static_cast<std::size_t>(token_group(r_, first + i) - g0)].add(column(i));
                }
                std::array<float, 2> inverse{};
                for (std::int64_t b = 0; b < 2 && g0 + b < to_.shape.token_groups; b++) {
                    const float s =
                        ue4m3_scale(amax[static_cast<std::size_t>(b)].value(), r_.amax_target);
                    to_.scales[(g0 + b) * to_.shape.channel_groups + d] = s;
                    inverse[static_cast<std::size_t>(b)] = reciprocal(s);
                }
                for (std::int64_t i = 0; i < n; i++) {
                    const float inv =
                        inverse[static_cast<std::size_t>(token_group(r_, first + i) - g0)];
                    to_.codes[(first + i) * x_.channels + d] =
                        static_cast<std::byte>(E2m1::encode(column(i) * inv));
                }
            }
        }
    }

    const quatt_operand_recipe& r_;
    const HeadView& x_;
    const CanonicalHead& to_;
};

void take_codes(const HeadView& x, const CanonicalHead& to) {
    for (std::int64_t g = 0; g < to.shape.token_groups; g++) {
        to.scales[g] = x.descale;
    }
    for (std::int64_t j = 0; j < x.tokens; j++) {
        for (std::int64_t d = 0; d < x.channels; d++) {
            to.codes[j * x.channels + d] = x.data[j * x.token_stride + d * x.channel_stride];
        }
    }
}

}  // namespace

CanonicalShape canonical_shape(const quatt_operand_recipe& r, bool mean_term, std::int64_t tokens,
                               std::int64_t channels) {
    CanonicalShape s;
    s.code_bytes = r.format == QUATT_FORMAT_F32                                    ? 4
                   : r.format == QUATT_FORMAT_BF16 || r.format == QUATT_FORMAT_F16 ? 2
                                                                                   : 1;
    const std::int64_t blocks = r.block_tokens > 0 ? ceil_div(tokens, r.block_tokens) : 0;
    const std::int64_t whole = tokens > 0 ? 1 : 0;
    if (r.scale_format != QUATT_SCALE_NONE) {
        s.token_groups = r.key_groups != 0     ? 2 * ceil_div(tokens, 32)
                         : r.group_tokens == 0 ? whole
                                               : ceil_div(tokens, r.group_tokens);
        s.channel_groups = r.group_channels == 0 ? 1 : ceil_div(channels, r.group_channels);
    }
    s.mean_blocks = r.center == QUATT_CENTER_NONE    ? 0
                    : r.center == QUATT_CENTER_BLOCK ? blocks
                                                     : whole;
    s.far_words = keeps_far_tokens(r) ? ceil_div(tokens, 64) : 0;
    s.norm_blocks = r.normalize == QUATT_NORMALIZE_NONE      ? 0
                    : r.normalize == QUATT_NORMALIZE_SEGMENT ? whole
                                                             : blocks;
    s.mean_row_codes = mean_term;
    return s;
}

std::int32_t quantize(const quatt_operand_recipe& r, const HeadView& x, const CanonicalHead& to) {
    if (x.dtype == QUATT_E4M3 && takes_given_codes(r)) {
        take_codes(x, to);
        return 0;
    }
    return Quantizer(r, x, to).run();
}

void decode_row(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t j, float* out) {
    decode_codes(r.format, h.codes + j * h.channels * h.shape.code_bytes, h.channels, out);
    if (r.scale_format == QUATT_SCALE_UE4M3) {
        const float* s = h.scales + token_group(r, j) * h.shape.channel_groups;
        for (std::int64_t d = 0; d < h.channels; d++) {
            out[d] *= s[d / r.group_channels];
        }
    }
}

void decode_mean_row(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t b,
                     float* out) {
    decode_codes(r.format, h.mean_codes + b * h.channels, h.channels, out);
    const float* s = h.mean_scales + b * h.shape.channel_groups;
    for (std::int64_t d = 0; d < h.channels; d++) {
        out[d] *= s[d / r.group_channels];
    }
}

float row_factor(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t j) {
    float f = r.scale_format == QUATT_SCALE_F32 ? h.scales[token_group(r, j)] : 1.0f;
    if (h.shape.norm_blocks > 0) {
        f *= h.norm[r.normalize == QUATT_NORMALIZE_BLOCK ? j / r.block_tokens : 0];
    }
    return f;
}

void channel_factors(const quatt_operand_recipe& r, const CanonicalHead& h, float* out) {
    const float norm = h.shape.norm_blocks > 0 ? h.norm[0] : 1.0f;
    for (std::int64_t d = 0; d < h.channels; d++) {
        const float scale =
            r.scale_format == QUATT_SCALE_F32 ? h.scales[r.group_channels == 1 ? d : 0] : 1.0f;
        out[d] = scale * norm;
    }
}

}  // namespace quatt::recipe

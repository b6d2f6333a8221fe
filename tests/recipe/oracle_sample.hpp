// The sample of a segment and what comes of it (docs/recipes.md, "The sample" and "Far tokens"),
// once more, from the text: in fp64, and in plain loops of fp32 where the text fixes bits. Nothing
// here calls the code under test.
#pragma once
#include <array>
#include <cstddef>
#include <functional>

#include "oracle.hpp"

namespace quatt::oracle {

// What draws places and orders: the text leaves it to the code, so it stands here again.
[[nodiscard]] inline std::uint32_t sample_hash(std::uint32_t x) {
    const auto step = [](std::uint32_t y, std::uint32_t factor, int shift) {
        const std::uint32_t z = y * factor;
        return z ^ (z >> shift);
    };
    return step(step(step(x, 2654435769U, 16), 2246822507U, 13), 3266489909U, 16);
}

// Tokens of the 16 groups, by their number in the group; -1: none.
using SampleGroups = std::array<std::array<std::int64_t, 64>, 16>;

[[nodiscard]] inline SampleGroups sample_groups(std::int64_t tokens) {
    SampleGroups groups;
    for (auto& g : groups) {
        g.fill(-1);
    }
    for (std::int64_t i = 0; i < std::min<std::int64_t>(tokens, 1024); i++) {
        const std::uint32_t order = sample_hash(static_cast<std::uint32_t>(i / 16)) & 15U;
        const auto group = static_cast<std::size_t>(static_cast<std::uint32_t>(i % 16) ^ order);
        std::int64_t token = i;
        if (tokens > 1024) {
            const auto first = static_cast<std::int64_t>(static_cast<long double>(i) *
                                                         static_cast<long double>(tokens) / 1024),
                       end = static_cast<std::int64_t>(static_cast<long double>(i + 1) *
                                                       static_cast<long double>(tokens) / 1024);
            const long double part =
                static_cast<long double>(sample_hash(0xFFFFFFFFU - static_cast<std::uint32_t>(i))) /
                0x1p32L;
            token = first + static_cast<std::int64_t>(part * static_cast<long double>(end - first));
        }
        groups[group][static_cast<std::size_t>(i / 16)] = token;
    }
    return groups;
}

// fp32 numbers of one channel.
using Channel = std::function<double(std::int64_t token)>;
using Elements = std::function<double(std::int64_t token, std::int64_t channel)>;

// The sum of a group's x / 256: tokens t and t + 32 are added, then t and t + 16, and so on.
[[nodiscard]] inline float folded_sum(const std::array<std::int64_t, 64>& group, const Channel& x) {
    std::array<float, 64> sum{};
    for (std::size_t t = 0; t < 64; t++) {
        sum[t] = group[t] < 0 ? 0.0f : static_cast<float>(x(group[t]) / 256);
    }
    for (std::size_t half = 32; half > 0; half /= 2) {
        for (std::size_t t = 0; t < half; t++) {
            sum[t] = sum[t] + sum[t + half];
        }
    }
    return sum[0];
}

[[nodiscard]] inline double median_of(std::vector<double> x) {
    if (x.empty()) {
        return 0;
    }
    std::sort(x.begin(), x.end());
    const std::size_t n = x.size();
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

struct ChannelSample {
    std::size_t groups = 0;  // that count
    double center = 0;       // bf16
    double half_range = 0;
    double lowest = kInf, highest = -kInf;
};

[[nodiscard]] inline ChannelSample sample_channel(const SampleGroups& groups, const Channel& x) {
    ChannelSample s;
    std::vector<double> means, halves;
    for (const auto& group : groups) {
        double low = kInf, high = -kInf, size = 0;
        bool counts = true;
        for (const std::int64_t j : group) {
            if (j >= 0) {
                const double y = x(j);
                counts = counts && std::isfinite(y);
                low = std::min(low, y);
                high = std::max(high, y);
                size++;
            }
        }
        if (size == 0 || !counts) {
            continue;
        }
        // The factor 256 / size is an fp32 number, and so is the product.
        means.push_back(
            nearest(kF32, static_cast<double>(folded_sum(group, x)) * nearest(kF32, 256 / size)));
        halves.push_back(nearest(kF32, (high - low) / 2));
        s.lowest = std::min(s.lowest, low);
        s.highest = std::max(s.highest, high);
    }
    s.groups = means.size();
    s.center = nearest(kBf16, nearest(kF32, median_of(means)));
    s.half_range = median_of(halves);
    return s;
}

// Tokens of V that are far from the centre, in bits.
[[nodiscard]] inline float folded_square(std::int64_t channels,
                                         const std::function<float(std::int64_t)>& term) {
    std::array<float, 32> lane{};
    for (std::int64_t d = 0; d < channels; d++) {
        float& l = lane[static_cast<std::size_t>(d % 128 / 4)];
        l = std::fmaf(term(d), term(d), l);
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

struct SampledHead {
    std::vector<double> center, scale;
    std::vector<char> lied;      // channels that took their exact amax
    std::vector<char> doubtful;  // whose scale or centre hangs on less than fp32 can tell
    std::vector<char> far;       // tokens
};

// A head of K (centres alone) or V (scales and far tokens too). `centres_are_kept`: what the code
// under test decided for a channel, which is believed where the decision is within rounding.
[[nodiscard]] inline SampledHead sampled_head(
    std::int64_t tokens, std::int64_t channels, bool is_v, double target, const Elements& x,
    const std::function<bool(std::int64_t channel)>& centres_are_kept = {}) {
    SampledHead h;
    const auto width = static_cast<std::size_t>(channels);
    h.center.assign(width, 0);
    h.scale.assign(width, 0);
    h.lied.assign(width, 0);
    h.doubtful.assign(width, 0);
    h.far.assign(static_cast<std::size_t>(tokens), 0);
    const SampleGroups groups = sample_groups(tokens);
    const auto m = static_cast<double>(std::min<std::int64_t>(tokens, 1024));
    const auto minus = [](double a, double b) { return nearest(kF32, a - b); };
    const auto close = [](double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); };
    for (std::size_t d = 0; d < width; d++) {
        const Channel channel = [&](std::int64_t j) { return x(j, static_cast<std::int64_t>(d)); };
        const ChannelSample s = sample_channel(groups, channel);
        double c = s.center;
        if (is_v && s.groups == 0) {
            h.scale[d] = 0x1p-126;
        } else if (is_v) {
            const double h4 = 4 * s.half_range * s.half_range;
            double a = std::max(std::fabs(minus(s.lowest, c)), std::fabs(minus(s.highest, c)));
            bool is_centred = std::fabs(c) >= a / 64 && c * c * m >= h4;
            if ((close(std::fabs(c), a / 64) || close(c * c * m, h4)) && centres_are_kept &&
                c != 0) {
                h.doubtful[d] = 1;
                is_centred = centres_are_kept(static_cast<std::int64_t>(d));
            }
            if (!is_centred) {
                c = 0;
                a = std::max(std::fabs(s.lowest), std::fabs(s.highest));
            }
            const double most = std::max(a, std::min(8 * a, 16 * s.half_range));
            h.scale[d] = std::max(std::min(most, kF32.max) / target, 0x1p-126);
        }
        h.center[d] = c;
    }
    if (!is_v) {
        return h;
    }
    const auto c = [&](std::int64_t d) {
        return static_cast<float>(h.center[static_cast<std::size_t>(d)]);
    };
    const float center = folded_square(channels, c);
    for (std::int64_t j = 0; j < tokens; j++) {
        const float sum = folded_square(
            channels, [&](std::int64_t d) { return static_cast<float>(x(j, d)) + c(d); });
        h.far[static_cast<std::size_t>(j)] =
            center > 0 && (sum < 2 * center || std::isnan(sum)) ? 1 : 0;
    }
    for (std::size_t d = 0; d < width; d++) {
        double amax = 0;
        for (std::int64_t j = 0; j < tokens; j++) {
            const double y = x(j, static_cast<std::int64_t>(d)),
                         coded =
                             h.far[static_cast<std::size_t>(j)] != 0 ? y : minus(y, h.center[d]);
            amax =
                std::isfinite(coded) && !std::isnan(amax) ? std::max(amax, std::fabs(coded)) : kNaN;
        }
        // Within rounding of the border both scales are the same but for that.
        h.doubtful[d] |= close(amax, target * h.scale[d]) ? 1 : 0;
        if (!(amax <= target * h.scale[d])) {
            h.lied[d] = 1;
            h.scale[d] = std::isnan(amax) ? kNaN : std::max(amax / target, 0x1p-126);
        }
    }
    return h;
}

}  // namespace quatt::oracle

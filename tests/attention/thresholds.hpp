// Scores that lie just beside a threshold of the softmax rule (docs/recipes.md), so that a kernel
// with another threshold gives another result, and the comparison that shows it.
// thresholds_test.cpp runs all kernels on them; tests/warp_mma/threshold_faults_test.cpp plants the
// faults that they find.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/harness.hpp"

namespace quatt::test {

// Differences count in units of the largest V, or, where only light keys have one, of the result,
// however small that is, or what it should be.
enum class Unit { kV, kResult };

struct ThresholdCase {
    Case data;
    const char* recipe;
    const char* what;
    Unit unit = Unit::kV;
};

using OfKey = std::function<double(std::int64_t)>;

// A case in which key j has score t(j), in log2 units, in every row. The scores must add up to 0,
// since K loses its mean in some recipes. Channels 0 and 1 carry the score, the second what the
// first lost to rounding.
[[nodiscard]] inline Case with_scores(Spec s, const OfKey& t, const OfKey& v) {
    double sum = 0;
    for (std::int64_t j = 0; j < s.tokens_k; j++) {
        sum += t(j);
    }
    EXPECT_LT(std::fabs(sum), 1e-6);
    Case c(std::move(s));
    const double unit = std::sqrt(static_cast<double>(c.spec.dim)) / (8 * 1.4426950408889634);
    const auto rounded = [&](double x) {
        Buffer b(c.spec.k, {1});
        b.set({static_cast<float>(x)});
        return value_at(b.view(), {0});
    };
    fill(c.q, [&](const Extents& i) { return i[3] < 2 ? 8 : 0; });
    fill(c.k, [&](const Extents& i) {
        const double whole = t(i[1]) * unit;
        return i[3] == 0 ? whole : i[3] == 1 ? whole - rounded(whole) : 0;
    });
    // Channels differ, so that no two are taken for each other.
    fill(c.v, [&](const Extents& i) { return v(i[1]) * (1 + static_cast<double>(i[3] % 8) / 8); });
    return c;
}

[[nodiscard]] inline Spec spec_for(const char* recipe, std::int64_t keys) {
    Spec s = spec_of(recipe);
    s.heads_q = 1;
    s.tokens_q = 20;  // rows g and g + 8 of a block, and of a second one
    s.tokens_k = keys;
    return s;
}

// What a result should be, and how far from it it may be beside the order of sums.
struct Wanted {
    std::vector<double> out, slack;
};

[[nodiscard]] inline Wanted emulated(ThresholdCase& t) {
    Wanted w{compute(t.data, "emulate", t.recipe, [](Problem& p) { p.key_tile = 64; }).out, {}};
    w.slack.resize(w.out.size());
    return w;
}

[[nodiscard]] inline testing::AssertionResult is_right(const ThresholdCase& t, const Results& got,
                                                       const Wanted& want) {
    const auto channels = static_cast<std::size_t>(got.channels);
    // No code of P flips here (all rows are alike), so only the order of sums is left, and for
    // cpu_avx512_fp16 their rounding: twice its rms, for the worst of 64 channels.
    const double sums =
        1e-5 + (is(device(), "cpu") ? 2 * short_sums(kernel(), Recipe{std::string(t.recipe)}) : 0);
    for (std::size_t row = 0; row < got.out.size() / channels; row++) {
        double worst = 0, size = t.unit == Unit::kV ? largest(t.data.v) : 0;
        for (std::size_t i = row * channels; i < (row + 1) * channels; i++) {
            size = t.unit == Unit::kV
                       ? size
                       : std::max({size, std::fabs(got.out[i]), std::fabs(want.out[i])});
            const double beyond = std::fabs(got.out[i] - want.out[i]) - want.slack[i];
            worst = beyond <= worst ? worst : beyond;  // NaN becomes the worst
        }
        if (!(worst <= sums * size)) {
            return testing::AssertionFailure()
                   << t.recipe << " by " << subject() << ", " << t.what << ", row " << row << ": "
                   << got.out[row * channels] << ", not " << want.out[row * channels]
                   << ": differs by " << worst << ", allowed " << sums * size;
        }
    }
    return testing::AssertionSuccess();
}

[[nodiscard]] inline std::int64_t tile_of(std::int64_t key) {
    return key / 64;
}

// Keys whose V is not 0 are those with a `light` score; neighbours have opposite V, so that V has
// no mean, and scores that differ by 1, so that they do not cancel.
[[nodiscard]] inline double in_pairs(std::int64_t key) {
    return key % 2 == 0 ? 1 : -1;
}
[[nodiscard]] inline double odd(std::int64_t key) {
    return static_cast<double>(key % 2);
}

// m rises by 4 after an interval has been promoted: what was promoted must follow.
[[nodiscard]] inline ThresholdCase a_small_rise_after_a_promotion(const char* recipe,
                                                                  std::int64_t dim) {
    Spec s = spec_for(recipe, 2304 + 128);
    s.dim = dim;
    // Tile 20 of 38 rises; tiles 10 and 11 hold the balance.
    const OfKey t = [](std::int64_t j) {
        const std::int64_t tile = tile_of(j);
        return tile == 20 ? 3.5 : tile == 10 || tile == 11 ? (35 * .2 - 3.5) / 2 : -.2;
    };
    const OfKey v = [](std::int64_t j) { return j >= 2304 ? 4 : tile_of(j) == 20 ? -2 : .5; };
    return {with_scores(s, t, v), recipe, "a rise of 4 after the border"};
}

// After a rise of 8 the next tile is refreshed, and m drops to the light keys in it; after a rise
// of 7 it is not, and they are lost. The rise comes in a tile that is refreshed itself (`at` 1), or
// by an overflow in one that is not (2; none is a rise of 7 in f16, whose p of 2^15 is 7 above m).
[[nodiscard]] inline ThresholdCase a_rise_before_light_keys(const char* recipe, int rise,
                                                            std::int64_t at) {
    // As tiles are met: below 0, the rise, light keys, the balance.
    const double top = rise - .4, light = top - 32;
    const double balance =
        -(-.4 * static_cast<double>(at) + top + light + .5) / static_cast<double>(5 - at);
    const auto met = [](std::int64_t j) { return 6 - tile_of(j); };
    const OfKey t = [&](std::int64_t j) {
        return met(j) < at ? -.4 : met(j) == at ? top : met(j) == at + 1 ? light + odd(j) : balance;
    };
    return {with_scores(spec_for(recipe, 7 * 64), t,
                        [&](std::int64_t j) { return met(j) == at + 1 ? in_pairs(j) : 0; }),
            recipe, rise == 7 ? "a rise of 7" : "a rise of 8", Unit::kResult};
}

// m drops to 40 below the highest that it ever was, twice: the second time not by 40 again.
[[nodiscard]] inline ThresholdCase two_drops(const char* recipe) {
    // As tiles are met: heavy keys (tile 37), then 60 below them (tile 36), and 90 below from the
    // border of the interval (tile 35) on.
    const OfKey level = [](std::int64_t j) {
        return tile_of(j) == 37 ? 0. : tile_of(j) == 36 ? -60. : -88.5 + odd(j) - 1;
    };
    double mean = 0;
    constexpr std::int64_t kKeys = 38 * 64;
    for (std::int64_t j = 0; j < kKeys; j++) {
        mean += level(j) / kKeys;
    }
    return {with_scores(
                spec_for(recipe, kKeys), [&](std::int64_t j) { return level(j) - mean; },
                [](std::int64_t j) { return tile_of(j) <= 35 ? in_pairs(j) : 0; }),
            recipe, "two drops", Unit::kResult};
}

// P of 470 rounds to 448, the code that overflows: m rises, and P is made again. All keys of a tile
// have it.
[[nodiscard]] inline ThresholdCase equal_p_near_the_end_of_e4m3(const char* recipe) {
    // w is 6 in recipes with a P in E4M3. Tile 2 is the first that is not refreshed.
    const double t = 2.8765;
    const OfKey score = [&](std::int64_t j) {
        const std::int64_t met = 4 - tile_of(j);
        return met <= 1 ? -.1 : met == 2 ? t : -(t - .2) / 2;
    };
    return {with_scores(spec_for(recipe, 5 * 64), score,
                        [](std::int64_t j) { return tile_of(j) == 2 ? 4 : -1; }),
            recipe, "P of 470"};
}

// Likewise with one such key in its tile, whose other p's are too small to lift a sum of eight to
// 480.
[[nodiscard]] inline ThresholdCase a_lone_p_near_the_end_of_e4m3(const char* recipe) {
    // Codes of K: -448 for the others and 208 for the lone one. The balance does not overflow.
    const double t = 2.8765, others = -t * 448 / 208;
    const auto met = [](std::int64_t j) { return 8 - tile_of(j); };
    const OfKey score = [&](std::int64_t j) {
        return met(j) <= 1   ? -.1
               : met(j) > 2  ? -(t + 63 * others - 12.8) / 384
               : j % 64 == 0 ? t
                             : others;
    };
    return {with_scores(spec_for(recipe, 9 * 64), score,
                        [&](std::int64_t j) { return met(j) == 2 && j % 64 == 0 ? 4 : -1; }),
            recipe, "a lone P of 470"};
}

// A row's sum passes 2^64 while the part of each of its four lanes does not; V is so large that O
// is infinite where m stays.
[[nodiscard]] inline ThresholdCase a_sum_spread_over_lanes(std::int64_t dim) {
    Spec s = spec_for("bf16", 3 * 64);
    s.dim = dim;
    const OfKey t = [](std::int64_t j) {
        return tile_of(j) == 1 ? 59.9 : tile_of(j) == 2 ? 0 : -59.9;
    };
    // V is 2^62.2 at most, and 64 keys of 2^59.9 times that are 2^128.1.
    return {with_scores(s, t, [](std::int64_t) { return std::exp2(62.2) / 1.875; }), "bf16",
            "2^65.9 in four lanes"};
}

}  // namespace quatt::test

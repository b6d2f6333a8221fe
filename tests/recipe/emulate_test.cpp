// emulate_rows: the recipe step by step, against its text in fp64 on the same quantised operands.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "head.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

using support::bf16;
using support::Expected;
using support::Head;
using support::HeadInputs;
using support::HeadRows;
using support::normal_head;
using support::Random;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<std::int64_t> all_rows(std::int64_t n) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
}

// Up to n rows, the first and the last among them, ascending.
std::vector<std::int64_t> some_rows(Random& random, std::int64_t q_len, std::int64_t n) {
    std::set<std::int64_t> rows = {0, q_len - 1};
    while (static_cast<std::int64_t>(rows.size()) < std::min(n, q_len)) {
        rows.insert(random.integer(0, q_len - 1));
    }
    return {rows.begin(), rows.end()};
}

// ------------------------------------------------------------------------- the whole of a recipe

struct Tally {
    int rows = 0, doubtful = 0;
    int far = 0;  // rows to which far tokens matter
};

testing::AssertionResult as_the_text_says(const quatt_recipe& r, const HeadInputs& x,
                                          const std::vector<std::int64_t>& rows, Tally& tally) {
    const Head head(r, x);
    const HeadRows got = head.emulate(rows);
    for (std::size_t n = 0; n < rows.size(); n++) {
        const Expected want = head.by_the_law(rows[n]);
        const auto where = [&] {
            return testing::AssertionFailure()
                   << r.name << (r.accumulator != 0 ? " (hopper)" : "") << ", row " << rows[n]
                   << " of " << x.q_len << ", " << x.k_len << " keys, tile " << x.key_tile
                   << ", splits " << x.splits << ", causal " << x.causal << ", window " << x.left
                   << " " << x.right << ", sink " << x.has_sink << ": ";
        };
        tally.rows++;
        const double lse = static_cast<double>(got.lse[n]);
        if (!(lse == want.lse || std::fabs(lse - want.lse) <= want.lse_slack)) {
            return where() << "LSE " << lse << ", not " << want.lse << " +- " << want.lse_slack;
        }
        if (want.doubtful) {
            tally.doubtful++;
            continue;
        }
        bool far_matters = false;
        for (std::size_t d = 0; d < want.out.size(); d++) {
            far_matters |= want.of_far[d] > 10 * want.out_slack[d];
        }
        tally.far += far_matters ? 1 : 0;
        for (std::size_t d = 0; d < want.out.size(); d++) {
            const double y = static_cast<double>(got.out[n * want.out.size() + d]);
            if (!(std::fabs(y - want.out[d]) <= want.out_slack[d])) {
                return where() << "channel " << d << " is " << y << ", not " << want.out[d]
                               << " +- " << want.out_slack[d];
            }
        }
    }
    return testing::AssertionSuccess();
}

std::vector<quatt_recipe> recipes_and_accumulators() {
    std::vector<quatt_recipe> all;
    for (const quatt_recipe& r : kNamedRecipes) {
        all.push_back(r);
    }
    for (const char* name : {"fp8", "fp8_head", "int8_fp8", "nvfp4_fp8"}) {
        all.push_back(*find_recipe(name));
        all.back().accumulator = QUATT_ACCUMULATOR_HOPPER;
    }
    all.push_back(*find_recipe("fp8"));
    all.back().accumulator = QUATT_ACCUMULATOR_HOPPER;
    all.back().promotes = 0;
    all.back().v.center = QUATT_CENTER_NONE;
    all.push_back(*find_recipe("nvfp4"));
    all.back().q_mean_term = 0;
    // Short sums are of FP8 products only: beside a 16-bit K, scores are summed in fp32.
    all.push_back(*find_recipe("fp8"));
    all.back().accumulator = QUATT_ACCUMULATOR_HOPPER;
    all.back().k = find_recipe("bf16")->k;
    // Other constants than the usual ones, so that none of them stands in the code as a number.
    all.push_back(*find_recipe("fp8"));
    all.back().promotion_interval = 4608;
    all.back().exponent_bias = 4;
    all.back().refresh_rise = 3;
    all.back().max_drop = 11;
    return all;
}

HeadInputs random_head(Random& random, std::int64_t most_keys) {
    // Queries of one block of 128 mostly, of several at times.
    HeadInputs x =
        normal_head(random, random.integer(1, random.integer(0, 3) == 0 ? 400 : 40),
                    random.integer(1, most_keys), random.integer(1, 48), random.integer(1, 24));
    const double size = std::exp2(random.uniform(-1, 3)), k_mean = random.of<double>({0, 0, 3}),
                 v_mean = random.of<double>({0, 0, 1}), q_mean = random.of<double>({0, 0, 2});
    std::transform(x.q.begin(), x.q.end(), x.q.begin(),
                   [&](float y) { return bf16(size * static_cast<double>(y) + q_mean); });
    std::transform(x.k.begin(), x.k.end(), x.k.begin(),
                   [&](float y) { return bf16(static_cast<double>(y) + k_mean); });
    std::transform(x.v.begin(), x.v.end(), x.v.begin(),
                   [&](float y) { return bf16(static_cast<double>(y) + v_mean); });
    if (random.integer(0, 1) == 0) {  // a V of 0 or near it beside means: far tokens
        const std::int64_t apart = random.of<std::int64_t>({1, 2, 40, x.k_len});
        const double mean = random.of<double>({.3, 3, 30}), small = random.of<double>({0, .1});
        for (std::int64_t j = 0; j < x.k_len; j++) {
            const bool is_small = j % apart == apart / 2;
            for (std::int64_t d = 0; d < x.dim_v; d++) {
                float& y = x.v[static_cast<std::size_t>(j * x.dim_v + d)];
                y = bf16(is_small ? small * static_cast<double>(y)
                                  : static_cast<double>(y) + (d % 2 == 0 ? mean : -mean));
            }
        }
        if (apart > 2 && apart / 2 < x.k_len) {  // one of them dominates
            for (std::int64_t d = 0; d < x.dim; d++) {
                x.k[static_cast<std::size_t>(apart / 2 * x.dim + d)] *= 4;
            }
        }
    }
    if (random.integer(0, 2) == 0) {  // some keys that stand out
        for (int i = 0; i < 3; i++) {
            const std::int64_t j = random.integer(0, x.k_len - 1);
            for (std::int64_t d = 0; d < x.dim; d++) {
                x.k[static_cast<std::size_t>(j * x.dim + d)] *= 8;
            }
        }
    }
    x.key_tile = random.of<std::int64_t>({64, 96, 128, 192, 256});
    x.splits = random.integer(1, 4);
    x.causal = random.integer(0, 1) == 1;
    x.left = random.integer(0, 2) == 0 ? random.integer(0, most_keys) : -1;
    x.right = random.integer(0, 2) == 0 ? random.integer(0, most_keys) : -1;
    x.has_sink = random.integer(0, 2) == 0;
    x.sink = static_cast<float>(random.uniform(-10, 10));
    return x;
}

TEST(Emulate, EveryRecipeAsItsTextSays) {
    Random random(31);
    Tally tally;
    for (const quatt_recipe& r : recipes_and_accumulators()) {
        for (int i = 0; i < support::cases(40); i++) {
            const HeadInputs x = random_head(random, 400);
            ASSERT_TRUE(as_the_text_says(r, x, some_rows(random, x.q_len, 20), tally));
        }
    }
    EXPECT_LE(tally.doubtful, tally.rows / 20 + 5) << "of " << tally.rows;
    // Half of the recipes have far tokens, and half of the heads.
    EXPECT_TRUE(tally.far >= tally.rows / 8 || support::test_scale() < 1)
        << tally.far << " of " << tally.rows;
}

// Several intervals: refreshes, promotion, splits.
TEST(Emulate, LongRowsAsTheTextSays) {
    Random random(32);
    Tally tally;
    for (const quatt_recipe& r : recipes_and_accumulators()) {
        for (int i = 0; i < support::cases(4); i++) {
            HeadInputs x = random_head(random, 14000);
            x.splits = random.integer(1, 7);
            x.dim_v = std::min<std::int64_t>(x.dim_v, 4);
            x.v.resize(static_cast<std::size_t>(x.k_len * x.dim_v));
            ASSERT_TRUE(as_the_text_says(r, x, {0, x.q_len - 1}, tally));
        }
    }
    EXPECT_LE(tally.doubtful, tally.rows / 5 + 5) << "of " << tally.rows;
    EXPECT_TRUE(tally.far >= tally.rows / 10 || support::test_scale() < 1)
        << tally.far << " of " << tally.rows;
}

// Values that one fp32 sum would lose: P V is some 2^23 after the first interval that a row meets,
// and each later tile adds less than half of what that resolves. Promotion sums them apart.
TEST(Emulate, SumsArePromotedOncePerInterval) {
    constexpr std::int64_t kHeavy = 704;
    Random random(35);
    for (const char* name : {"fp8", "fp8_head", "int8_fp8"}) {
        HeadInputs x = normal_head(random, 1, 20 * 2304, 16, 4);
        x.softmax_scale = static_cast<float>(std::log(2.0));
        std::fill(x.q.begin(), x.q.end(), 0.0f);
        x.q[0] = 1;
        for (std::int64_t j = 0; j < x.k_len; j++) {
            const bool heavy = j >= x.k_len - kHeavy;
            for (std::int64_t d = 0; d < x.dim; d++) {
                x.k[static_cast<std::size_t>(j * x.dim + d)] = heavy && d == 0 ? 6.875f : 0;
            }
            for (std::int64_t d = 0; d < x.dim_v; d++) {
                x.v[static_cast<std::size_t>(j * x.dim_v + d)] = heavy             ? 256
                                                                 : j == 100        ? 448
                                                                 : j % 64 == 3 * d ? .75f
                                                                                   : 0;
            }
        }
        const auto error = [&](const quatt_recipe& r) {
            const Head head(r, x);
            const HeadRows got = head.emulate({0});
            const Expected want = head.by_the_law(0);
            EXPECT_FALSE(want.doubtful) << name;
            double most = 0;
            for (std::size_t d = 0; d < want.out.size(); d++) {
                most = std::max(most, std::fabs(static_cast<double>(got.out[d]) / want.out[d] - 1));
            }
            return most;
        };
        quatt_recipe r = *find_recipe(name);
        for (quatt_operand_recipe* o : {&r.k, &r.v}) {  // the values above are for these scales
            o->center = o->center == QUATT_CENTER_SAMPLE ? QUATT_CENTER_SEGMENT : o->center;
        }
        EXPECT_LE(error(r), 5e-6) << name;
        r.promotes = 0;
        EXPECT_GE(error(r), 15e-6) << name << ": then these values tell nothing";
    }
}

RC_GTEST_PROP(Emulate, AnyProblemAsTheTextSays, ()) {
    static const std::vector<quatt_recipe> all = recipes_and_accumulators();
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const HeadInputs x = random_head(random, 300);
    Tally tally;
    const testing::AssertionResult result =
        as_the_text_says(all[*rc::gen::inRange<std::size_t>(0, all.size())], x,
                         {0, x.q_len / 2, x.q_len - 1}, tally);
    if (!result) {
        RC_FAIL(std::string(result.message()));
    }
}

// ------------------------------------------------------------------------------ hostile score rows

// Scores of row 0 are about pattern(j) log2 units: channel 0 of q is 1 and of K the pattern, the
// other channels are small noise. The quantisers bend the pattern; what is compared with uses the
// bent one.
struct Pattern {
    const char* name;
    std::function<double(std::int64_t j, std::int64_t n)> score;
};

const std::vector<Pattern>& patterns() {
    static const std::vector<Pattern> all = {
        {"ramp up",
         [](std::int64_t j, std::int64_t n) {
             return -400 + 800.0 * static_cast<double>(j) / static_cast<double>(n);
         }},
        {"ramp down",
         [](std::int64_t j, std::int64_t n) {
             return 400 - 800.0 * static_cast<double>(j) / static_cast<double>(n);
         }},
        {"rising .5 a tile",
         [](std::int64_t j, std::int64_t n) { return .5 * static_cast<double>((n - 1 - j) / 64); }},
        {"rising 3 a tile",
         [](std::int64_t j, std::int64_t n) {
             return 3 * static_cast<double>((n - 1 - j) / 64) - 60;
         }},
        {"rising 12 a tile",
         [](std::int64_t j, std::int64_t n) {
             return 12 * static_cast<double>((n - 1 - j) / 64) - 300;
         }},
        {"falling 5 a tile",
         [](std::int64_t j, std::int64_t n) {
             return -5 * static_cast<double>((n - 1 - j) / 64) + 100;
         }},
        {"jump of 120 in the last tile met",
         [](std::int64_t j, std::int64_t) { return j < 64 ? 120.0 : 0.0; }},
        {"jump of 120 in the first tile met",
         [](std::int64_t j, std::int64_t n) { return j >= n - 64 ? 120.0 : 0.0; }},
        {"sink of 300 at the end",
         [](std::int64_t j, std::int64_t n) { return j == n - 1 ? 300.0 : 0.0; }},
        {"sink of 300 in the middle",
         [](std::int64_t j, std::int64_t n) { return j == n / 2 ? 300.0 : 0.0; }},
        {"sink of 300 at the start",
         [](std::int64_t j, std::int64_t) { return j == 0 ? 300.0 : 0.0; }},
        {"sink of 30 in the middle",
         [](std::int64_t j, std::int64_t n) { return j == n / 2 ? 30.0 : 0.0; }},
        {"saw",
         [](std::int64_t j, std::int64_t) { return static_cast<double>(j * 7 % 300) - 150; }},
        {"flat", [](std::int64_t, std::int64_t) { return 0.0; }},
    };
    return all;
}

HeadInputs hostile(Random& random, const Pattern& pattern, std::int64_t k_len) {
    HeadInputs x = normal_head(random, 4, k_len, 16, 8);
    x.softmax_scale = static_cast<float>(std::log(2.0));
    for (std::int64_t i = 0; i < x.q_len; i++) {
        for (std::int64_t d = 0; d < x.dim; d++) {
            float& y = x.q[static_cast<std::size_t>(i * x.dim + d)];
            y = d == 0 ? 1 : bf16(static_cast<double>(y) * .5);
        }
    }
    for (std::int64_t j = 0; j < k_len; j++) {
        x.k[static_cast<std::size_t>(j * x.dim)] = bf16(pattern.score(j, k_len));
    }
    return x;
}

// Keys of a row: two intervals, one, less than two tiles.
std::vector<std::int64_t> lengths() {
    return support::test_scale() < 1 ? std::vector<std::int64_t>{1000, 77}
                                     : std::vector<std::int64_t>{4000, 1000, 77};
}

// Relative error of a row; infinite where there is NaN. A row that a sink pushes to where fp32 ends
// may end there: 2^-120 is no error.
double row_error(const HeadRows& got, std::size_t n, const std::vector<double>& want) {
    double error = 0, norm = 0;
    for (std::size_t d = 0; d < want.size(); d++) {
        const double y = static_cast<double>(got.out[n * want.size() + d]);
        error += (y - want[d]) * (y - want[d]);
        norm += want[d] * want[d];
    }
    return std::isnan(error)              ? oracle::kInf
           : std::sqrt(error) <= 0x1p-120 ? 0
                                          : std::sqrt(error / norm);
}

void vary(Random& random, HeadInputs& x) {
    x.splits = random.integer(1, 2);
    x.key_tile = random.of<std::int64_t>({64, 96, 256});
    x.has_sink = random.integer(0, 1) == 1;
    x.sink = static_cast<float>(random.uniform(-20, 200));
}

// Where P is not rounded, nothing of a row is lost, whatever its scores: no clipped P, no forgotten
// light key, no reference gone astray. Scores are exact in fp32 here: one channel of small integers
// and quarters.
TEST(Emulate, ExactWithoutCodesOfP) {
    Random random(33);
    float scale = static_cast<float>(std::log(2.0));
    while (scale * 1.4426950408889634f < 1.0f) {
        scale = std::nextafter(scale, 1.0f);
    }
    ASSERT_EQ(scale * 1.4426950408889634f, 1.0f);
    for (const char* policy : {"bf16", "f16", "fp8", "nvfp4"}) {
        quatt_recipe r = *find_recipe(policy);
        r.q = r.k = r.v = find_recipe("bf16")->q;
        r.q.format = r.k.format = r.v.format = QUATT_FORMAT_F32;
        r.q_mean_term = 0;
        r.p_format = QUATT_FORMAT_F32;
        ASSERT_TRUE(check_recipe(r).empty());
        for (const Pattern& pattern : patterns()) {
            for (const std::int64_t k_len :
                 {std::int64_t{7000}, std::int64_t{1000}, std::int64_t{77}}) {
                HeadInputs x = normal_head(random, 2, k_len, 1, 8);
                x.softmax_scale = scale;
                x.q = {1, -1};
                for (std::int64_t j = 0; j < k_len; j++) {
                    x.k[static_cast<std::size_t>(j)] = static_cast<float>(
                        std::round(4 * (pattern.score(j, k_len) + random.normal())) / 4);
                }
                vary(random, x);
                const Head head(r, x);
                const HeadRows got = head.emulate({0, 1});
                for (std::size_t n = 0; n < 2; n++) {
                    const oracle::RowResult want = head.exact(static_cast<std::int64_t>(n));
                    EXPECT_LE(row_error(got, n, want.out), 1e-5)
                        << policy << ", " << pattern.name << ", " << k_len << " keys";
                    EXPECT_NEAR(static_cast<double>(got.lse[n]), want.lse,
                                1e-6 * std::max(10.0, std::fabs(want.lse)))
                        << policy << ", " << pattern.name << ", " << k_len << " keys";
                }
            }
        }
    }
}

// The same of every recipe on its own operands. fp32 holds a score of 400 to 2^-16, so P to 1e-5 a
// rounding: of the sum over 16 channels, of the factors of key and row, of a sink's logit likewise.
// n random roundings seldom add up to more than 2 sqrt(n) of them.
TEST(Emulate, EveryRecipeKeepsHostileRowsWithoutCodesOfP) {
    Random random(34);
    for (const quatt_recipe& named : kNamedRecipes) {
        quatt_recipe r = named;
        r.p_format = QUATT_FORMAT_F32;
        for (const Pattern& pattern : patterns()) {
            for (const std::int64_t k_len : lengths()) {
                HeadInputs x = hostile(random, pattern, k_len);
                vary(random, x);
                const Head head(r, x);
                const HeadRows got = head.emulate({0, 3});
                double largest = 0;
                for (std::int64_t j = 0; j < k_len; j++) {
                    largest = std::max(largest, std::fabs(pattern.score(j, k_len)) + 4);
                }
                if (x.has_sink) {
                    largest += std::fabs(static_cast<double>(x.sink)) / std::log(2.0);
                }
                const double rounding =
                    1e-5 + 2 * std::sqrt(19.0) * 0x1p-24 * largest * std::log(2.0);
                for (std::size_t n = 0; n < 2; n++) {
                    const oracle::RowResult want = head.exact(n == 0 ? 0 : 3);
                    EXPECT_LE(row_error(got, n, want.out), rounding)
                        << r.name << ", " << pattern.name << ", " << k_len << " keys";
                    EXPECT_NEAR(static_cast<double>(got.lse[n]), want.lse, rounding)
                        << r.name << ", " << pattern.name << ", " << k_len << " keys";
                }
            }
        }
    }
}

// With codes of P: O and LSE. A code of E4M3 is off by 1/16 of its P at most (down to P of 2^-6,
// below by 2^-10), and lazy softmax keeps m within reach of the keys that count, so a hostile row
// errs like any other. LSE knows nothing of codes.
TEST(Emulate, HostileRowsWithCodesOfP) {
    Random random(35);
    Tally tally;
    for (const quatt_recipe& r : kNamedRecipes) {
        const double code = r.p_format == QUATT_FORMAT_BF16  ? 0x1p-8
                            : r.p_format == QUATT_FORMAT_F16 ? 0x1p-11
                                                             : 1.0 / 16;
        for (const Pattern& pattern : patterns()) {
            for (const std::int64_t k_len : lengths()) {
                HeadInputs x = hostile(random, pattern, k_len);
                vary(random, x);
                ASSERT_TRUE(as_the_text_says(r, x, {1, 2}, tally)) << pattern.name;
                const Head head(r, x);
                const HeadRows got = head.emulate({0, 3});
                for (std::size_t n = 0; n < 2; n++) {
                    const std::int64_t i = n == 0 ? 0 : 3;
                    const oracle::RowResult want = head.exact(i);
                    const Expected text = head.by_the_law(i);
                    EXPECT_NEAR(static_cast<double>(got.lse[n]), want.lse, 1e-4)
                        << r.name << ", " << pattern.name << ", " << k_len << " keys";
                    // Groups of E2M1 err by their largest P: only the text's own arithmetic bounds
                    // them, above.
                    for (std::size_t d = 0; d < want.out.size() && r.p_format != QUATT_FORMAT_E2M1;
                         d++) {
                        ASSERT_LE(
                            std::fabs(static_cast<double>(got.out[n * want.out.size() + d]) -
                                      want.out[d]),
                            1.01 * code * text.size[d] + 1e-4 * text.size[d] + text.out_slack[d])
                            << r.name << ", " << pattern.name << ", " << k_len << " keys, size "
                            << text.size[d] << ", out " << want.out[d];
                    }
                }
            }
        }
    }
    EXPECT_LE(tally.doubtful, tally.rows / 4) << "of " << tally.rows;
}

// ------------------------------------------------------------------------------- analytic cases

TEST(Emulate, NoKey) {
    Random random(36);
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const bool sink : {false, true}) {
            // Causal with more queries than keys: the first rows see nothing. And no keys at all.
            for (const std::int64_t k_len : {std::int64_t{5}, std::int64_t{0}}) {
                HeadInputs x = normal_head(random, 9, k_len, 20, 6);
                x.causal = true;
                x.has_sink = sink;
                x.sink = -2.5f;
                const HeadRows got = Head(r, x).emulate(all_rows(9));
                for (std::size_t i = 0; i < 9; i++) {
                    const bool none = static_cast<std::int64_t>(i) < 9 - k_len;
                    for (std::size_t d = 0; d < 6; d++) {
                        EXPECT_EQ(got.out[i * 6 + d] == 0, none) << r.name;
                    }
                    EXPECT_TRUE(none ? got.lse[i] == (sink ? -2.5f : -kInf)
                                     : std::isfinite(got.lse[i]))
                        << r.name << " " << got.lse[i];
                }
            }
        }
    }
}

// Scores that are all equal: LSE is their logarithm, out the mean of V. A score of 0 makes P = 2^w,
// a code, so only V is rounded.
TEST(Emulate, UniformScores) {
    Random random(37);
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const bool of_q : {true, false}) {  // q = 0, or all keys the same
            HeadInputs x = normal_head(random, 3, 1000, 20, 6);
            if (of_q) {
                std::fill(x.q.begin(), x.q.end(), 0.0f);
            } else {
                for (std::size_t j = 0; j < 1000; j++) {
                    std::copy(x.k.begin(), x.k.begin() + 20,
                              x.k.begin() + static_cast<std::ptrdiff_t>(j * 20));
                }
            }
            const Head head(r, x);
            const HeadRows got = head.emulate(all_rows(3));
            const bool exact_p = of_q || r.k.center != QUATT_CENTER_NONE;
            for (std::size_t i = 0; i < 3; i++) {
                double score = 0;
                for (std::size_t d = 0; d < 20; d++) {
                    score += static_cast<double>(x.q[i * 20 + d]) * static_cast<double>(x.k[d]) *
                             static_cast<double>(x.softmax_scale);
                }
                // Keys that have no mean to lose are rounded: their code's error, times |q|.
                const double tolerance = exact_p                           ? 1e-5
                                         : r.k.format == QUATT_FORMAT_E4M3 ? .2
                                                                           : 1e-3;
                EXPECT_NEAR(static_cast<double>(got.lse[i]), std::log(1000.0) + score, tolerance)
                    << r.name;
                for (std::size_t d = 0; d < 6; d++) {
                    double mean = 0, size = 0;
                    for (std::int64_t j = 0; j < 1000; j++) {
                        mean += head.v().value(j, static_cast<std::int64_t>(d)) / 1000;
                        size += std::fabs(head.v().value(j, static_cast<std::int64_t>(d))) / 1000;
                    }
                    // All P are alike, so all are rounded alike.
                    const double of_p = r.p_format == QUATT_FORMAT_E2M1   ? 1.0 / 16
                                        : exact_p                         ? 0
                                        : r.p_format == QUATT_FORMAT_E4M3 ? 1.0 / 16
                                                                          : 0x1p-8;
                    EXPECT_NEAR(static_cast<double>(got.out[i * 6 + d]), mean,
                                1e-5 * size + std::fabs(mean) * of_p)
                        << r.name;
                }
            }
        }
    }
}

// A constant V comes out as it went in: exactly where its mean is taken out, else as well as P's
// codes sum up to l.
TEST(Emulate, ConstantV) {
    Random random(38);
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const double c : {0.0, 1e-8, 1e-3, 1.0, 448.0, 6e4, -6e4}) {
            HeadInputs x = normal_head(random, 40, 333, 20, 6);
            std::fill(x.v.begin(), x.v.end(), bf16(c));
            const HeadRows got = Head(r, x).emulate(all_rows(40));
            // Codes of P: half an ulp each, and UE4M3's rounding of a constant: 1/16. f16 rounds
            // 1e-8 to 0.
            const double p_error = r.p_format == QUATT_FORMAT_BF16   ? 0x1p-8
                                   : r.p_format == QUATT_FORMAT_F16  ? 0x1p-10
                                   : r.p_format == QUATT_FORMAT_E4M3 ? 1.0 / 16
                                                                     : .25 + 1.0 / 16;
            const double tolerance = r.v.center != QUATT_CENTER_NONE ? 1e-6 : p_error;
            for (const float y : got.out) {
                ASSERT_NEAR(
                    static_cast<double>(y), static_cast<double>(bf16(c)),
                    std::fabs(c) * tolerance + (r.v.format == QUATT_FORMAT_F16 ? 0x1p-25 : 0))
                    << r.name << " " << c;
            }
        }
    }
}

TEST(Emulate, OneHot) {
    Random random(39);
    for (const quatt_recipe& r : kNamedRecipes) {
        HeadInputs x = normal_head(random, 16, 500, 32, 8);
        // Key 31 i is 30 times query i, so row i sees nothing else: scores of 30 |q|^2 / sqrt(32),
        // about 170.
        for (std::int64_t i = 0; i < 16; i++) {
            for (std::int64_t d = 0; d < 32; d++) {
                x.k[static_cast<std::size_t>(31 * i * 32 + d)] =
                    bf16(30 * static_cast<double>(x.q[static_cast<std::size_t>(i * 32 + d)]));
            }
        }
        const Head head(r, x);
        const HeadRows got = head.emulate(all_rows(16));
        for (std::int64_t i = 0; i < 16; i++) {
            for (std::int64_t d = 0; d < 8; d++) {
                // P of the one key is in (2^(w-1), 2^w] and is rounded; V is its quantised self.
                const double p_error = r.p_format == QUATT_FORMAT_BF16  ? 0x1p-8
                                       : r.p_format == QUATT_FORMAT_F16 ? 0x1p-11
                                                                        : 1.0 / 16;
                const double v = head.v().value(31 * i, d), centred = v - head.v().mean(31 * i, d);
                EXPECT_NEAR(static_cast<double>(got.out[static_cast<std::size_t>(i * 8 + d)]), v,
                            std::fabs(centred) * p_error * 1.01 + 1e-5)
                    << r.name;
            }
        }
    }
}

TEST(Emulate, SinkOnlyJoinsTheDenominator) {
    Random random(40);
    for (const quatt_recipe& r : kNamedRecipes) {
        HeadInputs x = normal_head(random, 5, 300, 20, 6);
        const HeadRows plain = Head(r, x).emulate(all_rows(5));
        x.has_sink = true;
        for (const float sink : {-kInf, -300.0f, -1.0f, 3.0f, 9.0f, 60.0f}) {
            x.sink = sink;
            const HeadRows got = Head(r, x).emulate(all_rows(5));
            for (std::size_t i = 0; i < 5; i++) {
                const double lse = static_cast<double>(plain.lse[i]),
                             joined =
                                 std::max(lse, static_cast<double>(sink)) +
                                 std::log1p(std::exp(-std::fabs(lse - static_cast<double>(sink))));
                EXPECT_NEAR(static_cast<double>(got.lse[i]), joined, 1e-5) << r.name << " " << sink;
                for (std::size_t d = 0; d < 6; d++) {
                    const double y =
                        static_cast<double>(plain.out[i * 6 + d]) * std::exp(lse - joined);
                    EXPECT_NEAR(static_cast<double>(got.out[i * 6 + d]), y,
                                2e-5 * std::fabs(y) + 1e-6 * std::exp(lse - joined))
                        << r.name << " " << sink;
                }
            }
        }
    }
}

// Means and sizes of Q and K from 0 to 100, and outlier channels of K (spec test 7): finite, and
// what the text says.
TEST(Emulate, RangesOfQAndK) {
    Random random(46);
    Tally tally;
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const double mean : {0.0, 1.0, 10.0, 100.0}) {
            for (const double size : {0.0, 1.0, 10.0, 100.0}) {
                for (int which = 0; which < 3; which++) {  // Q, K, K with two channels x300
                    if (which == 2 && std::string(r.name) == "f16" &&
                        mean + 5 * size > 65504.0 / 300) {
                        continue;  // beyond f16 itself
                    }
                    HeadInputs x = normal_head(random, 4, 300, 32, 4);
                    std::vector<float>& y = which == 0 ? x.q : x.k;
                    for (std::size_t i = 0; i < y.size(); i++) {
                        y[i] = bf16((size * static_cast<double>(y[i]) + mean) *
                                    (which == 2 && i % 32 < 2 ? 300 : 1));
                    }
                    ASSERT_TRUE(as_the_text_says(r, x, all_rows(4), tally))
                        << "mean " << mean << ", size " << size << ", of " << which;
                    const HeadRows got = Head(r, x).emulate(all_rows(4));
                    ASSERT_TRUE(support::all_finite(got.out) && support::all_finite(got.lse))
                        << r.name << ", mean " << mean << ", size " << size << ", of " << which;
                }
            }
        }
    }
    EXPECT_LE(tally.doubtful, tally.rows / 4) << "of " << tally.rows;
}

// ------------------------------------------------------------------------- what must not matter

// A row has the same bits alone, in any company, and under more splits than there are intervals.
TEST(Emulate, RowsDoNotDependOnTheirBlock) {
    Random random(41);
    for (const quatt_recipe& r : recipes_and_accumulators()) {
        HeadInputs x = random_head(random, 600);
        x.q_len = 150;
        x.q = random.normals(150 * x.dim);
        x.splits = 1;
        const Head head(r, x);
        const HeadRows all = head.emulate(all_rows(150));
        x.splits = 7;
        const Head cut(r, x);
        for (const std::int64_t i : {0, 63, 64, 149}) {
            for (const Head* h : {&head, static_cast<const Head*>(&cut)}) {
                const HeadRows alone = h->emulate({i});
                const auto from = all.out.begin() + static_cast<std::ptrdiff_t>(i * x.dim_v);
                EXPECT_EQ(alone.lse[0], all.lse[static_cast<std::size_t>(i)]) << r.name;
                EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), from)) << r.name;
            }
        }
        EXPECT_GE(all.counters.warp_tiles, all.counters.overflow_warp_tiles);
        EXPECT_GE(all.counters.warp_tiles, all.counters.refresh_warp_tiles);
    }
}

// Counters say what lazy softmax did: of one row, its tiles, overflows, refreshes and falls; of a
// block, what some row of 16 did.
TEST(Emulate, Counters) {
    Random random(47);
    int drops = 0;
    for (const quatt_recipe& r : recipes_and_accumulators()) {
        for (int round = 0; round < support::cases(6); round++) {
            HeadInputs x = hostile(random, random.of(patterns()), 4000);
            x.causal = round % 2 == 1;
            x.q_len = 40;
            x.q.resize(static_cast<std::size_t>(40 * x.dim));
            for (std::size_t i = 0; i < x.q.size(); i++) {
                x.q[i] = x.q[i % static_cast<std::size_t>(4 * x.dim)];
            }
            const Head head(r, x);
            const Expected want = head.by_the_law(39);
            if (want.doubtful) {
                continue;
            }
            const quatt_counters one = head.emulate({39}).counters;
            EXPECT_EQ(one.warp_tiles, want.counters.warp_tiles) << r.name;
            EXPECT_EQ(one.overflow_warp_tiles, want.counters.overflow_warp_tiles) << r.name;
            EXPECT_EQ(one.refresh_warp_tiles, want.counters.refresh_warp_tiles) << r.name;
            EXPECT_EQ(one.drops, want.counters.drops) << r.name;
            drops += static_cast<int>(one.drops);
            // 40 times one row: three warps, of 16, 16 and 8 rows; falls are counted by the row.
            const quatt_counters all = head.emulate(std::vector<std::int64_t>(40, 39)).counters;
            EXPECT_EQ(all.warp_tiles, 3 * one.warp_tiles) << r.name;
            EXPECT_EQ(all.overflow_warp_tiles, 3 * one.overflow_warp_tiles) << r.name;
            EXPECT_EQ(all.refresh_warp_tiles, 3 * one.refresh_warp_tiles) << r.name;
            EXPECT_EQ(all.drops, 40 * one.drops) << r.name;
        }
    }
    EXPECT_TRUE(drops > 10 || support::test_scale() < 1) << drops;
}

// Scratch holds whatever a worker left in it.
TEST(Emulate, ScratchMayHoldAnything) {
    Random random(42);
    const HeadInputs x = normal_head(random, 3, 100, 20, 6);
    for (const quatt_recipe& r : kNamedRecipes) {
        const support::QuantisedHead q(r.q, r.q_mean_term != 0, support::view_of(x.q, 3, 20)),
            k(r.k, false, support::view_of(x.k, 100, 20)),
            v(r.v, false, support::view_of(x.v, 100, 6));
        const std::vector<std::int64_t> rows = {0, 1, 2};
        std::vector<std::vector<float>> results;
        for (const int fill : {0x00, 0xFF}) {
            std::vector<std::byte> scratch(emulate_scratch_bytes(20, 6, 96) + 64,
                                           static_cast<std::byte>(fill));
            std::fill(scratch.end() - 64, scratch.end(), std::byte{0x5A});
            results.emplace_back(18, kNaN);
            HeadProblem p;
            p.mask = x.mask();
            p.softmax_scale = x.softmax_scale;
            p.q = support::view_of(x.q, 3, 20);
            p.k = support::view_of(x.k, 100, 20);
            p.v = support::view_of(x.v, 100, 6);
            p.to = {.out = reinterpret_cast<std::byte*>(results.back().data()),
                    .dtype = QUATT_F32,
                    .token_stride = 6,
                    .channel_stride = 1,
                    .channels = 6};
            quatt_counters counters{};
            emulate_rows(p, {&r, 96, 1}, q.head, k.head, v.head, rows,
                         {scratch.data(), scratch.size() - 64}, counters);
            EXPECT_TRUE(std::all_of(scratch.end() - 64, scratch.end(),
                                    [](std::byte b) { return b == std::byte{0x5A}; }));
        }
        EXPECT_EQ(results[0], results[1]) << r.name;
        EXPECT_TRUE(support::all_finite(results[0])) << r.name;
    }
}

// ------------------------------------------------------------------------------------ not finite

// A query that is not finite spoils at most the rows of its scale or mean group.
TEST(Emulate, NotFiniteQueries) {
    Random random(43);
    for (const quatt_recipe& r : kNamedRecipes) {
        const std::int64_t group = r.q.block_tokens != 0                  ? r.q.block_tokens
                                   : r.q.scale_format == QUATT_SCALE_NONE ? 1
                                   : r.q.group_tokens == 0                ? 1 << 20
                                                                          : r.q.group_tokens;
        HeadInputs x = normal_head(random, 300, 200, 20, 6);
        const HeadRows plain = Head(r, x).emulate(all_rows(300));
        for (const float poison : {kNaN, kInf, -kInf}) {
            HeadInputs y = x;
            y.q[150 * 20 + 3] = poison;
            const HeadRows got = Head(r, y).emulate(all_rows(300));
            for (std::int64_t i = 0; i < 300; i++) {
                const bool together = i / group == 150 / group;
                for (std::int64_t d = 0; d < 6; d++) {
                    const auto at = static_cast<std::size_t>(i * 6 + d);
                    if (!together) {
                        ASSERT_EQ(got.out[at], plain.out[at]) << r.name << " row " << i;
                    } else if (std::isnan(poison)) {
                        ASSERT_TRUE(std::isnan(got.out[at])) << r.name << " row " << i;
                    }
                }
                ASSERT_TRUE(together || got.lse[static_cast<std::size_t>(i)] ==
                                            plain.lse[static_cast<std::size_t>(i)])
                    << r.name;
            }
        }
    }
}

// A key or value that is NaN shows in the rows that see it, wherever it stands in its tile.
TEST(Emulate, NaNInKeysAndValuesShows) {
    Random random(44);
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const std::int64_t j : {0, 17, 63, 64, 130}) {
            HeadInputs x = normal_head(random, 3, 131, 20, 6);
            x.k[static_cast<std::size_t>(j * 20 + 3)] = kNaN;
            HeadRows got = Head(r, x).emulate(all_rows(3));
            EXPECT_TRUE(
                std::all_of(got.out.begin(), got.out.end(), [](float y) { return std::isnan(y); }))
                << r.name << " key " << j;
            EXPECT_TRUE(
                std::all_of(got.lse.begin(), got.lse.end(), [](float y) { return std::isnan(y); }))
                << r.name << " key " << j;
            x = normal_head(random, 3, 131, 20, 6);
            x.v[static_cast<std::size_t>(j * 6 + 4)] = kNaN;
            got = Head(r, x).emulate(all_rows(3));
            for (std::size_t i = 0; i < 3; i++) {
                EXPECT_TRUE(std::isnan(got.out[i * 6 + 4])) << r.name << " value " << j;
                EXPECT_TRUE(std::isfinite(got.lse[i])) << r.name;
            }
        }
    }
}

// -------------------------------------------------------------------------------------- far tokens

// A far key that a row does not see, and a tile in which a row's scores are all -inf (fp32 holds no
// smaller ones): neither leaves anything in the row's sums.
TEST(Emulate, FarKeysThatWeighNothing) {
    Random random(46);
    for (const char* name : {"fp8", "int8_fp8", "nvfp4_fp8"}) {
        const quatt_recipe& r = *find_recipe(name);
        for (const std::int64_t k_len : {200, 5000}) {
            HeadInputs x = normal_head(random, 2, k_len, 16, 8);
            for (std::int64_t j = 0; j < k_len; j++) {
                for (std::int64_t d = 0; d < 8; d++) {
                    float& y = x.v[static_cast<std::size_t>(j * 8 + d)];
                    y = j >= k_len - 70 ? 0.0f : bf16(static_cast<double>(y) + 3);
                }
            }
            for (std::int64_t i = 0; i < 2; i++) {
                for (std::int64_t d = 0; d < 16; d++) {
                    x.q[static_cast<std::size_t>(i * 16 + d)] = d == 0 ? 0x1p100f : 0;
                }
            }
            for (std::int64_t j = 0; j < k_len; j++) {
                for (std::int64_t d = 0; d < 16; d++) {
                    float& y = x.k[static_cast<std::size_t>(j * 16 + d)];
                    y = d != 0             ? 0
                        : j >= k_len - 130 ? -0x1p60f
                                           : 0x1p-100f * static_cast<float>(j % 3);
                }
            }
            quatt_recipe plain = r;  // K as it is
            plain.q = plain.k = find_recipe("bf16")->q;
            plain.q_mean_term = 0;
            const Head head(plain, x);
            EXPECT_TRUE(head.v().is_far(k_len - 1)) << name;
            const HeadRows got = head.emulate({0, 1});
            EXPECT_TRUE(support::all_finite(got.out)) << name << ", " << k_len << " keys";
            EXPECT_TRUE(support::all_finite(got.lse)) << name << ", " << k_len << " keys";
        }
    }
}

// out = O s / l + c (l - l_far - l_sink) / l in numbers that show each part: V is 4 but for far
// keys of 0, all weights are the same. Half of the keys are far, a sink has the weight of one key.
TEST(Emulate, EndOfARowWithFarKeys) {
    for (const char* name : {"fp8", "int8_fp8", "nvfp4_fp8"}) {
        const quatt_recipe& r = *find_recipe(name);
        for (const std::int64_t k_len : {64, 300, 7000}) {
            for (const std::int64_t splits : {1, 3}) {
                for (const bool causal : {false, true}) {
                    HeadInputs x;
                    x.q_len = x.k_len = k_len;
                    x.dim = x.dim_v = 16;
                    x.q.assign(static_cast<std::size_t>(k_len * 16), 0.0f);
                    x.k.assign(x.q.size(), 1.0f);
                    x.v.assign(x.q.size(), 4.0f);
                    x.splits = splits;
                    x.causal = causal;
                    x.left = causal ? -1 : 50;
                    x.has_sink = true;
                    x.sink = 0;
                    const auto is_zero = [](std::int64_t j) { return j % 16 % 3 == 0; };
                    for (std::int64_t j = 0; j < k_len; j++) {
                        for (std::int64_t d = 0; is_zero(j) && d < 16; d++) {
                            x.v[static_cast<std::size_t>(j * 16 + d)] = 0;
                        }
                    }
                    const Head head(r, x);
                    const std::vector<std::int64_t> rows = {0, k_len / 2, k_len - 1};
                    const HeadRows got = head.emulate(rows);
                    ASSERT_GT(head.v().mean(0, 0), 2) << name;
                    for (std::size_t n = 0; n < rows.size(); n++) {
                        double all = 1, full = 0;
                        for (std::int64_t j = 0; j < k_len; j++) {
                            if (x.sees(rows[n], j)) {
                                ASSERT_EQ(head.v().is_far(j), is_zero(j)) << name;
                                all++;
                                full += head.v().value(j, 0) * (is_zero(j) ? 0 : 1);
                            }
                        }
                        for (std::size_t d = 0; d < 16; d++) {
                            EXPECT_NEAR(static_cast<double>(got.out[n * 16 + d]), full / all, 1e-5)
                                << name << ", " << k_len << " keys, row " << rows[n] << ", splits "
                                << splits << ", causal " << causal;
                        }
                    }
                }
            }
        }
    }
}

// ------------------------------------------------------------------------------------- rings

// Shards of K and V, each with its own means and scales, merged by LSE: like the whole.
TEST(Emulate, ShardsMergedByLse) {
    Random random(45);
    for (const char* name : {"bf16", "f16", "fp8", "int8_fp8", "nvfp4", "nvfp4_fp8"}) {
        const quatt_recipe& r = *find_recipe(name);
        HeadInputs x = normal_head(random, 16, 1024, 64, 64);
        for (std::size_t j = 0; j < 1024; j++) {  // means that differ between shards
            for (std::size_t d = 0; d < 64; d++) {
                x.k[j * 64 + d] = bf16(static_cast<double>(x.k[j * 64 + d]) +
                                       (d % 2 == 0 ? 1 : -1) * .5 * static_cast<double>(j / 128));
            }
        }
        std::vector<double> exact;
        const quatt_recipe f32 = [&] {
            quatt_recipe e = *find_recipe("bf16");
            e.q.format = e.k.format = e.v.format = QUATT_FORMAT_F32;
            return e;
        }();
        const Head whole(f32, x);
        for (std::int64_t i = 0; i < 16; i++) {
            const oracle::RowResult row = whole.exact(i);
            exact.insert(exact.end(), row.out.begin(), row.out.end());
        }
        double whole_error = 0;
        for (const std::int64_t shards : {1, 2, 4, 8}) {
            const std::int64_t n = 1024 / shards;
            std::vector<double> out(16 * 64, 0.0), lse(16, -oracle::kInf);
            for (std::int64_t s = 0; s < shards; s++) {
                HeadInputs part = x;
                part.k_len = n;
                part.k.assign(x.k.begin() + static_cast<std::ptrdiff_t>(s * n * 64),
                              x.k.begin() + static_cast<std::ptrdiff_t>((s + 1) * n * 64));
                part.v.assign(x.v.begin() + static_cast<std::ptrdiff_t>(s * n * 64),
                              x.v.begin() + static_cast<std::ptrdiff_t>((s + 1) * n * 64));
                const HeadRows got = Head(r, part).emulate(all_rows(16));
                for (std::size_t i = 0; i < 16; i++) {
                    const double other = static_cast<double>(got.lse[i]),
                                 joined = std::max(lse[i], other) +
                                          std::log1p(std::exp(-std::fabs(lse[i] - other)));
                    for (std::size_t d = 0; d < 64; d++) {
                        out[i * 64 + d] =
                            out[i * 64 + d] * std::exp(lse[i] - joined) +
                            static_cast<double>(got.out[i * 64 + d]) * std::exp(other - joined);
                    }
                    lse[i] = joined;
                }
            }
            double error = 0, norm = 0;
            for (std::size_t i = 0; i < out.size(); i++) {
                error += (out[i] - exact[i]) * (out[i] - exact[i]);
                norm += exact[i] * exact[i];
            }
            const double e = std::sqrt(error / norm);
            if (shards == 1) {
                whole_error = e;
            }
            // A trend in K is more than N(0,1) asks for, so the recipe is its own measure: shards
            // take out more of the trend, and err no more.
            EXPECT_LE(whole_error, 2 * static_cast<double>(r.expected_rel_l2)) << name;
            EXPECT_LE(e, 1.15 * whole_error) << name << ", " << shards << " shards";
        }
    }
}

}  // namespace
}  // namespace quatt::recipe

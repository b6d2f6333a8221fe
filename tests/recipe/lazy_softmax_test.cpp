// Lazy softmax: softmax_tile against the same rule in fp64, straight from its text, over long and
// hostile score sequences.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "recipe/softmax_tile.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

using support::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Each kind of P: rounded, and with its rounding switched off.
std::vector<quatt_recipe> laws() {
    std::vector<quatt_recipe> all;
    for (const char* name : {"bf16", "f16", "fp8", "nvfp4"}) {
        all.push_back(*find_recipe(name));
        all.push_back(*find_recipe(name));
        all.back().p_format = QUATT_FORMAT_F32;
    }
    // Other constants than the usual ones, so that none of them stands in the code as a number.
    quatt_recipe r = *find_recipe("fp8");
    r.exponent_bias = 4;
    r.overflow_code = 0x70;
    r.refresh_rise = 3;
    r.max_drop = 11;
    all.push_back(r);
    r = *find_recipe("nvfp4");
    r.overflow_code = 0x60;
    r.refreshes = 0;
    all.push_back(r);
    return all;
}

std::string name_of(const quatt_recipe& r) {
    return std::string(r.name) + (r.p_format == QUATT_FORMAT_F32 ? ", P not rounded" : "") +
           (r.overflow_code != 0x7E ? ", other constants" : "");
}

// Tiles in the order in which they are met: the last keys of a row first.
struct Sequence {
    std::string what;
    std::int64_t tile = 64;
    std::vector<std::vector<float>> t;
    std::vector<std::int64_t> interval;

    void add(std::int64_t of_interval, const std::function<float(std::int64_t)>& score) {
        t.emplace_back();
        for (std::int64_t j = 0; j < tile; j++) {
            t.back().push_back(score(j));
        }
        interval.push_back(of_interval);
    }
};

// A row of `tiles` tiles with score(i) for the i-th tile met.
Sequence row_of(const std::string& what, std::int64_t tile, std::int64_t tiles,
                const std::function<float(std::int64_t i, std::int64_t j)>& score) {
    Sequence s;
    s.what = what;
    s.tile = tile;
    for (std::int64_t i = 0; i < tiles; i++) {
        s.add((tiles - 1 - i) * tile / 2304, [&](std::int64_t j) { return score(i, j); });
    }
    return s;
}

Sequence random_sequence(Random& random) {
    const std::int64_t tile = random.of<std::int64_t>({64, 96, 128, 192, 256}),
                       tiles = random.integer(1, random.integer(0, 3) == 0 ? 120 : 20);
    const double spread = random.of<double>({0, .1, 1.44, 3, 10}),
                 level = random.uniform(-300, 300);
    const auto noise = [&random, spread, level] { return level + spread * random.normal(); };
    const double step = random.uniform(.5, 12), place = random.uniform(0, 1),
                 height = random.of<double>({5, 20, 120, 300});
    const std::int64_t special = random.integer(0, tiles - 1), key = random.integer(0, tile - 1);
    const auto make = [&](const std::string& what,
                          const std::function<double(std::int64_t, std::int64_t)>& score) {
        return row_of(what, tile, tiles, [&](std::int64_t i, std::int64_t j) {
            return static_cast<float>(score(i, j));
        });
    };
    switch (random.integer(0, 12)) {
        case 0:
            return make("noise", [&](auto...) { return noise(); });
        case 1:
            return make("ramp up by 800", [&](auto i, auto j) {
                return -400 +
                       800.0 * static_cast<double>(i * tile + j) /
                           static_cast<double>(tiles * tile) +
                       noise() - level;
            });
        case 2:
            return make("ramp down by 800", [&](auto i, auto j) {
                return 400 -
                       800.0 * static_cast<double>(i * tile + j) /
                           static_cast<double>(tiles * tile) +
                       noise() - level;
            });
        case 3:
            return make("maximum rising by the tile",
                        [&](auto i, auto) { return noise() + step * static_cast<double>(i); });
        case 4:
            return make("maximum falling by the tile",
                        [&](auto i, auto) { return noise() - step * static_cast<double>(i); });
        case 5:
            return make("jump in the last tile met",
                        [&](auto i, auto) { return noise() + (i == tiles - 1 ? 120 : 0); });
        case 6:
            return make("sink", [&](auto i, auto j) {
                return noise() + (i == special && j == key ? height : 0);
            });
        case 7:
            return make("several sinks", [&](auto, auto) {
                return noise() + (random.uniform(0, 1) < .003 ? random.uniform(0, height) : 0);
            });
        case 8:
            return make("first tiles masked",
                        [&](auto i, auto) { return i <= special ? -oracle::kInf : noise(); });
        case 9:
            return make("middle tiles masked", [&](auto i, auto) {
                return i > tiles / 3 && i <= 2 * tiles / 3
                           ? -oracle::kInf
                           : noise() + step * static_cast<double>(i % 5);
            });
        case 10:
            return make("masked keys", [&](auto, auto) {
                return random.uniform(0, 1) < place ? -oracle::kInf : noise();
            });
        case 11:
            return make("steps up and down", [&](auto i, auto) {
                return noise() + height * static_cast<double>((i * 7 / 5) % 3);
            });
        default:
            return make("all masked", [&](auto...) { return -oracle::kInf; });
    }
}

// Counts, so that a test can say that it met what it is about.
struct Seen {
    int tiles = 0, doubtful = 0, refreshes = 0, drops = 0, limited_drops = 0, overflows = 0;
};

// Sum of n fp32 terms in four chains: each term passes through n/4 + 2 roundings at most, and has 3
// ulp of its own error.
double sum_error(std::size_t n) {
    return (static_cast<double>(n) / 4 + 5) * 0x1p-24;
}

// fp32 rounds t - m and then + w; exp2_fast is within 2 ulp.
double p_error(double t, double m, int w) {
    const double a = std::fabs(t - m), b = std::fabs(t - m + w);
    return std::isfinite(a) ? (a + b) * 0x1p-24 * std::log(2.0) + 0x1p-22 : 0;
}

// P of key j as it should be: the nearest number of its format. Where the exact number is within
// `error` of the border between two, either.
bool rounded_right(const quatt_recipe& r, const oracle::LazyTile& want, std::size_t j, double p,
                   double error) {
    const double x = want.exact[j], nearest = want.p[j];
    const auto on = [&](const oracle::Grid& g) {
        return std::fmod(p, oracle::spacing(g, p)) == 0 &&
               std::fabs(p - x) <= oracle::spacing(g, x) / 2 + error;
    };
    if (std::isnan(nearest)) {
        return std::isnan(p);
    }
    switch (r.p_format) {
        case QUATT_FORMAT_F32:
            return std::fabs(p - x) <= error + 1e-44;
        case QUATT_FORMAT_BF16:
            return on(oracle::kBf16);
        case QUATT_FORMAT_F16:
            return on(oracle::kF16);
        case QUATT_FORMAT_E4M3:
            return on(oracle::kE4m3);
        // The group's scale decides, so it is the rule's code, or one that is as near.
        default:
            return std::fabs(p - nearest) <= nearest * 1e-6 ||
                   std::fabs(std::fabs(p - x) - std::fabs(nearest - x)) <= 1e-5 * x;
    }
}

testing::AssertionResult follows_the_law(const quatt_recipe& r, const Sequence& s, Seen& seen) {
    RowState row;
    oracle::LazyRow rule(r);
    std::vector<float> p(static_cast<std::size_t>(s.tile));
    double l = 0, top = -oracle::kInf, total = 0;  // total: sum of 2^(t - top), in fp64
    const auto fail = [&](std::size_t i) {
        return testing::AssertionFailure() << name_of(r) << ", " << s.what << ", tile " << i
                                           << " of " << s.t.size() << " (" << s.tile << " keys): ";
    };
    for (std::size_t i = 0; i < s.t.size(); i++) {
        const std::vector<float>& t = s.t[i];
        const std::vector<double> exact_t(t.begin(), t.end());
        for (const double x : exact_t) {
            if (x > top) {
                total *= std::exp2(top - x);
                top = x;
            }
            total += x == -oracle::kInf ? 0 : std::exp2(x - top);
        }
        const float before = row.m;
        const TileOutcome got =
            softmax_tile(softmax_policy(r), row, s.interval[i], t.data(), s.tile, p.data());
        const oracle::LazyTile want = rule.take_tile(s.interval[i], exact_t);
        l = l * static_cast<double>(got.update.rescale) + static_cast<double>(got.sum);
        seen.tiles++;
        seen.refreshes += got.update.refreshed;
        seen.drops += got.update.dropped;
        seen.overflows += got.update.overflowed;
        seen.limited_drops +=
            got.update.dropped && row.m == row.highest - static_cast<float>(r.max_drop);

        // Whatever the scores.
        if (row.m != std::floor(row.m)) {
            return fail(i) << "m is " << row.m << ", no integer";
        }
        if (row.highest - row.m > static_cast<float>(r.max_drop) || row.m > row.highest) {
            return fail(i) << "m is " << row.m << " below a highest of " << row.highest;
        }
        if (static_cast<double>(got.update.rescale) !=
            (row.m == before ? 1
                             : static_cast<double>(static_cast<float>(std::exp2(
                                   static_cast<double>(before) - static_cast<double>(row.m)))))) {
            return fail(i) << "factor " << got.update.rescale << " for m from " << before << " to "
                           << row.m;
        }
        if (r.refreshes == 0 && (got.update.refreshed || got.update.dropped || row.m < before)) {
            return fail(i) << "refreshed or fell";
        }

        if (want.doubtful) {
            seen.doubtful++;
            rule.follow(static_cast<double>(row.m), static_cast<double>(row.highest),
                        row.wants_refresh);
            continue;
        }
        if (static_cast<double>(row.m) != rule.m || got.update.refreshed != want.refreshed ||
            got.update.dropped != want.fell || got.update.overflowed != want.overflow) {
            return fail(i) << "m " << row.m << ", refreshed " << got.update.refreshed << ", fell "
                           << got.update.dropped << ", overflow " << got.update.overflowed
                           << "; the rule says " << rule.m << ", " << want.refreshed << ", "
                           << want.fell << ", " << want.overflow;
        }
        double sum_slack = want.sum * sum_error(t.size()) + 1e-40;
        for (std::size_t j = 0; j < t.size(); j++) {
            sum_slack += want.exact[j] * p_error(exact_t[j], rule.m, r.exponent_bias);
        }
        if (std::isnan(want.sum) != std::isnan(got.sum) ||
            std::fabs(static_cast<double>(got.sum) - want.sum) > sum_slack) {
            return fail(i) << "sum " << got.sum << ", not " << want.sum;
        }
        for (std::size_t j = 0; j < t.size(); j++) {
            const bool right =
                rounded_right(r, want, j, static_cast<double>(p[j]),
                              want.exact[j] * p_error(exact_t[j], rule.m, r.exponent_bias));
            if (!right) {
                return fail(i) << "P of key " << j << " is " << p[j] << " for " << want.exact[j]
                               << "; the rule says " << want.p[j];
            }
        }
    }
    // Nothing is lost: l under m is the sum of 2^t, unless the row has no key. Each tile adds the
    // rounding of its sum.
    const double lse = std::log2(l) + static_cast<double>(row.m) - r.exponent_bias,
                 want = std::log2(total) + top;
    if (total == 0          ? l != 0
        : std::isnan(total) ? !std::isnan(l)
                            : !(std::fabs(lse - want) <= 1e-5)) {
        return fail(s.t.size()) << "log2 of the row sum is " << lse << ", not " << want;
    }
    return testing::AssertionSuccess();
}

TEST(LazySoftmax, RandomAndAdversarialRows) {
    Random random(21);
    for (const quatt_recipe& r : laws()) {
        Seen seen;
        for (int i = 0; i < support::cases(250); i++) {
            ASSERT_TRUE(follows_the_law(r, random_sequence(random), seen));
        }
        // Checked in nearly every tile, and of every kind.
        EXPECT_LE(seen.doubtful, seen.tiles / 100 + 2) << name_of(r);
        if (support::test_scale() == 1) {
            EXPECT_GT(seen.overflows, 100) << name_of(r);
            EXPECT_EQ(seen.refreshes > 100, r.refreshes != 0) << name_of(r);
            EXPECT_EQ(seen.drops > 20, r.refreshes != 0) << name_of(r);
            EXPECT_EQ(seen.limited_drops > 5, r.refreshes != 0) << name_of(r);
        }
    }
}

RC_GTEST_PROP(LazySoftmax, AnyRow, ()) {
    static const std::vector<quatt_recipe> all = laws();
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    Seen seen;
    const testing::AssertionResult result = follows_the_law(
        all[*rc::gen::inRange<std::size_t>(0, all.size())], random_sequence(random), seen);
    if (!result) {
        RC_FAIL(std::string(result.message()));
    }
}

// NaN among scores: it is ignored by the maximum, stays in overflow, and makes the row NaN without
// moving m by itself.
TEST(LazySoftmax, NaNIsIgnoredByTheReference) {
    Random random(22);
    for (const quatt_recipe& r : laws()) {
        Seen seen;
        for (int round = 0; round < support::cases(60); round++) {
            Sequence s = random_sequence(random);
            s.what += " with NaN";
            std::vector<float>& t = s.t[static_cast<std::size_t>(
                random.integer(0, static_cast<std::int64_t>(s.t.size()) - 1))];
            t[static_cast<std::size_t>(random.integer(0, s.tile - 1))] =
                random.integer(0, 1) == 0 ? kNaN : -kNaN;
            ASSERT_TRUE(follows_the_law(r, s, seen));
        }
    }
}

// It returns, so the redo happens once.
TEST(LazySoftmax, AllNaN) {
    for (const quatt_recipe& r : laws()) {
        const std::vector<float> t(64, kNaN);
        std::vector<float> p(64);
        RowState row;
        const TileOutcome x = softmax_tile(softmax_policy(r), row, 0, t.data(), 64, p.data());
        EXPECT_TRUE(x.update.overflowed);
        EXPECT_TRUE(std::isnan(x.sum));
        EXPECT_EQ(row.m, kNoMax);
        EXPECT_EQ(x.update.rescale, 1.0f);
        EXPECT_TRUE(std::all_of(p.begin(), p.end(), [](float y) { return std::isnan(y); }));
    }
}

TEST(LazySoftmax, PlusInfinityMakesTheRowNaN) {
    for (const quatt_recipe& r : laws()) {
        std::vector<float> t(64, 1.0f), p(64);
        t[7] = kInf;
        RowState row;
        const TileOutcome x = softmax_tile(softmax_policy(r), row, 0, t.data(), 64, p.data());
        EXPECT_TRUE(std::isnan(x.sum)) << name_of(r);
    }
}

// ------------------------------------------------------------------------------------ one by one

struct Walk {
    quatt_recipe r;
    RowState row;
    std::vector<float> p = std::vector<float>(64);

    explicit Walk(const char* name) : r(*find_recipe(name)) {}
    TileOutcome take_tile(std::int64_t interval, float level, float top) {
        std::vector<float> t(64, level);
        t[13] = top;
        return softmax_tile(softmax_policy(r), row, interval, t.data(), 64, p.data());
    }
};

TEST(LazySoftmax, FirstTileTakesItsCeiling) {
    Walk w("fp8");
    const TileOutcome x = w.take_tile(0, 1, 3.25f);
    EXPECT_EQ(w.row.m, 4.0f);
    EXPECT_TRUE(x.update.refreshed && !x.update.overflowed);
    EXPECT_EQ(w.p[13], oracle::nearest(oracle::kE4m3, std::exp2(3.25 - 4 + 6)));
    // The first tile raised m by far more than 8, so the second refreshes too; the third does not.
    EXPECT_TRUE(w.take_tile(0, 1, 3).update.refreshed);
    EXPECT_FALSE(w.take_tile(0, 1, 3).update.refreshed);
    EXPECT_TRUE(w.take_tile(1, 1, 3).update.refreshed) << "first tile met of an interval";
}

TEST(LazySoftmax, OverflowIsTheCodeAndNotTheMaximum) {
    // 432 = 2^8.7549 is the middle of the codes 0x7D (416) and 0x7E (448), and ties go to the even
    // one. The first two tiles refresh.
    const auto met_twice = [](const char* name) {
        Walk walk(name);
        (void)walk.take_tile(0, 0, 0);
        (void)walk.take_tile(0, 0, 0);
        return walk;
    };
    Walk w = met_twice("fp8");
    EXPECT_FALSE(w.take_tile(0, 0, 2.7547f).update.overflowed);
    EXPECT_EQ(w.row.m, 0.0f) << "rows without overflow keep m";
    EXPECT_TRUE(w.take_tile(0, 0, 2.7551f).update.overflowed);
    EXPECT_EQ(w.row.m, 3.0f);
    // fp4: 16 keys' scale amax / 6 reaches 448 from 432 on, amax 2592 = 2^11.3399.
    Walk v = met_twice("nvfp4");
    EXPECT_FALSE(v.take_tile(0, 0, 3.3397f).update.overflowed);
    EXPECT_TRUE(v.take_tile(0, 0, 3.3401f).update.overflowed);
    EXPECT_EQ(v.row.m, 4.0f);
    // f16: p that rounds to 2^15, from 32760 on, at w = 8.
    Walk h = met_twice("f16");
    EXPECT_FALSE(h.take_tile(0, 0, 6.9996f).update.overflowed);
    EXPECT_TRUE(h.take_tile(0, 0, 6.9997f).update.overflowed);
    EXPECT_EQ(h.row.m, 7.0f);
    // bf16: a row sum of 2^64.
    Walk b = met_twice("bf16");
    EXPECT_FALSE(b.take_tile(0, 0, 63.9f).update.overflowed);
    EXPECT_TRUE(b.take_tile(0, 58, 58).update.overflowed) << "64 keys of 2^58";
    EXPECT_EQ(b.row.m, 58.0f);
}

TEST(LazySoftmax, LooksLowerAReferenceThatIsEightTooHigh) {
    Walk w("fp8");
    (void)w.take_tile(5, 100, 100);
    (void)w.take_tile(5, 99, 99);
    EXPECT_FALSE(w.take_tile(5, 80, 80).update.refreshed) << "no refresh within an interval";
    EXPECT_EQ(w.row.m, 100.0f);
    EXPECT_FALSE(w.take_tile(4, 92.5f, 92.5f).update.dropped) << "ceil 93 > 92";
    TileOutcome x = w.take_tile(3, 91.5f, 91.5f);  // ceil 92 <= 100 - 8
    EXPECT_TRUE(x.update.dropped);
    EXPECT_EQ(w.row.m, 92.0f);
    EXPECT_EQ(x.update.rescale, 256.0f);
    x = w.take_tile(2, -1000, -1000);
    EXPECT_EQ(w.row.m, 60.0f) << "40 below the highest so far, not below the last";
    EXPECT_EQ(x.update.rescale, 0x1p32f);
    EXPECT_FALSE(w.take_tile(1, -1000, -1000).update.dropped && w.row.m < 60);
    // A rise by 8 or more: the next tile refreshes, and falls back when the rise was a single
    // key's.
    x = w.take_tile(1, 60, 90.5f);
    EXPECT_EQ(w.row.m, 91.0f);
    EXPECT_EQ(x.update.rescale, 0x1p-31f);
    x = w.take_tile(1, 60, 60);
    EXPECT_TRUE(x.update.refreshed && x.update.dropped);
    EXPECT_EQ(w.row.m, 60.0f);
    // A rise by less than 8 asks for nothing.
    (void)w.take_tile(1, 60, 66.5f);
    EXPECT_EQ(w.row.m, 67.0f);
    EXPECT_FALSE(w.take_tile(1, 60, 50).update.refreshed);
}

// So that the second tile, and the first of each interval, leave few overflows for the others.
TEST(LazySoftmax, LooksRaiseTheReferenceToTheirCeiling) {
    Walk w("fp8");
    (void)w.take_tile(5, 0, 0);
    TileOutcome x = w.take_tile(5, 0, 1.5f);  // far from an overflow
    EXPECT_TRUE(x.update.refreshed && !x.update.overflowed);
    EXPECT_EQ(w.row.m, 2.0f);
    EXPECT_EQ(x.update.rescale, .25f);
    EXPECT_FALSE(w.take_tile(5, 0, 3.5f).update.refreshed);
    EXPECT_EQ(w.row.m, 2.0f) << "no refresh, no overflow";
    x = w.take_tile(4, 0, 3.5f);
    EXPECT_TRUE(x.update.refreshed && !x.update.overflowed && !x.update.dropped);
    EXPECT_EQ(w.row.m, 4.0f);
    EXPECT_EQ(w.row.highest, 4.0f);
    EXPECT_FALSE(w.take_tile(4, 0, 0).update.refreshed) << "a rise by 2 asks for no refresh";
    x = w.take_tile(3, 0, 12);
    EXPECT_TRUE(x.update.refreshed && !x.update.overflowed);
    EXPECT_TRUE(w.take_tile(3, 0, 12).update.refreshed) << "a rise by 8 does, in a refresh too";
}

// Fully masked tiles say nothing: not in a refresh, not about the highest.
TEST(LazySoftmax, MaskedTilesMoveNothing) {
    for (const quatt_recipe& r : laws()) {
        const std::vector<float> masked(64, -kInf), scores(64, 5.0f);
        std::vector<float> p(64);
        RowState row;
        TileOutcome x = softmax_tile(softmax_policy(r), row, 3, masked.data(), 64, p.data());
        EXPECT_EQ(row.m, kNoMax);
        EXPECT_EQ(x.sum, 0.0f);
        EXPECT_FALSE(x.update.overflowed);
        (void)softmax_tile(softmax_policy(r), row, 2, scores.data(), 64, p.data());
        const float m = row.m;
        EXPECT_EQ(m, 5.0f);
        for (const std::int64_t interval : {2, 1, 0}) {
            x = softmax_tile(softmax_policy(r), row, interval, masked.data(), 64, p.data());
            EXPECT_EQ(row.m, m) << name_of(r);
            EXPECT_EQ(x.sum, 0.0f);
            EXPECT_EQ(x.update.rescale, 1.0f);
        }
    }
}

// Whatever fp32 holds is a score: no number stands for "no key", and none is too large to be met.
TEST(LazySoftmax, ScoresOfAnySize) {
    for (const quatt_recipe& r : laws()) {
        const SoftmaxPolicy policy = softmax_policy(r);
        for (const float level : {-3.4e38f, -1.1e30f, -1e30f, -9e29f, -4.3e9f, -0x1p22f - .5f,
                                  0x1p22f + .5f, 4.3e9f, 1e30f, 3.4e38f}) {
            std::vector<float> t(64, level), p(64);
            t[9] = -std::numeric_limits<float>::max();
            RowState row;
            TileOutcome x = softmax_tile(policy, row, 0, t.data(), 64, p.data());
            const auto expect_all = [&](const char* tile) {
                EXPECT_EQ(row.m, std::ceil(level)) << name_of(r) << ", " << tile;
                // P has 3 fraction bits at least.
                const double want = std::exp2(static_cast<double>(level - row.m) + r.exponent_bias);
                EXPECT_NEAR(static_cast<double>(p[0]), want, want / 16) << level << ", " << tile;
                EXPECT_EQ(p[0], p[63]) << level << ", " << tile;
                EXPECT_NEAR(static_cast<double>(x.sum), 63 * want, 1e-4 * want)
                    << level << ", " << tile;
            };
            expect_all("first tile");
            x = softmax_tile(policy, row, 0, t.data(), 64, p.data());
            EXPECT_EQ(x.update.rescale, 1.0f);
            expect_all("second tile");
            x = softmax_tile(policy, row, 0, t.data(), 64, p.data());
            EXPECT_FALSE(x.update.refreshed) << level;
            // 2^8 / 6 reaches the lower code of one of them.
            EXPECT_EQ(x.update.overflowed, r.overflow_code == 0x60 && level == row.m) << level;
            expect_all("third tile");
        }
    }
}

// A first key far below what came before it in other rows' numbers: after tiles without keys, in
// every kind of row.
TEST(LazySoftmax, TheFirstKeyIsMetWheneverItComes) {
    for (const quatt_recipe& r : laws()) {
        const SoftmaxPolicy policy = softmax_policy(r);
        RowState row;
        std::vector<float> none(64, -kInf), t = none, p(64);
        t[40] = -2e30f;
        for (int i = 0; i < 3; i++) {
            const TileOutcome x = softmax_tile(policy, row, 0, none.data(), 64, p.data());
            EXPECT_EQ(x.sum, 0.0f);
            EXPECT_FALSE(x.update.overflowed);
        }
        const TileOutcome x = softmax_tile(policy, row, 0, t.data(), 64, p.data());
        EXPECT_EQ(row.m, -2e30f) << name_of(r);
        EXPECT_EQ(x.sum, std::ldexp(1.0f, r.exponent_bias));
    }
}

// bf16 sums up to 2^64 before it moves, so no finite score overflows its O: 2^64 times 1e5 is far
// from 2^128.
TEST(LazySoftmax, Bf16NeverFallsAndNeverOverflows) {
    Walk w("bf16");
    float highest = kNoMax;
    Random random(3);
    for (int i = 0; i < 2000; i++) {
        const float level = static_cast<float>(random.uniform(-500, 500));
        const TileOutcome x = w.take_tile(i, level, level);
        EXPECT_GE(w.row.m, highest);
        EXPECT_TRUE(x.sum < 0x1p64f);
        highest = w.row.m;
    }
}

}  // namespace
}  // namespace quatt::recipe

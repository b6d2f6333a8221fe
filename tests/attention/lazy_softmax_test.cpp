// Lazy softmax (docs/recipes.md) on data made to provoke it: equal to the
// emulation, LSE included, where fp64 would not show a fault.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(LazySoftmax, gpu_and_cpu_subjects());

// Scores in log2 units of key j (row i's are `gain(i)` times that), and noise of the given size.
struct Profile {
    std::string name;
    std::function<double(std::int64_t)> t;
    double noise = .5;
};

// A case whose scores follow a profile: channel 0 carries it, the others make the noise.
Case shaped(Spec s, const Profile& profile, const std::function<double(std::int64_t)>& gain) {
    const std::int64_t keys = s.tokens_k;
    Case c(std::move(s));
    Random random(c.spec.seed + 17);
    // 8 * K0 * scale * log2 e = t
    const double unit =
        std::sqrt(static_cast<double>(c.spec.dim)) / (8 * 1.4426950408889634 * c.spec.scale);
    const double spread = profile.noise / c.spec.scale;
    fill(c.q,
         [&](const Extents& i) { return i[3] == 0 ? 8 * gain(i[1]) : on_grid(random.normal()); });
    fill(c.k, [&](const Extents& i) {
        return i[3] == 0 ? profile.t(std::min(i[1], keys - 1)) * unit
                         : on_grid(spread * random.normal());
    });
    fill(c.v, [&](const Extents&) { return on_grid(random.normal()); });
    return c;
}

double largest_score(const Profile& p, std::int64_t keys) {
    double low = 0, high = 0;
    for (std::int64_t j = 0; j < keys; j++) {
        low = std::min(low, p.t(j));
        high = std::max(high, p.t(j));
    }
    return std::max({high - low, std::fabs(low), std::fabs(high)}) + 8;
}

// P in 8 or 4 bits.
bool has_narrow_p(const char* recipe) {
    const std::int32_t format = Recipe{std::string(recipe)}.p_format;
    return format == QUATT_FORMAT_E4M3 || format == QUATT_FORMAT_E2M1;
}

// `light`: only keys 9 and more below the highest have a V, and differences count relative to the
// result that is then left, however small: a reference that stays too high loses their codes, and
// the codes of keys above them would hide it. Neighbouring keys have opposite V, so that V has no
// mean to take out.
void check_light(Case& c, const char* recipe, const Profile& p) {
    const std::int64_t keys = c.spec.tokens_k;
    double high = -kInf;
    for (std::int64_t j = 0; j < keys; j++) {
        high = std::max(high, p.t(j));
    }
    const auto is_light = [&](std::int64_t j) { return j < keys && p.t(j) <= high - 9; };
    Random random(c.spec.seed + 5);
    std::vector<double> v(static_cast<std::size_t>(c.spec.dim));
    bool has_pair = false, any = false;
    std::vector<std::vector<double>> rows(static_cast<std::size_t>(keys),
                                          std::vector<double>(v.size(), 0.0));
    for (std::int64_t j = 0; j < keys; j++) {
        if (!is_light(j)) {
            continue;
        }
        if (!has_pair && is_light(j + 1)) {
            std::generate(v.begin(), v.end(), [&] { return on_grid(random.normal()); });
            rows[static_cast<std::size_t>(j)] = v;
            has_pair = any = true;
        } else if (has_pair) {
            std::transform(v.begin(), v.end(), rows[static_cast<std::size_t>(j)].begin(),
                           [](double x) { return -x; });
            has_pair = false;
        }
    }
    if (!any) {
        return;
    }
    fill(c.v, [&](const Extents& i) {
        return rows[static_cast<std::size_t>(i[1])][static_cast<std::size_t>(i[3])];
    });
    // NOTE: these take subnormal operands and sums for 0. bf16 keeps light keys near 2^-120, where
    // products with V reach below 2^-126; tests/cpu holds the levels to what is left.
    if (is(recipe, "bf16") && (is(kernel(), "cpu_amx") || is(kernel(), "cpu_avx512_bf16"))) {
        return;
    }
    const Results want = compute(c, "emulate", recipe, [](Problem& x) { x.key_tile = 64; });
    const Results got = compute(c, device(), recipe);
    const auto channels = static_cast<std::size_t>(want.channels);
    std::vector<double> errors;
    for (std::size_t row = 0; row * channels < want.out.size(); row++) {
        if (row % 5 == 3 || row % 7 == 5) {
            continue;  // rows that do not follow the profile
        }
        double e = 0, n = 0, m = 0;
        for (std::size_t i = row * channels; i < (row + 1) * channels; i++) {
            e += (got.out[i] - want.out[i]) * (got.out[i] - want.out[i]);
            n += want.out[i] * want.out[i];
            m += got.out[i] * got.out[i];
        }
        // Of the larger one: where all codes should be 0 and are not, that is all of it.
        errors.push_back(e > 0 ? std::sqrt(e / std::max(n, m)) : 0);
    }
    // The median row: a fault of the rule shows in all rows, since they follow one profile. A code
    // flips at a rate of some 2^-22 |t| times the codes an octave and moves one row by a sixteenth
    // of one key's part, which may be all that is left of it.
    std::nth_element(errors.begin(),
                     errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2), errors.end());
    const double t = largest_score(p, keys);
    EXPECT_LE(errors[errors.size() / 2],
              (has_narrow_p(recipe) ? 1e-3 : 3e-4) * std::max(1., t / 16) +
                  short_sums(kernel(), Recipe{std::string(recipe)}))
        << recipe << ", light keys, " << p.name << ", " << c.spec;
}

void check(const Profile& p, std::int64_t rows, std::int64_t keys, bool causal = false) {
    static int n = 0;
    static Thinner thin;
    if (thin.skip()) {
        return;
    }
    for (const char* recipe : recipes()) {
        // fp8 always, one of the others in turn.
        if (!is(recipe, "fp8") && n++ % 2 == 1) {
            continue;
        }
        Spec s = spec_of(recipe);
        s.heads_q = 1;
        s.dim = n % 4 == 0 ? 128 : 64;
        s.tokens_q = rows;
        s.tokens_k = keys;
        s.causal = causal;
        // Rows that differ: some follow the profile, some half of it, some nearly nothing.
        Case c = shaped(s, p, [](std::int64_t i) {
            return i % 5 == 3 ? .5 : i % 7 == 5 ? .015625 : 1;
        });
        EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = largest_score(p, keys)}))
            << p.name << ", " << rows << " x " << keys;
        if (!causal) {
            check_light(c, recipe, p);
        }
    }
}

TEST_P(LazySoftmax, MaximaThatRiseOrFallTileByTile) {
    constexpr std::int64_t kKeys = 10 * 64 - 5;
    for (const double step : {.5, 1., 2., 4., 7.5, 8., 8.5, 12.}) {
        for (const bool rising : {true, false}) {  // as the tiles are met, the last key first
            const Profile p{(rising ? "rising " : "falling ") + std::to_string(step),
                            [=](std::int64_t j) {
                                const auto met = static_cast<double>((kKeys - 1) / 64 - j / 64);
                                return step * (rising ? met : -met);
                            }};
            check(p, 20, kKeys, step == 2);
        }
    }
}

TEST_P(LazySoftmax, RampsInsideATile) {
    for (const double slope : {.25, 1., -.25, -1.}) {
        check({"slope " + std::to_string(slope),
               [=](std::int64_t j) { return slope * static_cast<double>(j % 64); }},
              17, 200);
        check({"long slope " + std::to_string(slope),
               [=](std::int64_t j) { return slope * static_cast<double>(j); }},
              17, 130);
    }
}

TEST_P(LazySoftmax, JumpsOfAHundredAndTwenty) {
    constexpr std::int64_t kKeys = 330;
    for (const std::int64_t at : {0, 63, 64, 150, 320, 329}) {
        check({"a key 120 above, at " + std::to_string(at),
               [=](std::int64_t j) { return j == at ? 120. : 0.; }},
              9, kKeys);
        check({"from key " + std::to_string(at) + " on 120 below",
               [=](std::int64_t j) { return j >= at ? -120. : 0.; }},
              9, kKeys);
        check({"from key " + std::to_string(at) + " on 120 above",
               [=](std::int64_t j) { return j >= at ? 120. : 0.; }},
              9, kKeys);
    }
}

// A rise of 8 asks for a refresh in the next tile; falls end 40 below the highest.
TEST_P(LazySoftmax, LooksAfterARiseAndTheLimitOfFalls) {
    for (const double spike : {7., 9., 20., 39., 41., 60., 100.}) {
        for (const std::int64_t width : {1, 64}) {
            check({"a spike of " + std::to_string(spike),
                   [=](std::int64_t j) { return j >= 192 && j < 192 + width ? spike : 0.; }},
                  20, 320);
        }
        check({"spikes",
               [=](std::int64_t j) {
                   return j / 64 % 2 == 1 && j % 64 == 7 ? spike * static_cast<double>(j) / 320
                                                         : 0.;
               }},
              20, 320);
    }
}

// What only keys far below a dominating one show: m falls after a rise of 8 and not after one of 7,
// to 40 below the highest and not further, and in the first tile of an interval without any rise.
TEST_P(LazySoftmax, LightKeys) {
    const auto tile = [](std::int64_t j) { return j / 64; };
    const auto odd = [](std::int64_t j) { return static_cast<double>(j % 2); };
    for (const double rise : {6., 7., 8., 9., 16.}) {
        // Tiles as met: 0, a rise of so much (exactly: the noise is next to nothing), far below.
        check({"a rise of " + std::to_string(rise),
               [=](std::int64_t j) {
                   return tile(j) == 4 ? 0. : tile(j) == 3 ? rise : rise - 21 + odd(j);
               },
               1e-3},
              12, 320);
        check({"slow rises, then a fall",
               [=](std::int64_t j) {
                   return tile(j) >= 2 ? rise / 2 * static_cast<double>(5 - tile(j))
                                       : -12. + odd(j);
               },
               1e-3},
              12, 384);
    }
    for (const double depth : {30., 39., 41., 47., 51., 53., 54., 56.}) {
        check({"a fall of " + std::to_string(depth),
               [=](std::int64_t j) { return tile(j) >= 2 ? 0. : -depth; }, .5},
              12, 256);
        check({"a key above by " + std::to_string(depth),
               [=](std::int64_t j) { return j == 200 ? 0. : -depth; }, .5},
              12, 256);
    }
    // The interval begins after tiles that are high and do not rise: only its refresh finds the
    // fall.
    for (const std::int64_t first_low : {2304, 2240, 2368}) {
        for (const double depth : {16.}) {
            check({"low from key " + std::to_string(first_low) + " on by " + std::to_string(depth),
                   [=](std::int64_t j) { return j >= first_low ? 0. : -depth; }, .5},
                  3, 2500);
        }
    }
}

// Intervals of 2304 keys begin with a refresh, counted from the segment's start.
TEST_P(LazySoftmax, IntervalBorders) {
    int n = 0;
    for (const std::int64_t keys : {2303, 2304, 2305, 2368, 2369, 4609}) {
        for (const std::int64_t high : {std::int64_t{0}, std::int64_t{2240}, std::int64_t{2303},
                                        std::int64_t{2304}, keys - 1}) {
            // A third of them.
            if (high >= keys || n++ % 3 != 0 || !taken(n / 3)) {
                continue;
            }
            const Profile p{"20 at " + std::to_string(high), [=](std::int64_t j) {
                                return j == high ? 20. : j > high ? 3. : 0.;
                            }};
            Spec s = spec_of(recipe_at(n % 2 == 0 ? 2 : n / 3 % 2));
            s.heads_q = 1;
            s.tokens_q = 3;
            s.tokens_k = keys;
            Case c = shaped(s, p, [](std::int64_t) { return 1; });
            EXPECT_TRUE(
                equals_emulation(c, recipe_at(n % 2 == 0 ? 2 : n / 3 % 2), {.largest_t = 32}))
                << keys << ' ' << p.name;
        }
    }
    // Of a segment, not of the stream.
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.packed = true;
        s.heads_q = 1;
        s.q_lens = {1, 2};
        s.k_lens = {100, 2330};
        Case c = make_case(s);
        Random random(4);
        fill(c.k, [&](const Extents& i) {
            return on_grid(random.normal() * (i[0] == 100 + 2304 + 20 ? 12 : 1));
        });
        EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = 100}));
    }
}

// m rises by more than 64 above what was summed in intervals before, between their borders and at
// one. The lower keys have another V, or what stays of them would not show.
TEST_P(LazySoftmax, RisesFarAboveTheIntervalsBefore) {
    // NOTE: it sums a tile in fp16, and most of such a row lies where fp16 has few bits or none.
    const bool has_fp16_sums = is(kernel(), "cpu_avx512_fp16");
    struct Steps {
        const char* name;
        std::int64_t keys;
        double (*t)(std::int64_t tile);
    };
    for (const Steps& steps : {
             Steps{"between borders", 4700, [](std::int64_t i) { return i <= 70 ? 100. : 0; }},
             {"at a border", 4700, [](std::int64_t i) { return i <= 35 ? 100. : 0; }},
             {"after a fall", 4700,
              [](std::int64_t i) { return i == 71   ? -38.
                                          : i <= 70 ? 62
                                                    : 0; }},
             {"twice", 7100, [](std::int64_t i) { return i <= 35   ? 150.
                                                         : i <= 71 ? 70
                                                                   : 0; }},
         }) {
        const Profile p{steps.name, [&](std::int64_t j) { return steps.t(j / 64); }};
        Spec s = spec_of("fp8");
        s.heads_q = 1;
        s.tokens_q = 20;
        s.tokens_k = steps.keys;
        Case c = shaped(s, p, [](std::int64_t i) { return i % 4 == 3 ? .5 : 1; });
        Random random(3);
        fill(c.v, [&](const Extents& i) {
            return on_grid((steps.t(i[1] / 64) < steps.t(0) ? 8 : 0) + random.normal());
        });
        if (!has_fp16_sums) {
            EXPECT_TRUE(equals_emulation(c, "fp8", {.largest_t = 200})) << steps.name;
        }
    }
}

// A causal mask lets rows of one block begin in different tiles and intervals.
TEST_P(LazySoftmax, RowsThatBeginInDifferentTiles) {
    for (const auto& [rows, keys] : {std::pair{200, 70}, {70, 300}, {300, 300}, {128, 2350}}) {
        check({"falling", [](std::int64_t j) { return static_cast<double>(j / 64) * .5; }}, rows,
              keys, true);
        if (keys < 1000) {
            check({"rising", [](std::int64_t j) { return -9. * static_cast<double>(j / 64); }},
                  rows, keys, true);
        }
    }
}

// Scales that make one key decide, and scales that make all keys equal.
TEST_P(LazySoftmax, HugeAndTinyScales) {
    int n = 0;
    for (const char* recipe : recipes()) {
        for (const double scale : {1e-30, 1e-6, 1e-2, 30., 1e3, 1e6}) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 20;
            s.tokens_k = 150;
            s.scale = scale;
            s.seed = static_cast<std::uint64_t>(n++);
            Case c = make_case(s);
            const double t = 8 * scale;
            const Results want = compute(c, "emulate", recipe, [](Problem& p) { p.key_tile = 64; });
            const Results got = compute(c, device(), recipe);
            if (scale <= 30) {
                EXPECT_TRUE(agree(got, want, c, recipe, {.largest_t = std::max(8., t)}))
                    << recipe << ' ' << scale;
            } else {
                // An ulp of t is a good part of 1 or more here, so only LSE says much: t itself.
                const Distance d = distance(got, want);
                EXPECT_TRUE(d.same_kind) << recipe << ' ' << scale;
                EXPECT_LE(d.lse, 0x1p-20 * t) << recipe << ' ' << scale;
            }
        }
    }
}

// Tiles of other sizes give the same on data without sinks.
TEST_P(LazySoftmax, OtherKeyTiles) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.heads_q = 1;
        s.tokens_q = 64;
        s.tokens_k = 700;
        s.scale = 2;
        Case c = make_case(s);
        const Results got = compute(c, device(), recipe);
        for (const std::int32_t tile : {96, 128, 192, 256}) {
            const Results other =
                compute(c, "emulate", recipe, [=](Problem& p) { p.key_tile = tile; });
            // Short accumulators also cut elsewhere where tiles are walked in another order.
            const double allowed =
                (subject().accumulator == QUATT_ACCUMULATOR_HOPPER ? 7e-4 : 5e-4) +
                short_sums(kernel(), Recipe{std::string(recipe)});
            EXPECT_LE(distance(got, other).relative(), allowed) << recipe << ' ' << tile;
            EXPECT_LE(distance(got, other).lse, 3e-6) << recipe << ' ' << tile;
        }
    }
}

}  // namespace
}  // namespace quatt::test

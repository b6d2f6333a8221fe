// Tokens of V that are far from its centre, and samples that lied (docs/recipes.md): equal to the
// emulation, and near the exact result where a centre taken off all tokens is not.
#include <gtest/gtest.h>

#include "attention/harness.hpp"
#include "recipe/recipes.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(FarTokens, gpu_and_cpu_subjects());

std::vector<const char*> recipes_with_far_tokens() {
    std::vector<const char*> some;
    for (const char* recipe : recipes()) {
        if (recipe::keeps_far_tokens(recipe::find_recipe(recipe)->v)) {
            some.push_back(recipe);
        }
    }
    return some;
}

// V = z + mean, and .1 z for tokens that `is_small`.
void fill_v(Case& c, double mean, const std::function<bool(std::int64_t)>& is_small) {
    Random random(c.spec.seed + 5);
    const std::size_t token = c.spec.packed ? 0 : 1;
    fill(c.v, [&](const Extents& i) {
        const double z = random.normal();
        return on_grid(is_small(i[token]) ? .1 * z : z + mean);
    });
}

// Key 0 has most of each row's weight and a small V; scores rise along the row, so that sums are
// rescaled after it (keys are walked from the last to the first) and before.
TEST_P(FarTokens, AHeavyKeyOfSmallV) {
    for (const char* recipe : recipes_with_far_tokens()) {
        for (const std::int64_t place : {0, 70, 2399, 2699}) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.dim = 64;
            s.tokens_q = 20;
            s.tokens_k = 2700;  // an interval and some
            s.seed = static_cast<std::uint64_t>(place) + 1;
            Case c = make_case(s);
            Random random(s.seed);
            fill(c.q, [&](const Extents& i) { return i[3] == 0 ? 8 : on_grid(random.normal()); });
            fill(c.k, [&](const Extents& i) {
                return i[1] == place ? (i[3] == 0 ? 10 : 0)
                       : i[3] == 0   ? on_grid(static_cast<double>(i[1] % 900) / 900)
                                     : on_grid(.5 * random.normal());
            });
            fill_v(c, 2, [&](std::int64_t j) { return j == place; });
            EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = 24})) << place;
            if (!is(recipe, "nvfp4_fp8")) {  // whose scores err by more
                // Centred, the key's V alone would err by a third of it and more.
                EXPECT_LE(distance(compute(c, device(), recipe), compute(c, "reference", recipe))
                              .relative(),
                          .1)
                    << place;
            }
        }
    }
}

// From one far token in the row to all tokens of a tile, in all that a call can have.
TEST_P(FarTokens, AnyNumberInATile) {
    Thinner thin;
    std::uint64_t seed = 0;
    for (const char* recipe : recipes_with_far_tokens()) {
        for (const std::int64_t dim : {40, 64, 128}) {
            for (const int pattern : {0, 1, 2, 3}) {
                for (const bool causal : {false, true}) {
                    seed++;
                    if (thin.skip()) {
                        continue;
                    }
                    Spec s = spec_of(recipe);
                    s.heads_q = 4;
                    s.heads_kv = 2;
                    s.dim = s.dim_v = dim;
                    s.causal = causal;
                    s.tokens_q = 70;
                    s.tokens_k = 201;
                    s.seed = seed;
                    Case c = make_case(s);
                    fill_v(c, 1.5, [&](std::int64_t j) {
                        return pattern == 0   ? j == 77
                               : pattern == 1 ? j % 64 == 31 || j % 64 == 32
                               : pattern == 2 ? j >= 64 && j < 128
                                              : j % 3 == 0;
                    });
                    EXPECT_TRUE(equals_emulation(c, recipe)) << pattern << ' ' << causal;
                }
            }
        }
    }
}

// Segments with centres of their own, and rows that see far keys alone.
TEST_P(FarTokens, OfEachSegment) {
    for (const char* recipe : recipes_with_far_tokens()) {
        Spec s = spec_of(recipe);
        s.packed = true;
        s.q_lens = {30, 1, 65};
        s.k_lens = {90, 3, 140};
        s.heads_q = 2;
        s.dim = 64;
        s.causal = true;
        Case c = make_case(s);
        fill_v(c, 3, [](std::int64_t j) { return j < 2 || j % 50 == 7; });
        EXPECT_TRUE(equals_emulation(c, recipe));
    }
}

// Values beyond the scale that the sample suggests, in one head: tokens that no sample has.
TEST_P(FarTokens, ASampleThatLied) {
    for (const char* recipe : recipes_with_far_tokens()) {
        for (const double value : {80.0, -3000.0}) {
            Spec s = spec_of(recipe);
            s.heads_q = s.heads_kv = 2;
            s.dim = 64;
            s.tokens_q = 10;
            s.tokens_k = 1600;
            Case c = make_case(s);
            Random random(9);
            fill(c.v, [&](const Extents& i) {
                const double z = on_grid(random.normal() + 1);
                return i[2] == 1 && i[3] == 3 && i[1] % 200 == 150 ? value : z;
            });
            EXPECT_TRUE(equals_emulation(c, recipe)) << value;
        }
    }
}

}  // namespace
}  // namespace quatt::test

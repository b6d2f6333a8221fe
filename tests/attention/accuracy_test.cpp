// Against exact attention: the errors that recipes publish, LSE, means, sinks.
#include <gtest/gtest.h>

#include <cstdio>

#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Accuracy, gpu_subjects());

double mean_of(const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// The published error is the mean over 16 heads x 256 rows of 128 channels, out in 16 bits; fewer
// heads and rows scatter around it.
TEST_P(Accuracy, OnNormalData) {
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128}) {
            Spec s = spec_of(recipe);
            s.dim = dim;
            s.heads_q = s.heads_kv = 2;
            s.tokens_q = 128;
            s.tokens_k = 1024;
            s.out = s.q;
            s.seed = 3;
            Case c(s);
            const Recipe r{std::string(recipe)};
            const Results exact = [&] {
                Spec wide = s;
                wide.out = QUATT_F32;
                Case e(wide);
                return compute(e, "reference", recipe);
            }();
            const Distance d = distance(compute(c, device(), recipe), exact);
            EXPECT_TRUE(d.same_kind);
            EXPECT_LE(d.relative(), 1.1 * static_cast<double>(r.expected_rel_l2))
                << recipe << ' ' << dim;
            EXPECT_LE(d.lse, static_cast<double>(r.expected_lse_error)) << recipe << ' ' << dim;
            std::printf("%s, D = %d: rel-L2 %.5f, published %.5f; lse %.5f\n", recipe,
                        static_cast<int>(dim), d.relative(), static_cast<double>(r.expected_rel_l2),
                        d.lse);
        }
    }
}

// LSE is of the true scores, in every layout. K's mean is taken out of fp8's keys
// and must come back.
TEST_P(Accuracy, LseWithAMeanOfK) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const double mean : {0.0, 10.0}) {
            for (const int layout : {0, 1, 2, 3}) {
                if (thin.skip()) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.packed = layout == 1 || layout == 2;
                s.dim = layout == 3 ? 100 : 128;
                s.heads_q = 2;
                s.heads_kv = 1;
                s.tokens_q = 40;
                s.tokens_k = 100;
                if (layout == 1) {
                    s.q_lens = {20, 0, 20};
                    s.k_lens = {70, 3, 27};
                }
                s.causal = layout == 2;
                s.k_mean = mean;
                Case c = make_case(s);
                const Results exact = compute(c, "reference", recipe);
                const Results got = compute(c, device(), recipe);
                const Distance d = distance(got, exact);
                EXPECT_TRUE(d.same_kind);
                // Twice what fp8 publishes for 1024 keys: the errors of few keys average out less.
                // 16 bit: fp32 sums of scores that stay below 64.
                const double allowed = is(recipe, "fp8") ? .06 : 2e-5;
                EXPECT_LE(d.lse, allowed) << recipe << ' ' << mean << ' ' << layout;
                EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = 64}))
                    << mean << ' ' << layout;
            }
        }
    }
}

// V's mean is not lost.
TEST_P(Accuracy, MeanOfV) {
    for (const char* recipe : recipes()) {
        for (const double mean : {.5, 1.0, 2.0}) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 16;
            s.tokens_k = is(recipe, "fp8") ? 2048 : 512;
            s.v_mean = mean;
            Case c = make_case(s);
            const double exact = mean_of(compute(c, "reference", recipe).out);
            const double got = mean_of(compute(c, device(), recipe).out);
            EXPECT_LE(std::fabs(got / exact - 1), 2e-3) << recipe << ' ' << mean;
            EXPECT_TRUE(equals_emulation(c, recipe));
        }
    }
}

// One key of a given weight and V = 0 at a part of the row.
TEST_P(Accuracy, Sinks) {
    Thinner thin;
    int n = 0;
    for (const char* recipe : recipes()) {
        for (const double weight : {.5, .9, .97}) {
            for (const double place : {0.0, .3, .5, 1.0}) {
                if (thin.skip()) {
                    continue;
                }
                if (n++ % (is(recipe, "fp8") ? 2 : 5) != 0) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.heads_q = 1;
                s.dim = 64;
                s.tokens_q = 8;
                s.tokens_k = 2700;  // an interval and some
                s.seed = static_cast<std::uint64_t>(n);
                Case c = make_case(s);
                const auto sink =
                    static_cast<std::int64_t>(place * static_cast<double>(s.tokens_k - 1));
                // Rows share channel 0, whose product with the sink alone makes its logit. The rest
                // of the keys has scores of standard deviation .5.
                const double rest = std::log(static_cast<double>(s.tokens_k)) + .125;
                const double logit = rest + std::log(weight / (1 - weight));
                Random random(s.seed);
                fill(c.q,
                     [&](const Extents& i) { return i[3] == 0 ? 8 : on_grid(random.normal()); });
                fill(c.k, [&](const Extents& i) {
                    return i[1] == sink ? (i[3] == 0 ? on_grid(logit) : 0)
                           : i[3] == 0  ? 0
                                        : on_grid(.5 * random.normal());
                });
                fill(c.v,
                     [&](const Extents& i) { return i[1] == sink ? 0 : on_grid(random.normal()); });
                EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = 16}))
                    << weight << ' ' << place;
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test

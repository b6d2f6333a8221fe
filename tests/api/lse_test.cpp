// The log-sum-exp: of the true scores in every recipe and layout, and what it is for: merging
// shards.
#include <gtest/gtest.h>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

class Lse : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Lse, testing::ValuesIn(all_ways()), name_of);

// fp8_head quantises K with its mean, so a mean costs it accuracy.
double k_mean_of(const Way& way) {
    return std::strcmp(way.recipe, "fp8_head") == 0 ? 0 : 10;
}

// Against fp64, K mean 10, the buffer full of NaN before.
TEST_P(Lse, IsOfTheTrueScores) {
    const Way way = GetParam();
    const Recipe recipe = way.value();
    for (const bool packed : {false, true}) {
        for (const bool with_sink : {false, true}) {
            Spec s;
            s.packed = packed;
            s.batch = 2;
            s.tokens_q = 40;
            s.tokens_k = 300;
            s.heads_q = 4;
            s.heads_kv = 2;
            s.dim = 64;
            if (packed) {
                s.q_lens = {10, 20, 0, 7};
                s.k_lens = {100, 400, 5, 250};
                s.zero_tail = true;
            }
            s.k_mean = k_mean_of(way);
            if (with_sink) {
                s.sink = {2.0f, -1.0f, 6.0f, -std::numeric_limits<float>::infinity()};
            }
            Case c(s);
            const Problem p = c.problem(way);
            ASSERT_TRUE(
                std::isnan(value_at(p.tensors.lse, packed ? Extents{0, 0} : Extents{0, 0, 0})));
            const Status st = run(p, way.device);
            ASSERT_TRUE(st.ok()) << st.message();
            const Expected e = expect(p);
            double largest = 0, average = 0;
            int rows = 0;
            for (std::int64_t token = 0; token < e.tokens; token++) {
                for (std::int64_t h = 0; h < 4; h++) {
                    const double want = e.lse[static_cast<std::size_t>(token * 4 + h)];
                    const double got =
                        value_at(p.tensors.lse,
                                 packed ? Extents{h, token} : Extents{token / 40, h, token % 40});
                    if (want == -kInf) {
                        EXPECT_EQ(got, want);
                        continue;
                    }
                    ASSERT_TRUE(std::isfinite(got));
                    largest = std::max(largest, std::fabs(got - want));
                    average += std::fabs(got - want);
                    rows++;
                }
            }
            average /= rows;
            // The published error is for D = 128 and 1024 keys. A row's error is that of one mean
            // of key errors; here up to 14 times fewer keys make it up to 3.7 times as large
            // (square root), half the channels do not change it.
            const auto published = static_cast<double>(recipe.expected_lse_error);
            const double bound = way.is("reference") ? 1e-5 : std::max(3.7 * published, 2e-5);
            EXPECT_LE(largest, bound)
                << (packed ? "packed" : "dense") << (with_sink ? ", sink" : "");
            EXPECT_LE(average, std::max(published, 1e-5));
        }
    }
}

TEST_P(Lse, OfEqualScoresIsTheLogOfTheirNumber) {
    const Way way = GetParam();
    Spec s;
    s.tokens_q = 3;
    s.tokens_k = 1000;
    Case c(s);
    c.k.set(std::vector<float>(static_cast<std::size_t>(c.k.size()), 0.0f));
    Problem p = c.problem(way);
    const Status st = run(p, way.device);
    ASSERT_TRUE(st.ok()) << st.message();
    for (std::int64_t i = 0; i < 3; i++) {
        EXPECT_NEAR(value_at(p.tensors.lse, {0, 0, i}), std::log(1000.0), 1e-5);
    }
}

TEST_P(Lse, ChangesNothingElse) {
    const Way way = GetParam();
    Spec s;
    s.tokens_q = 50;
    s.tokens_k = 90;
    Case with(s);
    s.lse = false;
    Case without(s);
    EXPECT_EQ(bits_of(with, way).out, bits_of(without, way).out);
}

// The stored q twice as large and its descale half: the same scores, so the same LSE, and the sink
// keeps its weight.
TEST_P(Lse, DescalesAreUndone) {
    const Way way = GetParam();
    Spec s;
    s.tokens_q = 20;
    s.tokens_k = 70;
    s.q = s.k = s.v = QUATT_E4M3;
    s.descale_rank = 1;
    s.sink = {1.0f, -1.0f};
    Case c(s);
    for (Buffer* b : {&c.q, &c.k, &c.v}) {
        for_each_index(extents_of(b->view()), [&](const Extents& i) {
            // Exact where no code is subnormal or saturates: those codes become 0 first, in all
            // runs.
            const double x = value_at(b->view(), i);
            b->set_one(i,
                       std::fabs(x) < 0x1p-5 || std::fabs(x) > 200 ? 0.0f : static_cast<float>(x));
        });
    }
    const Bits base = bits_of(c, way);
    for (const auto& [tensor, descale] :
         {std::pair{&c.q, &c.q_descale}, {&c.k, &c.k_descale}, {&c.v, &c.v_descale}}) {
        for_each_index(extents_of(tensor->view()), [&, t = tensor](const Extents& i) {
            t->set_one(i, static_cast<float>(2 * value_at(t->view(), i)));
        });
        EXPECT_NE(bits_of(c, way), base);  // twice the operand alone does show
        descale->set_one({0}, static_cast<float>(value_at(descale->view(), {0}) / 2));
        EXPECT_EQ(bits_of(c, way), base);
    }
}

// ---- shards -----------------------------------------------------------------------------------

// K and V cut into shards with different means, each computed alone, merged by LSE.
TEST_P(Lse, MergesShards) {
    const Way way = GetParam();
    const bool smoothed = std::strcmp(way.recipe, "fp8_head") != 0;
    for (const int shards : {2, 4, 8}) {
        Spec s;
        s.tokens_q = 33;
        s.tokens_k = 640;
        s.dim = 32;
        s.heads_q = 2;
        s.heads_kv = 1;
        Case c(s);
        const std::int64_t part = s.tokens_k / shards;
        // Each shard has means of its own; K's would shift the shard's weight, so it lies along a
        // channel that q does not use.
        Random random(static_cast<std::uint64_t>(shards));
        for (std::int64_t j = 0; j < s.tokens_k; j++) {
            const auto shard = static_cast<double>(j / part);
            for (std::int64_t d = 0; d < 32; d++) {
                const double k_mean = smoothed && d == 5 ? 12 - 6 * shard : 0;
                c.k.set_one({0, j, 0, d}, static_cast<float>(random.normal() + k_mean));
                c.v.set_one({0, j, 0, d}, static_cast<float>(random.normal() + .5 * shard - 1));
            }
        }
        for (std::int64_t i = 0; i < s.tokens_q; i++) {
            for (const std::int64_t h : {0, 1}) {
                c.q.set_one({0, i, h, 5}, smoothed ? .125f : 1.0f);
            }
        }
        const Problem whole = c.problem(way);
        const Expected e = expect(whole);

        std::vector<double> out(e.out.size(), 0.0), total(e.lse.size(), 0.0),
            top(e.lse.size(), -kInf);
        std::vector<std::vector<double>> lse(static_cast<std::size_t>(shards)), parts(lse.size());
        for (int n = 0; n < shards; n++) {
            Problem p = whole;
            p.tensors.k = narrowed(p.tensors.k, 1, n * part, part);
            p.tensors.v = narrowed(p.tensors.v, 1, n * part, part);
            c.reset_outputs();
            const Status st = run(p, way.device);
            ASSERT_TRUE(st.ok()) << st.message();
            auto& o = parts[static_cast<std::size_t>(n)];
            auto& l = lse[static_cast<std::size_t>(n)];
            for (std::int64_t i = 0; i < s.tokens_q; i++) {
                for (std::int64_t h = 0; h < 2; h++) {
                    l.push_back(value_at(c.lse.view(), {0, h, i}));
                    for (std::int64_t d = 0; d < 32; d++) {
                        o.push_back(value_at(c.out.view(), {0, i, h, d}));
                    }
                }
            }
            for (std::size_t r = 0; r < l.size(); r++) {
                top[r] = std::max(top[r], l[r]);
            }
        }
        double error = 0, noise = 0, worst_lse = 0;
        for (std::size_t r = 0; r < top.size(); r++) {
            for (std::size_t n = 0; n < lse.size(); n++) {
                const double weight = std::exp(lse[n][r] - top[r]);
                total[r] += weight;
                for (std::size_t d = 0; d < 32; d++) {
                    out[r * 32 + d] += weight * parts[n][r * 32 + d];
                }
            }
            worst_lse = std::max(worst_lse, std::fabs(top[r] + std::log(total[r]) - e.lse[r]));
            for (std::size_t d = 0; d < 32; d++) {
                const double wrong = out[r * 32 + d] / total[r] - e.out[r * 32 + d];
                error += wrong * wrong;
                noise += e.noise[r * 32 + d] * e.noise[r * 32 + d];
            }
        }
        const Tolerance allowed = tolerance_of(way);
        EXPECT_LE(std::sqrt(error / noise), allowed.ratio + 1e-6) << shards << " shards";
        EXPECT_LE(worst_lse, std::max(2 * allowed.lse, 2e-5)) << shards << " shards";
    }
}

// What a merge must get right at its ends: shards without keys, and rows without any.
TEST_P(Lse, OfAnEmptyShardIsMinusInfinity) {
    const Way way = GetParam();
    Spec s;
    s.tokens_q = 20;
    s.tokens_k = 4;
    s.causal = true;  // the first 16 rows see nothing
    Case c(s);
    const Problem p = c.problem(way);
    const Status st = run(p, way.device);
    ASSERT_TRUE(st.ok()) << st.message();
    for (std::int64_t i = 0; i < 20; i++) {
        for (std::int64_t h = 0; h < 2; h++) {
            EXPECT_EQ(value_at(p.tensors.lse, {0, h, i}) == -kInf, i < 16);
            if (i < 16) {
                EXPECT_EQ(value_at(p.tensors.out, {0, i, h, 3}), 0.0);
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test

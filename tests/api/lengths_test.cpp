// Every small length, and what lies behind one: nothing of it may reach a result.
#include <gtest/gtest.h>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

// Nq, Nk in 1..300, with a workspace full of NaN; 2,000 sampled pairs, all of them
// in the long mode.
class EverySize : public testing::TestWithParam<Way> {};

TEST_P(EverySize, GivesEveryRow) {
    const Way way = GetParam();
    Random random(11);
    const auto one = [&](std::int64_t nq, std::int64_t nk, std::uint64_t seed) {
        Spec s;
        s.tokens_q = nq;
        s.tokens_k = nk;
        s.heads_q = s.heads_kv = 1;
        s.dim = 1 + static_cast<std::int64_t>(seed % 9);
        s.causal = seed % 2 == 0;
        s.seed = seed;
        Case c(s);
        const Problem p = c.problem(way);
        // Row by row the fp64 side would take most of the time: the ends, and some rows between.
        Extents only = {0, nq / 3, nq / 2, nq - 2, nq - 1};
        only.erase(std::remove_if(only.begin(), only.end(), [](std::int64_t i) { return i < 0; }),
                   only.end());
        std::sort(only.begin(), only.end());
        c.reset_outputs();
        const Status st = run(p, way.device);
        if (!st.ok()) {
            return testing::AssertionResult(testing::AssertionFailure() << st.message());
        }
        for (const std::uint32_t code : c.out.codes()) {
            if ((code & 0x7FFFFFFFu) > 0x7F800000u) {
                return testing::AssertionResult(testing::AssertionFailure() << "NaN in out");
            }
        }
        return close_to(p, expect(p, only), tolerance_of(way), false);
    };
    if (long_mode()) {
        for (std::int64_t nq = 1; nq <= 300; nq++) {
            for (std::int64_t nk = 1; nk <= 300; nk++) {
                ASSERT_TRUE(one(nq, nk, random.bits())) << nq << " x " << nk;
            }
        }
        return;
    }
    for (int i = 0; i < scaled(2000); i++) {
        const std::int64_t nq = random.in(1, 300), nk = random.in(1, 300);
        ASSERT_TRUE(one(nq, nk, random.bits())) << nq << " x " << nk;
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, EverySize,
                         testing::Values(Way{"reference", "bf16"}, Way{"emulate", "exact"},
                                         Way{"cpu", "bf16"}, Way{"cpu", "fp8"},
                                         Way{"cpu", "nvfp4"}),
                         name_of);

// ---- garbage ----------------------------------------------------------------------------------

class Garbage : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Garbage, testing::ValuesIn(all_ways()), name_of);

// NaN and 1e30 behind kv_lens, in the tail of a packed stream, and next to the
// tensors.
TEST_P(Garbage, NeverReachesAResult) {
    const Way way = GetParam();
    for (const bool packed : {false, true}) {
        Spec s;
        s.packed = packed;
        s.batch = 2;
        s.heads_q = 4;
        s.heads_kv = 2;
        s.dim = 20;
        s.tokens_q = packed ? 60 : 9;  // packed: 37 rows of capacity behind the last segment
        s.tokens_k = packed ? 220 : 100;
        if (packed) {
            s.q_lens = {3, 20};
            s.k_lens = {90, 70};
        }
        s.kv_lens = {70, 65};
        s.q = QUATT_F32;
        s.k = QUATT_BF16;
        s.v = QUATT_F16;
        s.input_strides = [](const Extents& e) {  // room beside the channels
            Extents strides = contiguous_strides(e);
            for (std::size_t i = 0; i + 1 < strides.size(); i++) {
                strides[i] *= 2;
            }
            return strides;
        };
        Case c(s);
        const auto fill = [&](float garbage) {
            for (Buffer* b : {&c.q, &c.k, &c.v}) {
                b->surround(garbage);
            }
            for (Buffer* b : {&c.k, &c.v}) {
                for_each_index(extents_of(b->view()), [&, b = b](const Extents& i) {
                    const std::int64_t token = packed ? i[0] : i[1];
                    const bool real = packed ? token < 70 || (token >= 90 && token < 90 + 65)
                                             : token < (i[0] == 0 ? 70 : 65);
                    if (!real) {
                        b->set_one(i, garbage);
                    }
                });
            }
            if (packed) {
                for_each_index(extents_of(c.q.view()), [&](const Extents& i) {
                    if (i[0] >= 23) {
                        c.q.set_one(i, garbage);
                    }
                });
            }
        };
        fill(0);
        const Bits clean = bits_of(c, way);
        for (const float garbage :
             {std::nanf(""), 1e30f, -1e30f, std::numeric_limits<float>::infinity()}) {
            fill(garbage);
            EXPECT_EQ(bits_of(c, way), clean) << garbage << (packed ? ", packed" : ", dense");
        }
        // A workspace with anything in it.
        const Problem p = c.problem(way);
        const auto plan = Plan::create(p, way.device);
        ASSERT_TRUE(plan.ok());
        for (const std::byte content : {std::byte{0}, std::byte{0xFF}, std::byte{0x7F}}) {
            Workspace w(plan->workspace_bytes());
            std::fill(w.span().begin(), w.span().end(), content);
            c.reset_outputs();
            ASSERT_TRUE(plan->run(p.tensors, w.span()).ok());
            EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), clean);
        }
    }
}

// ---- values that are not finite ---------------------------------------------------------------

// Rows of q that share a scale or a mean with row i of their segment: [first, last).
std::pair<std::int64_t, std::int64_t> group_of(const Recipe& r, std::int64_t i, std::int64_t rows) {
    std::int64_t size = 1;
    if (r.q.scale_format == QUATT_SCALE_F32) {
        size = r.q.group_tokens == 0 ? rows : r.q.group_tokens;
    }
    size = std::max<std::int64_t>(size, r.q.block_tokens);
    return {i / size * size, std::min(rows, i / size * size + size)};
}

TEST_P(Garbage, ANonFiniteQPoisonsItsGroupAtMost) {
    const Way way = GetParam();
    const Recipe recipe = way.value();
    Spec s;
    s.batch = 2;
    s.tokens_q = 300;
    s.tokens_k = 70;
    s.heads_q = 2;
    s.heads_kv = 1;
    s.dim = 18;
    s.q = QUATT_F32;
    Case c(s);
    const Bits clean = bits_of(c, way);
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        for (const std::int64_t row : {0, 130, 299}) {
            const Buffer good = c.q;
            c.q.set_one({1, row, 1, 3}, bad);
            const Bits bits = bits_of(c, way);
            c.q = good;
            auto [first, last] =
                way.is("reference") ? std::pair{row, row + 1} : group_of(recipe, row, s.tokens_q);
            for_each_index({2, 300, 2, 18}, [&, first = first, last = last](const Extents& i) {
                const auto at =
                    static_cast<std::size_t>(((i[0] * 300 + i[1]) * 2 + i[2]) * 18 + i[3]);
                const bool may = i[0] == 1 && i[2] == 1 && i[1] >= first && i[1] < last;
                if (!may) {
                    ASSERT_EQ(bits.out[at], clean.out[at])
                        << "row " << i[1] << " for " << bad << " in row " << row;
                } else if (i[1] == row && std::isnan(bad)) {
                    ASSERT_TRUE(std::isnan(decode(QUATT_F32, bits.out[at]))) << "a NaN got lost";
                }
            });
            for_each_index({2, 2, 300}, [&, first = first, last = last](const Extents& i) {
                const auto at = static_cast<std::size_t>((i[0] * 2 + i[1]) * 300 + i[2]);
                if (!(i[0] == 1 && i[1] == 1 && i[2] >= first && i[2] < last)) {
                    ASSERT_EQ(bits.lse[at], clean.lse[at]);
                }
            });
        }
    }
}

TEST_P(Garbage, ANonFiniteKeyPoisonsItsHeadAndSegmentAtMost) {
    const Way way = GetParam();
    Spec s;
    s.packed = true;
    s.q_lens = {20, 40, 1};
    s.k_lens = {70, 150, 30};
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 18;
    s.k = s.v = QUATT_F32;
    Case c(s);
    const Bits clean = bits_of(c, way);
    for (Buffer* tensor : {&c.k, &c.v}) {
        for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
            const Buffer good = *tensor;
            tensor->set_one({70 + 100, 1, 3}, bad);  // segment 1, KV head 1
            const Bits bits = bits_of(c, way);
            *tensor = good;
            int poisoned = 0;
            for_each_index({61, 4, 18}, [&](const Extents& i) {
                const auto at = static_cast<std::size_t>((i[0] * 4 + i[1]) * 18 + i[2]);
                if (!(i[0] >= 20 && i[0] < 60 && i[1] >= 2)) {
                    ASSERT_EQ(bits.out[at], clean.out[at]) << "row " << i[0] << ", head " << i[1];
                } else {
                    poisoned += !std::isfinite(decode(QUATT_F32, bits.out[at])) ? 1 : 0;
                }
            });
            EXPECT_TRUE(poisoned > 0 || !std::isnan(bad)) << "a NaN got lost";
            for_each_index({4, 61}, [&](const Extents& i) {
                const auto at = static_cast<std::size_t>(i[0] * 61 + i[1]);
                if (!(i[1] >= 20 && i[1] < 60 && i[0] >= 2)) {
                    ASSERT_EQ(bits.lse[at], clean.lse[at]);
                }
            });
        }
    }
}

}  // namespace
}  // namespace quatt::test

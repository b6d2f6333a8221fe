// Logits far from the usual, and values that are not finite: results are right, or the rows that
// become NaN are those that the contract allows (docs/recipes.md).
#include <limits>

#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Extremes, gpu_subjects());

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Equal P are all rounded the same way, and their sum is not: by half an ulp at most.
[[nodiscard]] double rounding_of(const char* recipe) {
    return is(recipe, "fp8") ? 0x1p-4 : is(recipe, "f16") ? 0x1p-11 : 0x1p-8;
}

// Half of the keys, in random places, have the same large logit, the others its negative. All V of
// the first are 1, of the others -1: out is 1, the LSE the logit plus ln of their number.
void expect_equal_logits(const char* recipe, double size, double scale, std::int64_t keys) {
    Spec s = spec_of(recipe);
    s.heads_q = 1;
    s.tokens_q = 20;
    s.tokens_k = keys;
    s.scale = scale;
    Case c = make_case(s);
    std::vector<double> sign(static_cast<std::size_t>(keys));
    Random random(5);
    for (std::size_t j = 0; j + 1 < sign.size(); j += 2) {
        const double first = random.normal() < 0 ? -1 : 1;
        sign[j] = first;
        sign[j + 1] = -first;
    }
    const auto of_key = [&](const Extents& i) { return sign[static_cast<std::size_t>(i[1])]; };
    fill(c.q, [&](const Extents&) { return size; });
    fill(c.k, [&](const Extents& i) { return size * of_key(i); });
    fill(c.v, of_key);
    const Results got = compute(c, device(), recipe);
    const double logit = 8 * size * size * scale;  // 64 products, over sqrt(64)
    SCOPED_TRACE(std::string(recipe) + " on " + device() + ", logits of " + std::to_string(logit));
    for (const double x : got.out) {
        ASSERT_NEAR(x, 1, rounding_of(recipe));
    }
    for (const double x : got.lse) {
        ASSERT_NEAR(x, logit + std::log(keys / 2), 1e-6 * logit + 1e-5);
    }
}

TEST_P(Extremes, EqualLogitsOfAnySize) {
    for (const char* recipe : recipes()) {
        // f16 has no number above 65504; its logits grow by the scale.
        for (const double size : {16.0, 1024.0, 4096.0, 16384.0, 57344.0}) {
            expect_equal_logits(recipe, size, 1, 300);
        }
        expect_equal_logits(recipe, 16384, 1024, 300);
        expect_equal_logits(recipe, 16384, 1e20, 300);
        if (!is(recipe, "f16")) {
            expect_equal_logits(recipe, 131072, 1, 300);
            expect_equal_logits(recipe, 0x1p40, 1, 300);
        }
        expect_equal_logits(recipe, 16384, 1, 2500);
    }
}

// Logits far below 0, all the same, or rising along the row: no row counts as one without keys.
TEST_P(Extremes, LogitsFarBelowZero) {
    for (const char* recipe : recipes()) {
        if (is(recipe, "fp8")) {
            continue;  // centring K lifts the largest logit of every row to 0 or above
        }
        for (const double scale : {1.0, 1e20, 1e27, 2e28}) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 20;
            s.tokens_k = 300;
            s.scale = scale;
            Case c = make_case(s);
            fill(c.q, [](const Extents&) { return 1024; });
            fill(c.k, [](const Extents&) { return -1024; });
            const Results got = compute(c, device(), recipe);
            SCOPED_TRACE(std::string(recipe) + " on " + device() + ", scale " +
                         std::to_string(scale));
            std::vector<double> mean(64);
            const std::vector<double> v = values_of(c.v);
            for (std::size_t i = 0; i < v.size(); i++) {
                mean[i % 64] += v[i] / 300;
            }
            for (std::size_t i = 0; i < got.out.size(); i++) {
                ASSERT_NEAR(got.out[i], mean[i % 64], rounding_of(recipe));
            }
            const double logit = -8.0 * 1024 * 1024 * scale;
            for (const double x : got.lse) {
                ASSERT_NEAR(x, logit + std::log(300), 1e-6 * std::fabs(logit));
            }
        }
    }
}

// Rows without keys are 0 and their LSE -inf, whatever Q, K and V hold.
TEST_P(Extremes, RowsWithoutKeysBesideNan) {
    for (const char* recipe : recipes()) {
        for (const char where : {'q', 'k', 'v'}) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 100;
            s.tokens_k = 40;
            s.causal = true;  // rows 0 to 59 see no key
            Case c = make_case(s);
            Buffer& x = where == 'q' ? c.q : where == 'k' ? c.k : c.v;
            for (std::int64_t d = 0; d < 64; d++) {
                for (const std::int64_t token : {0, 7, 39}) {
                    x.set_one({0, token, 0, d}, kNan);
                }
            }
            const Results got = compute(c, device(), recipe);
            SCOPED_TRACE(std::string(recipe) + " on " + device() + ", NaN in " + where);
            for (std::size_t row = 0; row < 60; row++) {
                ASSERT_EQ(got.lse[row], -kInf) << "row " << row;
                for (std::size_t d = 0; d < 64; d++) {
                    ASSERT_EQ(got.out[row * 64 + d], 0) << "row " << row;
                }
            }
        }
    }
}

// A value of K or V that is not finite reaches rows of its own head and segment only: the others
// have the bits that they have without it.
TEST_P(Extremes, NanStaysInItsHeadAndSegment) {
    for (const char* recipe : recipes()) {
        for (const float bad : {kNan, kInf}) {
            for (const bool in_v : {false, true}) {
                Spec s = spec_of(recipe);
                s.packed = true;
                s.heads_q = s.heads_kv = 2;
                s.q_lens = s.k_lens = {70, 300, 5};
                s.causal = true;
                Case clean = make_case(s), c = make_case(s);
                (in_v ? c.v : c.k).set_one({70 + 299, 1, 3}, bad);  // last key, head 1
                const Results want = compute(clean, device(), recipe),
                              got = compute(c, device(), recipe);
                SCOPED_TRACE(std::string(recipe) + " on " + device() + (in_v ? ", V" : ", K"));
                for (std::size_t token = 0; token < 375; token++) {
                    for (std::size_t head = 0; head < 2; head++) {
                        const bool may = head == 1 && token >= 70 && token < 370;
                        for (std::size_t d = 0; d < 64 && !may; d++) {
                            const std::size_t i = (token * 2 + head) * 64 + d;
                            ASSERT_EQ(got.out[i], want.out[i]) << token << ' ' << head;
                        }
                    }
                }
                // The row that sees the key. (A score of -inf would be a weight of 0.)
                if (in_v || std::isnan(bad)) {
                    ASSERT_FALSE(std::isfinite(got.out[(369 * 2 + 1) * 64 + 3]));
                }
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test

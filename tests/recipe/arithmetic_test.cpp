// The two pieces of arithmetic that everything rests on: exp2_fast, and the short accumulator of
// Hopper.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "oracle.hpp"
#include "recipe/accumulate.hpp"
#include "recipe/exp2.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// ------------------------------------------------------------------------------------- exp2_fast

// Error in units of the last place of the exact result; subnormal results have that of 2^-149.
double ulps_off(float x) {
    const double exact = std::exp2(static_cast<double>(x));
    return std::fabs(static_cast<double>(exp2_fast(x)) - exact) /
           oracle::spacing(oracle::kF32, exact);
}

TEST(Exp2Fast, PowersOfTwoAreExact) {
    for (int e = -149; e <= 127; e++) {
        EXPECT_EQ(exp2_fast(static_cast<float>(e)), std::ldexp(1.0f, e)) << e;
    }
}

TEST(Exp2Fast, WithinTwoUlpsEverywhere) {
    // Bit patterns a prime apart, of both signs: every exponent, and all kinds of fractions.
    const std::uint32_t step = support::test_scale() < 1 ? 99991 : 1009;
    double worst = 0;
    float at = 0;
    for (std::uint64_t bits = 0; bits < 0x7F80'0000U; bits += step) {
        for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
            const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign);
            if (x > 127.99f || x < -148) {
                continue;  // the ends have tests of their own
            }
            if (const double off = ulps_off(x); off > worst) {
                worst = off;
                at = x;
            }
        }
    }
    EXPECT_LE(worst, 2.0) << "at " << at;
}

TEST(Exp2Fast, WithinTwoUlpsBetweenIntegers) {
    // Around x = n + 1/2 the argument of the polynomial is largest.
    for (int n = -148; n < 127; n++) {
        for (const float f : {.5f, .49999f, .50001f, .25f, .75f, 1e-4f, .9999f}) {
            EXPECT_LE(ulps_off(static_cast<float>(n) + f), 2.0) << n << " + " << f;
        }
    }
}

TEST(Exp2Fast, Ends) {
    EXPECT_EQ(exp2_fast(0.0f), 1.0f);
    EXPECT_EQ(exp2_fast(-0.0f), 1.0f);
    EXPECT_EQ(exp2_fast(std::numeric_limits<float>::denorm_min()), 1.0f);
    EXPECT_EQ(exp2_fast(kInf), kInf);
    EXPECT_EQ(exp2_fast(-kInf), 0.0f);
    EXPECT_EQ(exp2_fast(std::numeric_limits<float>::max()), kInf);
    EXPECT_EQ(exp2_fast(std::numeric_limits<float>::lowest()), 0.0f);
    EXPECT_EQ(exp2_fast(1e30f), kInf);
    EXPECT_EQ(exp2_fast(-1e30f), 0.0f);
    EXPECT_EQ(exp2_fast(128.0f), kInf);
    EXPECT_EQ(exp2_fast(129.5f), kInf);
    EXPECT_TRUE(std::isfinite(exp2_fast(std::nextafter(128.0f, 0.0f))));
    EXPECT_LE(ulps_off(std::nextafter(128.0f, 0.0f)), 2.0);
    EXPECT_EQ(exp2_fast(-149.0f), std::numeric_limits<float>::denorm_min());
    EXPECT_EQ(exp2_fast(-151.0f), 0.0f);
    EXPECT_EQ(exp2_fast(-1000.0f), 0.0f);
    EXPECT_TRUE(std::isnan(exp2_fast(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(exp2_fast(-std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(exp2_fast(std::bit_cast<float>(0xFFFF'FFFFU))));
}

TEST(Exp2Fast, NeverFallsWhereItsArgumentRises) {
    // Lazy softmax compares codes, not scores, so a larger score must never get a smaller P by more
    // than the error of both.
    support::Random random(1);
    for (int i = 0; i < support::cases(200000); i++) {
        const float x = static_cast<float>(random.uniform(-150, 128)), y = std::nextafter(x, kInf);
        const float a = exp2_fast(x), b = exp2_fast(y);
        ASSERT_GE(static_cast<double>(b), static_cast<double>(a) * (1 - 0x1p-21)) << x;
    }
}

// ----------------------------------------------------------------------------------- hopper_step

double exact_step(float c, const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<oracle::CodePair> pairs;
    for (std::size_t i = 0; i < a.size(); i++) {
        pairs.push_back({static_cast<double>(a[i]), static_cast<double>(b[i])});
    }
    return oracle::hopper_sum(static_cast<double>(c), pairs);
}

float step(float c, const std::vector<float>& a, const std::vector<float>& b) {
    return hopper_step(c, a.data(), 1, b.data(), 1, static_cast<std::int64_t>(a.size()));
}

TEST(HopperStep, ByHand) {
    EXPECT_EQ(step(1.5f, {}, {}), 1.5f);
    EXPECT_EQ(step(0, {2}, {3}), 6.0f);
    EXPECT_EQ(step(1, {1}, {0x1p-13f}), 1 + 0x1p-13f) << "the thirteenth bit stays";
    EXPECT_EQ(step(1, {1}, {0x1p-14f}), 1.0f) << "the fourteenth goes";
    EXPECT_EQ(step(1, {1, 1}, {0x1p-14f, 0x1p-14f}), 1.0f) << "each term is cut before the sum";
    EXPECT_EQ(step(1, {1}, {-0x1p-14f}), 1.0f) << "toward zero, so also from below";
    EXPECT_EQ(step(1 + 0x1p-20f, {1}, {1}), 2.0f) << "C is cut like a product";
    EXPECT_EQ(step(-1 - 0x1p-20f, {0}, {0}), -1.0f) << "C is cut also where it stands alone";
    EXPECT_EQ(step(0x1p-10f, {16}, {16}), 256.0f) << "a sum forgets what is 2^14 below a product";
    EXPECT_EQ(step(-256, {16}, {16}), 0.0f);
    EXPECT_EQ(step(0, {0, -0.0f}, {448, 448}), 0.0f);
    // 1.5 * 1.5 = 2.25 has the exponent 0, so 2^-13 stays beside it, and the sum is cut at 2^-12.
    EXPECT_EQ(step(0x1p-13f, {1.5f, 1}, {1.5f, 0x1p-13f}), 2.25f + 0x1p-12f);
    EXPECT_EQ(step(0x1p-13f, {1, 1}, {2.25f, 0x1p-13f}), 2.25f) << "2.25 * 1 has the exponent 1";
    // Subnormal codes have the exponent -6, also where the product is smaller.
    EXPECT_EQ(step(0x1p-33f, {0x1p-9f}, {1}), 0x1p-9f) << "beside 2^-6, 2^-19 is the last bit";
    EXPECT_EQ(step(0x1p-22f, {0x1p-9f}, {1}), 0x1p-9f);
    EXPECT_EQ(step(0x1p-19f, {0x1p-9f}, {1}), 0x1p-9f + 0x1p-19f);
    // 1.5 + 2^-13 + 1.5: the sum is above 2, where the last bit is 2^-12. Read off an H200: sums of
    // more than 14 bits come back with the lower ones missing, never rounded up.
    EXPECT_EQ(step(1.5f + 0x1p-13f, {1.5f}, {1}), 3.0f) << "the sum is cut too";
    EXPECT_EQ(step(-1.5f - 0x1p-13f, {-1.5f}, {1}), -3.0f);
    EXPECT_EQ(step(1.5f + 0x1p-12f, {1.5f}, {1}), 3 + 0x1p-12f);
}

TEST(HopperStep, NotFinite) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(step(nan, {1}, {1})));
    EXPECT_TRUE(std::isnan(step(1, {nan}, {0})));
    EXPECT_TRUE(std::isnan(step(kInf, {-kInf}, {1})));
    EXPECT_EQ(step(kInf, {1}, {1}), kInf);
    EXPECT_EQ(step(0, {kInf}, {-1}), -kInf);
}

TEST(HopperStep, RandomCodes) {
    support::Random random(2);
    for (int round = 0; round < support::cases(20000); round++) {
        const auto n = static_cast<std::size_t>(random.integer(0, kHopperStep));
        const bool small = random.integer(0, 3) == 0;  // few large products among tiny ones
        const auto code = [&] {
            const auto c = static_cast<std::uint8_t>(random.integer(0, 255));
            return static_cast<float>(oracle::decode_e4m3((c & 0x7FU) == 0x7FU ? 0x80
                                                          : small && random.integer(0, 7) != 0
                                                              ? c & 0x87U
                                                              : c));
        };
        std::vector<float> a(n), b(n);
        for (std::size_t i = 0; i < n; i++) {
            a[i] = code();
            b[i] = code();
        }
        const float c = static_cast<float>(random.normal() * std::exp2(random.uniform(-30, 30)));
        ASSERT_EQ(static_cast<double>(step(c, a, b)), exact_step(c, a, b))
            << "n " << n << ", c " << c;
    }
}

TEST(HopperStep, ARowIsTheSameBits) {
    support::Random random(3);
    for (int round = 0; round < support::cases(300); round++) {
        const auto n = 8 * random.integer(1, 32);
        // All codes; none that is NaN, and half of them small; or a row of zeros.
        const auto kind = random.integer(0, 3);
        const auto code = [&] {
            auto c = static_cast<std::uint8_t>(random.integer(0, 255));
            if (kind != 0 && (c & 0x7FU) == 0x7FU) c = 0x80;
            if (kind == 2 && random.integer(0, 1) != 0) c &= 0x87U;
            return static_cast<float>(oracle::decode_e4m3(kind == 3 ? c & 0x80U : c));
        };
        std::vector<float> a(kHopperStep), b(static_cast<std::size_t>(kHopperStep * n));
        std::vector<float> c(static_cast<std::size_t>(n));
        std::generate(a.begin(), a.end(), code);
        std::generate(b.begin(), b.end(), code);
        for (float& x : c) {
            x = static_cast<float>(random.normal() * std::exp2(random.uniform(-140, 40)));
            const auto special = random.integer(0, 40);
            if (special < 4)
                x = special == 0 ? -0.0f : special == 1 ? 0x1p-149f : special == 2 ? kInf : 0;
        }
        const std::vector<float> start = c;
        formats::hopper_row(c.data(), a.data(), b.data(), n);
        for (std::int64_t j = 0; j < n; j++) {
            const auto at = static_cast<std::size_t>(j);
            const float one = hopper_step(start[at], a.data(), 1, &b[at], n, kHopperStep);
            if (std::isnan(one)) {
                ASSERT_TRUE(std::isnan(c[at]));
            } else {
                ASSERT_EQ(formats::bit_cast<std::uint32_t>(c[at]),
                          formats::bit_cast<std::uint32_t>(one))
                    << "start " << start[at];
            }
        }
    }
}

RC_GTEST_PROP(HopperStep, StridesSelectTheOperands, ()) {
    const auto n = *rc::gen::inRange<std::int64_t>(0, kHopperStep + 1),
               sa = *rc::gen::inRange<std::int64_t>(1, 5),
               sb = *rc::gen::inRange<std::int64_t>(1, 5);
    support::Random random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<float> a(static_cast<std::size_t>(n * sa + 1),
                         std::numeric_limits<float>::quiet_NaN()),
        b(static_cast<std::size_t>(n * sb + 1), a[0]), pa, pb;
    for (std::int64_t i = 0; i < n; i++) {
        pa.push_back(static_cast<float>(random.integer(-15, 15)));
        pb.push_back(static_cast<float>(random.integer(-15, 15)));
        a[static_cast<std::size_t>(i * sa)] = pa.back();
        b[static_cast<std::size_t>(i * sb)] = pb.back();
    }
    RC_ASSERT(hopper_step(1, a.data(), sa, b.data(), sb, n) == step(1, pa, pb));
}

TEST(HopperStep, TinyAccumulators) {
    // Beside them no product of codes is anything but 0.
    EXPECT_EQ(step(0x1.23456p-88f, {0, 0}, {1, 2}), 0x1.234p-88f);
    EXPECT_EQ(step(0x1.8p-140f, {0}, {0}), 0) << "a subnormal number has fewer bits";
    for (const float c : {0x1.23456p-80f, 0x1.8p-100f}) {
        EXPECT_EQ(static_cast<double>(step(c, {0}, {0})), exact_step(c, {0}, {0}));
    }
}

}  // namespace
}  // namespace quatt::recipe

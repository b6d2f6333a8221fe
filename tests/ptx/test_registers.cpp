// Shuffles, votes, conversions, arithmetic, ids.
#include <cmath>
#include <limits>

#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "warp.hpp"

namespace quatt::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Exchange, Shuffles) {
    run_warp([] {
        const u32 lane = lane_id();
        for (u32 n : {0u, 1u, 2u, 5u, 16u, 31u}) {
            EXPECT_EQ(shfl_xor(lane * 3, n), (lane ^ n) * 3);
            EXPECT_EQ(shfl_idx(lane * 3, n), n * 3);
            EXPECT_EQ(shfl_idx(lane * 3, n + 32), n * 3);
            EXPECT_EQ(shfl_up(lane * 3, n), (lane < n ? lane : lane - n) * 3);
            EXPECT_EQ(shfl_down(lane * 3, n), (lane + n > 31 ? lane : lane + n) * 3);
        }
        EXPECT_EQ(shfl_idx(lane, (lane + 7) % 32), (lane + 7) % 32);  // a lane of one's own choice
        EXPECT_EQ(shfl_xor(static_cast<float>(lane) + 0.5f, 1),
                  static_cast<float>(lane ^ 1) + 0.5f);
    });
}

TEST(Exchange, Votes) {
    run_warp([] {
        const u32 lane = lane_id();
        EXPECT_EQ(ballot(lane % 3 == 0), 0x49249249u);
        EXPECT_TRUE(any(lane == 17));
        EXPECT_FALSE(any(lane == 32));
        EXPECT_TRUE(all(lane < 32));
        EXPECT_FALSE(all(lane != 17));
    });
}

TEST(Ids, OfAThreeDimensionalLaunch) {
    std::vector<int> seen(2 * 3 * 2 * 96, 0);
    const simt::Result result = simt::launch({"ids", {2, 3, 2}, {8, 4, 3}}, {}, [&] {
        EXPECT_EQ(threads_x(), 8u);
        EXPECT_EQ(blocks_x(), 2u);
        EXPECT_EQ(blocks_y(), 3u);
        EXPECT_EQ(blocks_z(), 2u);
        const u32 thread = (thread_z() * 4 + thread_y()) * 8 + thread_x();
        EXPECT_EQ(thread % 32, lane_id());
        EXPECT_EQ(thread / 32, warp_id());
        seen[((block_z() * 3 + block_y()) * 2 + block_x()) * 96 + thread]++;
    });
    EXPECT_TRUE(result.ok());
    for (int count : seen)
        EXPECT_EQ(count, 1);
}

// Nearest by search over all codes, ties to the even one: no bit tricks.
template <class Format>
typename Format::Code nearest(float x) {
    using Code = typename Format::Code;
    int best = -1;
    double best_distance = 0;
    for (int code = 0; code < 1 << Format::kBits; code++) {
        const float value = Format::decode(static_cast<Code>(code));
        if (!std::isfinite(value) || std::signbit(value) != std::signbit(x)) continue;
        const double distance = std::fabs(double{value} - x);
        if (best < 0 || distance < best_distance || (distance == best_distance && code % 2 == 0)) {
            best = code;
            best_distance = distance;
        }
    }
    return static_cast<Code>(best);
}

TEST(Convert, E4m3RoundsToNearestAndSaturates) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 2000; i++) {
        const float a = normal(generator) * std::exp2(static_cast<float>(i % 24) - 12.0f);
        const float b = normal(generator);
        const u16 packed = pack_e4m3x2(a, b);
        EXPECT_EQ(packed & 0xFF, nearest<formats::E4m3>(a)) << a;
        EXPECT_EQ(packed >> 8, nearest<formats::E4m3>(b)) << b;
    }
    for (const float tie : {17.0f, 19.0f, 0x1p-10f, 0x3p-10f, -21.0f})
        EXPECT_EQ(pack_e4m3x2(tie, 0) & 0xFF, nearest<formats::E4m3>(tie)) << tie;
    EXPECT_EQ(pack_e4m3x2(1e9f, -kInf), 0xFE7E);
    EXPECT_EQ(pack_e4m3x2(kNan, 464.0f), 0x7E7F);
    EXPECT_EQ(pack_e4m3x4(1, 2, 4, -0.0f), 0x80484038u);
}

TEST(Convert, SixteenBitFormats) {
    std::mt19937 generator(2);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 300; i++) {
        const float a = normal(generator), b = normal(generator) * 1000;
        EXPECT_EQ(pack_bf16x2(a, b) & 0xFFFF, nearest<formats::Bf16>(a));
        EXPECT_EQ(pack_bf16x2(a, b) >> 16, nearest<formats::Bf16>(b));
        EXPECT_EQ(pack_f16x2(a, b) & 0xFFFF, nearest<formats::F16>(a));
        EXPECT_EQ(pack_f16x2(a, b) >> 16, nearest<formats::F16>(b));
    }
    EXPECT_EQ(pack_bf16x2(kInf, kNan), 0x7FFF7F80u);
    EXPECT_EQ(pack_f16x2(1e6f, kNan), 0x7FFF7C00u);
    for (u32 code = 0; code < 65536; code++) {
        const F32x2 b = unpack_bf16x2(code << 16 | code), h = unpack_f16x2(code << 16 | code);
        EXPECT_EQ(bits(b.x), code << 16);
        EXPECT_EQ(bits(b.y), code << 16);
        const int exponent = static_cast<int>(code >> 10 & 31), fraction = code & 1023;
        float value = std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction),
                                 (exponent ? exponent : 1) - 25);
        if (exponent == 31) value = fraction ? kNan : kInf;
        if (code & 0x8000) value = -value;
        EXPECT_TRUE(h.x == value || (std::isnan(h.x) && std::isnan(value))) << code;
        EXPECT_TRUE(h.y == value || (std::isnan(h.y) && std::isnan(value))) << code;
    }
}

TEST(Convert, E4m3ToF16IsExact) {
    for (u32 code = 0; code < 256; code++) {
        const int exponent = static_cast<int>(code >> 3 & 15), fraction = code & 7;
        float value = std::ldexp(static_cast<float>(exponent ? 8 + fraction : fraction),
                                 (exponent ? exponent : 1) - 10);
        if ((code & 0x7F) == 0x7F) value = kNan;
        if (code & 0x80) value = -value;
        const F32x2 f = unpack_e4m3x2(static_cast<u16>(code << 8 | 0x38));
        EXPECT_EQ(f.x, 1.0f);
        EXPECT_TRUE(f.y == value || (std::isnan(f.y) && std::isnan(value))) << code;
    }
}

TEST(Math, ExponentialsAndLogarithms) {
    for (int e = -126; e < 128; e++) {
        EXPECT_EQ(ex2(static_cast<float>(e)), std::ldexp(1.0f, e));
        EXPECT_EQ(lg2(std::ldexp(1.0f, e)), static_cast<float>(e));
    }
    EXPECT_EQ(bits(ex2(-126.5f)), 0u);  // .ftz on the result
    EXPECT_EQ(ex2(0x1p-140f), 1.0f);    // and on the operand
    EXPECT_EQ(ex2(-kInf), 0.0f);
    EXPECT_EQ(ex2(200.0f), kInf);
    EXPECT_TRUE(std::isnan(ex2(kNan)));
    EXPECT_EQ(lg2(0.0f), -kInf);
    EXPECT_EQ(lg2(0x1p-130f), -kInf);
    EXPECT_TRUE(std::isnan(lg2(-1.0f)));
    EXPECT_EQ(rcp(0.0f), kInf);
    EXPECT_EQ(rcp(-0x1p-130f), -kInf);
    EXPECT_EQ(bits(rcp(-0x1p127f)), 0x80000000u);
    EXPECT_EQ(rcp(4.0f), 0.25f);
    std::mt19937 generator(3);
    std::uniform_real_distribution<float> x(-100, 100);
    for (int i = 0; i < 2000; i++) {
        const float v = x(generator);
        EXPECT_NEAR(ex2(v) / std::exp2(double{v}), 1, 2.4e-7);  // 2 ulp
        EXPECT_NEAR(rcp(v) * double{v}, 1, 1.2e-7);
    }
}

TEST(Math, MinMaxCeilFma) {
    EXPECT_EQ(max(1.0f, kNan), 1.0f);
    EXPECT_EQ(max(kNan, -1.0f), -1.0f);
    EXPECT_TRUE(std::isnan(max_or_nan(1.0f, kNan)) && std::isnan(max_or_nan(kNan, 1.0f)));
    EXPECT_EQ(max_or_nan(-2.0f, -1.0f), -1.0f);
    EXPECT_EQ(max_u16x2(0x00058001u, 0xFFFF7FFFu), 0xFFFF8001u);
    EXPECT_EQ(max_u16x2(0x7F807F80u, 0x7FC00001u), 0x7FC07F80u);
    EXPECT_TRUE(std::isnan(max(kNan, kNan)));
    EXPECT_EQ(min(kNan, 2.0f), 2.0f);
    EXPECT_EQ(bits(max(-0.0f, 0.0f)), bits(0.0f));
    EXPECT_EQ(bits(max(0.0f, -0.0f)), bits(0.0f));
    EXPECT_EQ(bits(min(0.0f, -0.0f)), bits(-0.0f));
    EXPECT_EQ(bits(min(-0.0f, 0.0f)), bits(-0.0f));
    EXPECT_EQ(max(3.0f, kInf), kInf);
    EXPECT_EQ(ceil(1.25f), 2.0f);
    EXPECT_EQ(ceil(-1.25f), -1.0f);
    EXPECT_EQ(ceil(-kInf), -kInf);
    const float a = 1 + 0x1p-12f, product = a * a;
    EXPECT_EQ(fma(a, a, -product), 0x1p-24f);  // the part that a rounded product loses
    float x = 3;
    u32 n = 5;
    optimizer_barrier(x);
    optimizer_barrier(n);
    EXPECT_EQ(x, 3.0f);
    EXPECT_EQ(n, 5u);
}

}  // namespace
}  // namespace quatt::test

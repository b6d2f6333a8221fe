// The reference device's rows against two passes in fp64, and how rows of results are stored.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "head.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

using support::bf16;
using support::HeadInputs;
using support::normal_head;
using support::Random;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Rows {
    std::vector<float> out, lse, light;
};

Rows reference(const HeadInputs& x, const std::vector<std::int64_t>& rows) {
    Rows r;
    r.out.assign(static_cast<std::size_t>(x.q_len * x.dim_v), kNaN);
    r.lse.assign(static_cast<std::size_t>(x.q_len), kNaN);
    r.light = r.lse;
    HeadProblem p;
    p.mask = x.mask();
    p.softmax_scale = x.softmax_scale;
    p.has_sink = x.has_sink;
    p.sink = x.sink;
    p.q = support::view_of(x.q, x.q_len, x.dim);
    p.k = support::view_of(x.k, x.k_len, x.dim);
    p.v = support::view_of(x.v, x.k_len, x.dim_v);
    p.to = {.out = reinterpret_cast<std::byte*>(r.out.data()),
            .dtype = QUATT_F32,
            .token_stride = x.dim_v,
            .channel_stride = 1,
            .channels = x.dim_v,
            .lse = r.lse.data(),
            .lse_stride = 1,
            .light_mass = r.light.data(),
            .light_stride = 1};
    std::vector<std::byte> scratch(reference_scratch_bytes(x.dim, x.dim_v), std::byte{0xFF});
    for (std::size_t first = 0; first < rows.size(); first += kRowBlock) {
        reference_rows(p,
                       {rows.data() + first, std::min<std::size_t>(kRowBlock, rows.size() - first)},
                       scratch);
    }
    return r;
}

oracle::RowResult exact(const HeadInputs& x, std::int64_t i) {
    std::vector<double> s;
    for (std::int64_t j = 0; j < x.k_len; j++) {
        double sum = 0;
        for (std::int64_t d = 0; d < x.dim; d++) {
            sum += static_cast<double>(x.q[static_cast<std::size_t>(i * x.dim + d)]) *
                   static_cast<double>(x.k[static_cast<std::size_t>(j * x.dim + d)]);
        }
        s.push_back(x.sees(i, j) ? sum * static_cast<double>(x.softmax_scale) : -oracle::kInf);
    }
    const std::vector<double> v(x.v.begin(), x.v.end());
    return oracle::attend(s, v, x.dim_v, x.has_sink ? static_cast<double>(x.sink) : -oracle::kInf);
}

RC_GTEST_PROP(Reference, AnyProblem, ()) {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    HeadInputs x = normal_head(random, random.integer(1, 100), random.integer(0, 300),
                               random.integer(1, 40), random.integer(1, 40));
    x.softmax_scale *= static_cast<float>(std::exp2(random.uniform(-2, 6)));
    x.causal = random.integer(0, 1) == 1;
    x.left = random.integer(0, 1) == 1 ? random.integer(0, 200) : -1;
    x.right = random.integer(0, 1) == 1 ? random.integer(0, 200) : -1;
    x.has_sink = random.integer(0, 1) == 1;
    x.sink = static_cast<float>(random.uniform(-20, 20));
    std::vector<std::int64_t> rows(static_cast<std::size_t>(x.q_len));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    const Rows got = reference(x, rows);
    for (const std::int64_t i : rows) {
        const oracle::RowResult want = exact(x, i);
        const auto u = static_cast<std::size_t>(i);
        // fp64 all along, so fp32 rounding of the result is what is left.
        RC_ASSERT(static_cast<double>(got.lse[u]) == want.lse ||
                  std::fabs(static_cast<double>(got.lse[u]) - want.lse) <=
                      0x1p-23 * std::fabs(want.lse) + 1e-12);
        RC_ASSERT(std::fabs(static_cast<double>(got.light[u]) - want.light) <= 1e-6);
        for (std::size_t d = 0; d < want.out.size(); d++) {
            const double y = static_cast<double>(got.out[u * want.out.size() + d]);
            RC_ASSERT(std::fabs(y - want.out[d]) <= 0x1p-23 * std::fabs(want.out[d]) + 1e-12);
        }
    }
}

// Ramps of 800 log2 units and sinks of 300: fp64 keeps them, in whichever order they come.
TEST(Reference, HostileRows) {
    Random random(51);
    for (int kind = 0; kind < 5; kind++) {
        HeadInputs x = normal_head(random, 2, 3000, 1, 4);
        x.softmax_scale = static_cast<float>(std::log(2.0));
        x.q = {1, -1};
        for (std::int64_t j = 0; j < 3000; j++) {
            const double ramp = -400 + 800.0 * static_cast<double>(j) / 3000;
            const double pattern[] = {ramp, -ramp, j == 0 ? 300.0 : 0.0, j == 1500 ? 300.0 : 0.0,
                                      j == 2999 ? 300.0 : 0.0};
            x.k[static_cast<std::size_t>(j)] = static_cast<float>(pattern[kind] + random.normal());
        }
        const Rows got = reference(x, {0, 1});
        for (std::size_t i = 0; i < 2; i++) {
            const oracle::RowResult want = exact(x, static_cast<std::int64_t>(i));
            EXPECT_NEAR(static_cast<double>(got.lse[i]), want.lse, 0x1p-23 * std::fabs(want.lse));
            EXPECT_NEAR(static_cast<double>(got.light[i]), want.light, 1e-6);
            for (std::size_t d = 0; d < 4; d++) {
                EXPECT_NEAR(static_cast<double>(got.out[i * 4 + d]), want.out[d],
                            1e-6 * std::fabs(want.out[d]) + 1e-9);
            }
        }
    }
}

// 64 keys, one 2^12 above the others: these are light. Of a row whose keys are all alike, none is.
TEST(Reference, LightMassByHand) {
    Random random(52);
    HeadInputs x = normal_head(random, 1, 128, 1, 4);
    x.softmax_scale = static_cast<float>(std::log(2.0));
    x.q = {1};
    std::fill(x.k.begin(), x.k.end(), 0.0f);
    EXPECT_EQ(reference(x, {0}).light[0], 0.0f);
    x.k[70] = 12;  // only keys of its own 64 are light beside it
    EXPECT_NEAR(static_cast<double>(reference(x, {0}).light[0]), 63.0 / (127 + 4096), 1e-6);
    x.k[70] = 10.99f;
    EXPECT_EQ(reference(x, {0}).light[0], 0.0f);
}

TEST(Reference, NotFinite) {
    Random random(53);
    for (const std::int64_t j : {0, 70, 129}) {
        for (const float poison : {kNaN, kInf, -kInf}) {
            HeadInputs x = normal_head(random, 2, 130, 3, 4);
            x.causal = true;
            x.q = {1, 1, 1, 1, 1, 1};
            x.k[static_cast<std::size_t>(j * 3)] = poison;
            const Rows got = reference(x, {0, 1});  // row 0 sees keys 0..128
            for (std::size_t i = 0; i < 2; i++) {
                const bool seen = j <= 128 + static_cast<std::int64_t>(i),
                           minus = poison == -kInf;  // -inf is a key of weight 0
                EXPECT_EQ(std::isnan(got.out[i * 4]), seen && !minus) << j << " " << poison;
                EXPECT_EQ(std::isfinite(got.lse[i]), !seen || minus) << j << " " << poison;
            }
        }
    }
}

// A row all of whose keys are NaN is NaN, and no row without keys.
TEST(Reference, AllKeysNaN) {
    Random random(54);
    for (const std::int64_t k_len : {1, 64, 100}) {
        HeadInputs x = normal_head(random, 1, k_len, 3, 4);
        std::fill(x.k.begin(), x.k.end(), kNaN);
        const Rows got = reference(x, {0});
        EXPECT_TRUE(std::isnan(got.out[0]) && std::isnan(got.lse[0])) << k_len;
    }
}

TEST(StoreRow, ConvertsAndKeepsToItsView) {
    const std::vector<float> values = {0, -0.0f, 1, 1.00390625f, 65504, 1e30f, -kInf, kNaN};
    for (const quatt_dtype dtype : {QUATT_F32, QUATT_BF16, QUATT_F16}) {
        const std::size_t size = dtype == QUATT_F32 ? 4 : 2;
        std::vector<std::byte> memory(size * 200, std::byte{0xEE});
        std::vector<float> lse(20, 7.0f), light(20, 7.0f);
        const HeadOutput to{.out = memory.data() + 1,  // element alignment is not asked for inside
                            .dtype = dtype,
                            .token_stride = 40,
                            .channel_stride = 3,
                            .channels = 8,
                            .lse = lse.data(),
                            .lse_stride = 5,
                            .light_mass = light.data(),
                            .light_stride = 4};
        store_row(to, 2, values.data(), 1.5f);
        zero_row(to, 3);
        std::vector<bool> touched(memory.size(), false);
        for (std::size_t row = 2; row < 4; row++) {
            for (std::size_t d = 0; d < 8; d++) {
                const std::size_t at = 1 + (row * 40 + d * 3) * size;
                std::fill(touched.begin() + static_cast<std::ptrdiff_t>(at),
                          touched.begin() + static_cast<std::ptrdiff_t>(at + size), true);
                double y = 0;
                if (dtype == QUATT_F32) {
                    float f = 0;
                    std::memcpy(&f, memory.data() + at, 4);
                    y = static_cast<double>(f);
                } else {
                    std::uint16_t c = 0;
                    std::memcpy(&c, memory.data() + at, 2);
                    y = dtype == QUATT_BF16 ? oracle::decode_bf16(c) : oracle::decode_f16(c);
                }
                const double x = row == 3 ? 0 : static_cast<double>(values[d]);
                const double want =
                    dtype == QUATT_F32
                        ? x
                        : oracle::nearest(dtype == QUATT_BF16 ? oracle::kBf16 : oracle::kF16, x);
                EXPECT_TRUE(std::isnan(want) ? std::isnan(y)
                                             : y == want && std::signbit(y) == std::signbit(want))
                    << y << " for " << x;
            }
        }
        for (std::size_t i = 0; i < memory.size(); i++) {
            EXPECT_TRUE(touched[i] || memory[i] == std::byte{0xEE}) << i;
        }
        EXPECT_EQ(lse[10], 1.5f);
        EXPECT_EQ(lse[15], -kInf);
        EXPECT_EQ(light[8], 7.0f);
        EXPECT_EQ(light[12], 0.0f);
    }
}

}  // namespace
}  // namespace quatt::recipe

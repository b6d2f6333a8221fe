// quatt_convert against the formats (tests/formats holds those against tables), and what it
// refuses.
#include <gtest/gtest.h>
#include <quatt/quatt.h>

#include <bit>
#include <cmath>
#include <vector>

#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "support/attention.hpp"

namespace quatt::test {
namespace {

std::vector<float> many_values() {
    std::vector<float> values = {0.0f,
                                 -0.0f,
                                 1.0f,
                                 -1.0f,
                                 448.0f,
                                 449.0f,
                                 464.0f,
                                 465.0f,
                                 1e30f,
                                 -1e30f,
                                 65504.0f,
                                 65520.0f,
                                 1e-8f,
                                 5.9604645e-8f,
                                 2e-3f,
                                 1e-45f,
                                 std::numeric_limits<float>::infinity(),
                                 -std::numeric_limits<float>::infinity(),
                                 std::nanf("")};
    Random random(9);
    for (int i = 0; i < 20000; i++) {
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.bits())));
        values.push_back(static_cast<float>(random.normal() * 100));
    }
    return values;
}

// NaN has many patterns; elsewhere the bits must agree.
void expect_same(float got, float want, float from) {
    if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << from;
    } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << from;
    }
}

TEST(Convert, FollowsTheFormats) {
    const std::vector<float> values = many_values();
    const auto n = static_cast<std::int64_t>(values.size());
    std::vector<std::uint16_t> half(values.size());
    std::vector<std::uint8_t> byte(values.size());
    std::vector<float> back(values.size());

    ASSERT_EQ(quatt_convert(half.data(), QUATT_BF16, values.data(), QUATT_F32, n), QUATT_OK);
    ASSERT_EQ(quatt_convert(back.data(), QUATT_F32, half.data(), QUATT_BF16, n), QUATT_OK);
    for (std::size_t i = 0; i < values.size(); i++) {
        EXPECT_EQ(half[i], formats::Bf16::encode(values[i])) << values[i];
        expect_same(back[i], formats::Bf16::decode(half[i]), values[i]);
        expect_same(back[i], static_cast<float>(decode(QUATT_BF16, half[i])), values[i]);
    }
    ASSERT_EQ(quatt_convert(half.data(), QUATT_F16, values.data(), QUATT_F32, n), QUATT_OK);
    ASSERT_EQ(quatt_convert(back.data(), QUATT_F32, half.data(), QUATT_F16, n), QUATT_OK);
    for (std::size_t i = 0; i < values.size(); i++) {
        EXPECT_EQ(half[i], formats::F16::encode(values[i])) << values[i];
        expect_same(back[i], static_cast<float>(decode(QUATT_F16, half[i])), values[i]);
    }
    ASSERT_EQ(quatt_convert(byte.data(), QUATT_E4M3, values.data(), QUATT_F32, n), QUATT_OK);
    ASSERT_EQ(quatt_convert(back.data(), QUATT_F32, byte.data(), QUATT_E4M3, n), QUATT_OK);
    for (std::size_t i = 0; i < values.size(); i++) {
        EXPECT_EQ(byte[i], formats::E4m3::encode(values[i])) << values[i];
        expect_same(back[i], static_cast<float>(decode(QUATT_E4M3, byte[i])), values[i]);
        if (std::isfinite(values[i])) {
            EXPECT_LE(std::fabs(back[i]), 448.0f) << "saturates";
        }
    }
    ASSERT_EQ(quatt_convert(back.data(), QUATT_F32, values.data(), QUATT_F32, n), QUATT_OK);
    for (std::size_t i = 0; i < values.size(); i++) {
        expect_same(back[i], values[i], values[i]);
    }
}

// Through float, which holds every value of the narrower ones: rounded once.
TEST(Convert, BetweenNarrowFormats) {
    std::vector<std::uint8_t> all(256);
    for (std::size_t i = 0; i < all.size(); i++) {
        all[i] = static_cast<std::uint8_t>(i);
    }
    for (const quatt_dtype by : {QUATT_BF16, QUATT_F16, QUATT_F32}) {
        std::vector<std::uint8_t> wide(256 * 4), back(256);
        ASSERT_EQ(quatt_convert(wide.data(), by, all.data(), QUATT_E4M3, 256), QUATT_OK);
        ASSERT_EQ(quatt_convert(back.data(), QUATT_E4M3, wide.data(), by, 256), QUATT_OK);
        for (std::size_t i = 0; i < 256; i++) {
            EXPECT_EQ(back[i] & 0x7F, i & 0x7F) << i << " by " << quatt_dtype_name(by);
        }
    }
    const std::uint16_t bf16 = formats::Bf16::encode(300.0f);
    std::uint16_t f16 = 0;
    ASSERT_EQ(quatt_convert(&f16, QUATT_F16, &bf16, QUATT_BF16, 1), QUATT_OK);
    EXPECT_EQ(decode(QUATT_F16, f16), decode(QUATT_BF16, bf16));
}

TEST(Convert, RefusesByName) {
    float x[2] = {1, 2};
    const auto refused = [](quatt_status s, const std::string& part) {
        EXPECT_EQ(s, QUATT_INVALID_ARGUMENT);
        EXPECT_NE(std::string(quatt_last_error()).find(part), std::string::npos)
            << quatt_last_error();
    };
    for (const quatt_dtype d : std::vector<quatt_dtype>{QUATT_NONE, QUATT_I32, -1, 6, 1 << 20}) {
        refused(quatt_convert(x, d, x, QUATT_F32, 1), "to_dtype is ");
        refused(quatt_convert(x, QUATT_F32, x, d, 1), "from_dtype is ");
        refused(quatt_convert(x, d, x, QUATT_F32, 0), "f32, bf16, f16 or e4m3");
    }
    refused(quatt_convert(x, QUATT_F32, x, QUATT_F32, -1), "count is -1; it must be >= 0");
    EXPECT_EQ(quatt_convert(nullptr, QUATT_F32, nullptr, QUATT_F32, 0), QUATT_OK);
    EXPECT_EQ(x[0], 1);
}

TEST(DTypes, HaveNamesAndSizes) {
    for (const auto& [dtype, name, bytes] : {std::tuple{QUATT_NONE, "none", 0},
                                             {QUATT_F32, "f32", 4},
                                             {QUATT_BF16, "bf16", 2},
                                             {QUATT_F16, "f16", 2},
                                             {QUATT_E4M3, "e4m3", 1},
                                             {QUATT_I32, "i32", 4}}) {
        EXPECT_STREQ(quatt_dtype_name(dtype), name);
        EXPECT_EQ(quatt_dtype_bytes(dtype), static_cast<std::size_t>(bytes));
    }
    EXPECT_STREQ(quatt_dtype_name(99), "unknown dtype");
    EXPECT_EQ(quatt_dtype_bytes(-3), 0u);
}

TEST(Contiguous, FillsStridesOfAnyExtents) {
    const std::int64_t extents[4] = {2, 0, 3, 4};
    const quatt_tensor t = quatt_tensor_contiguous(nullptr, QUATT_F16, 4, extents);
    EXPECT_EQ(t.rank, 4);
    EXPECT_EQ(t.stride[3], 1);
    EXPECT_EQ(t.stride[2], 4);
    EXPECT_EQ(t.stride[1], 12);
    const std::int64_t huge[4] = {std::int64_t{1} << 40, std::int64_t{1} << 40,
                                  std::int64_t{1} << 40, -5};
    const quatt_tensor h = quatt_tensor_contiguous(nullptr, QUATT_F16, 4, huge);
    EXPECT_EQ(h.stride[0], std::numeric_limits<std::int64_t>::max()) << "saturates";
    EXPECT_EQ(quatt_tensor_contiguous(nullptr, QUATT_F32, 0, nullptr).rank, 0);
    EXPECT_EQ(quatt_tensor_contiguous(nullptr, QUATT_F32, -2, nullptr).rank, -2);
}

}  // namespace
}  // namespace quatt::test

#include "convert.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace quatt::tools {
namespace {

// The values of a format's finite codes, from the definition of a float.
double value_of(std::uint32_t code, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>(code >> fraction_bits);
    const auto fraction = static_cast<double>(code & ((1u << fraction_bits) - 1));
    const double unit = std::ldexp(1.0, -fraction_bits);
    return exponent == 0 ? std::ldexp(fraction * unit, 1 - bias)
                         : std::ldexp(1.0 + fraction * unit, exponent - bias);
}

// Every finite code decodes to its value and encodes to itself; every midpoint goes to the even
// neighbour, and the floats beside it to the near one.
template <class Format>
void check_format(int exponent_bits, int fraction_bits, std::uint32_t largest) {
    const std::uint32_t sign = 1u << (exponent_bits + fraction_bits);
    for (std::uint32_t code = 0; code <= largest; ++code) {
        const double value = value_of(code, exponent_bits, fraction_bits);
        ASSERT_EQ(double{Format::decode(code)}, value) << code;
        ASSERT_EQ(double{Format::decode(code | sign)}, -value) << code;
        ASSERT_EQ(Format::encode(static_cast<float>(value)), code);
        ASSERT_EQ(Format::encode(-static_cast<float>(value)), code | sign);
        if (code < largest) {
            const double next = value_of(code + 1, exponent_bits, fraction_bits);
            const auto middle = static_cast<float>((value + next) / 2);
            constexpr float kMax = std::numeric_limits<float>::max();
            ASSERT_EQ(Format::encode(middle), code + code % 2) << code;
            ASSERT_EQ(Format::encode(std::nextafter(middle, 0.0f)), code);
            ASSERT_EQ(Format::encode(std::nextafter(middle, kMax)), code + 1);
        }
    }
}

TEST(Convert, Bf16) {
    check_format<Bf16>(8, 7, 0x7F7F);
    EXPECT_EQ(Bf16::encode(std::numeric_limits<float>::max()), 0x7F80u);
    EXPECT_EQ(Bf16::encode(-std::numeric_limits<float>::infinity()), 0xFF80u);
    EXPECT_EQ(Bf16::decode(0xFF80), -std::numeric_limits<float>::infinity());
    EXPECT_EQ(Bf16::encode(std::numeric_limits<float>::quiet_NaN()), 0x7FC0u);
    EXPECT_TRUE(std::isnan(Bf16::decode(0x7F81)));
}

TEST(Convert, F16) {
    check_format<F16>(5, 10, 0x7BFF);
    EXPECT_EQ(F16::encode(65519.0f), 0x7BFFu);
    EXPECT_EQ(F16::encode(65520.0f), 0x7C00u);
    EXPECT_EQ(F16::encode(1e-30f), 0u);
    EXPECT_EQ(F16::decode(0x7C00), std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(F16::decode(0xFE00)));
    EXPECT_EQ(F16::encode(std::numeric_limits<float>::quiet_NaN()), 0x7E00u);
}

TEST(Convert, E4m3) {
    check_format<E4m3>(4, 3, 0x7E);
    EXPECT_EQ(E4m3::encode(1e9f), 0x7Eu);
    EXPECT_EQ(E4m3::encode(-std::numeric_limits<float>::infinity()), 0xFEu);
    EXPECT_EQ(E4m3::encode(std::numeric_limits<float>::quiet_NaN()), 0x7Fu);
    EXPECT_TRUE(std::isnan(E4m3::decode(0x7F)));
    EXPECT_TRUE(std::isnan(E4m3::decode(0xFF)));
}

TEST(Convert, TensorsOfEachType) {
    const std::vector<float> values = {0.0f, -1.5f, 448.0f, 0.25f};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16, Dtype::kF8E4M3}) {
        std::vector<std::byte> bytes = from_floats(dtype, values);
        ASSERT_EQ(bytes.size() * 8, values.size() * static_cast<std::size_t>(dtype_bits(dtype)));
        EXPECT_EQ(to_floats(dtype, bytes), values);
        // A file does not promise alignment.
        bytes.insert(bytes.begin(), std::byte{0});
        EXPECT_EQ(to_floats(dtype, std::span(bytes).subspan(1)), values);
    }
}

TEST(Convert, RefusesOtherTypes) {
    const std::vector<std::byte> bytes(8);
    EXPECT_THROW((void)to_floats(Dtype::kI32, bytes), Error);
    EXPECT_THROW((void)from_floats(Dtype::kF4, std::vector<float>(2)), Error);
    // Nothing to convert is no reason to accept it.
    EXPECT_THROW((void)to_floats(Dtype::kI64, {}), Error);
}

}  // namespace
}  // namespace quatt::tools

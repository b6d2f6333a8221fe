// The number formats against values and roundings made with ml_dtypes (format_tables.inc).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/e5m2.hpp"
#include "formats/f16.hpp"
#include "formats/int8.hpp"
#include "formats/tables.hpp"
#include "formats/ue4m3.hpp"
#include "formats/ue8m0.hpp"

namespace quatt::formats {
namespace {

#include "format_tables.inc"

using Words = std::span<const std::uint32_t>;

float from_bits(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

std::uint32_t to_bits(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

// NaN as the tables write it: its payload and sign are nobody's business.
std::uint32_t canonical_bits(float x) {
    return std::isnan(x) ? 0x7FC0'0000u : to_bits(x);
}

template <class Format>
std::uint32_t code_bits(typename Format::Code code) {
    return static_cast<std::make_unsigned_t<typename Format::Code>>(code);
}

template <class Format>
std::uint32_t encode_bits(float x) {
    return code_bits<Format>(Format::encode(x));
}

template <class Format>
float decode_bits(std::uint32_t code) {
    return Format::decode(static_cast<typename Format::Code>(code));
}

// Expands the runs of format_tables.inc.
std::vector<std::uint32_t> expand(Words runs, std::size_t count) {
    std::vector<std::uint32_t> values;
    values.reserve(count);
    for (std::size_t r = 0; r < runs.size(); r += 3) {
        EXPECT_EQ(runs[r], values.size());
        const std::size_t end = r + 3 < runs.size() ? runs[r + 3] : count;
        std::uint32_t value = runs[r + 1];
        for (; values.size() < end; value += runs[r + 2])
            values.push_back(value);
    }
    return values;
}

// Runs `check` with subnormal fp32 operands and results flushed to zero, where that can be asked
// for.
template <class Check>
void with_flush_to_zero([[maybe_unused]] Check check) {
#if defined(__SSE2__)
    constexpr unsigned int kFlushToZero = 0x8000;
    constexpr unsigned int kDenormalsAreZero = 0x0040;
    const unsigned int before = _mm_getcsr();
    _mm_setcsr(before | kFlushToZero | kDenormalsAreZero);
    check();
    _mm_setcsr(before);
#else
    GTEST_SKIP() << "flush-to-zero is tested on x86 only";
#endif
}

// Rounds by searching the decoded values: slow, and nothing like the code that it checks.
template <class Format>
class NearestCode {
public:
    explicit NearestCode(std::uint32_t codes) {
        constexpr bool kIsInt8 = std::is_same_v<Format, Int8>;
        for (std::uint32_t code = 0; code < codes; ++code) {
            const double value = decode_bits<Format>(code);
            const bool is_negative_zero = value == 0 && std::signbit(value);
            if (!std::isfinite(value) || is_negative_zero || (kIsInt8 && value < -127)) continue;
            values_.emplace_back(value, code);
        }
        std::sort(values_.begin(), values_.end());
    }

    // The code for a number x within the format's finite range; outside, the nearest end.
    [[nodiscard]] std::uint32_t operator()(double x) const {
        const auto above = std::lower_bound(values_.begin(), values_.end(),
                                            std::pair<double, std::uint32_t>{x, 0});
        if (above == values_.begin()) return above->second;
        const auto below = above - 1;
        if (above == values_.end()) return below->second;
        const double up = above->first - x;
        const double down = x - below->first;
        if (up != down) return up < down ? above->second : below->second;
        if constexpr (std::is_same_v<Format, Ue8m0>) return above->second;
        return above->second % 2 == 0 ? above->second : below->second;
    }

private:
    std::vector<std::pair<double, std::uint32_t>> values_;
};

template <class Format>
struct Tables;

#define QUATT_TEST_TABLES(Format)                                             \
    template <>                                                               \
    struct Tables<Format> {                                                   \
        static constexpr Words kDecode = k##Format##Decode;                   \
        static constexpr Words kEncode = k##Format##Encode;                   \
        static constexpr Words kRandom = k##Format##Random;                   \
        static constexpr Words kRandomExponents = k##Format##RandomExponents; \
    }
QUATT_TEST_TABLES(E4m3);
QUATT_TEST_TABLES(E5m2);
QUATT_TEST_TABLES(E2m1);
QUATT_TEST_TABLES(Ue4m3);
QUATT_TEST_TABLES(Ue8m0);
QUATT_TEST_TABLES(Int8);
#undef QUATT_TEST_TABLES

#define QUATT_TEST_TABLES(Format)                                               \
    template <>                                                                 \
    struct Tables<Format> {                                                     \
        static constexpr Words kDecode = k##Format##DecodeRuns;                 \
        static constexpr Words kAtEven = k##Format##AtEvenRuns;                 \
        static constexpr Words kAtOdd = k##Format##AtOddRuns;                   \
        static constexpr Words kBelow = k##Format##BelowRuns;                   \
        static constexpr Words kAbove = k##Format##AboveRuns;                   \
        static constexpr Words kAtNegativeEven = k##Format##AtNegativeEvenRuns; \
        static constexpr Words kAtNegativeOdd = k##Format##AtNegativeOddRuns;   \
        static constexpr Words kBelowNegative = k##Format##BelowNegativeRuns;   \
        static constexpr Words kAboveNegative = k##Format##AboveNegativeRuns;   \
        static constexpr Words kRandom = k##Format##Random;                     \
        static constexpr Words kRandomExponents = k##Format##RandomExponents;   \
    }
QUATT_TEST_TABLES(Bf16);
QUATT_TEST_TABLES(F16);
#undef QUATT_TEST_TABLES

template <class Format>
class FormatsOfAByte : public testing::Test {};
using ByteFormats = testing::Types<E4m3, E5m2, E2m1, Ue4m3, Ue8m0, Int8>;
TYPED_TEST_SUITE(FormatsOfAByte, ByteFormats);

template <class Format>
class FormatsOfAWord : public testing::Test {};
using WordFormats = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(FormatsOfAWord, WordFormats);

template <class Format>
class AllFormats : public testing::Test {};
using EveryFormat = testing::Types<Bf16, F16, E4m3, E5m2, E2m1, Ue4m3, Ue8m0, Int8>;
TYPED_TEST_SUITE(AllFormats, EveryFormat);

TYPED_TEST(FormatsOfAByte, DecodesEveryCode) {
    constexpr Words kDecode = Tables<TypeParam>::kDecode;
    const auto check = [&] {
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            // What lies above a format's own bits is ignored: the table is shorter then.
            EXPECT_EQ(canonical_bits(decode_bits<TypeParam>(byte)), kDecode[byte % kDecode.size()])
                << "code " << byte;
        }
    };
    check();
    with_flush_to_zero(check);
}

TYPED_TEST(FormatsOfAByte, EncodesEveryValueMidpointAndEndWithTheirNeighbours) {
    constexpr Words kEncode = Tables<TypeParam>::kEncode;
    const auto check = [&] {
        for (std::size_t i = 0; i < kEncode.size(); i += 2) {
            EXPECT_EQ(encode_bits<TypeParam>(from_bits(kEncode[i])), kEncode[i + 1])
                << "fp32 bits " << std::hex << kEncode[i];
        }
    };
    check();
    with_flush_to_zero(check);
}

TYPED_TEST(FormatsOfAByte, EncodeGivesDecodedCodesBack) {
    EXPECT_EQ(TypeParam::decode(TypeParam::encode(TypeParam::kMax)), TypeParam::kMax);
    for (std::uint32_t code = 0; code < Tables<TypeParam>::kDecode.size(); ++code) {
        const float value = decode_bits<TypeParam>(code);
        if (!std::isfinite(value) || (std::is_same_v<TypeParam, Int8> && value < -127)) continue;
        EXPECT_EQ(encode_bits<TypeParam>(value), code);
    }
}

TYPED_TEST(FormatsOfAByte, DecodeTableHoldsWhatDecodeGives) {
    constexpr auto kTable = decode_table<TypeParam>();
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t expected = canonical_bits(decode_bits<TypeParam>(byte));
        EXPECT_EQ(canonical_bits(kTable[byte]), expected);
        EXPECT_EQ(canonical_bits(kDecodeTable<TypeParam>[byte]), expected);
    }
}

TYPED_TEST(FormatsOfAWord, DecodesEveryCode) {
    const std::vector<std::uint32_t> expected = expand(Tables<TypeParam>::kDecode, 65536);
    const auto check = [&] {
        for (std::uint32_t code = 0; code < 65536; ++code) {
            ASSERT_EQ(canonical_bits(decode_bits<TypeParam>(code)), expected[code])
                << "code " << code;
        }
    };
    check();
    with_flush_to_zero(check);
}

TYPED_TEST(FormatsOfAWord, EncodeGivesDecodedCodesBack) {
    for (std::uint32_t code = 0; code < 65536; ++code) {
        const float value = decode_bits<TypeParam>(code);
        const std::uint32_t expected = std::isnan(value) ? std::uint32_t{TypeParam::kNan} : code;
        ASSERT_EQ(encode_bits<TypeParam>(value), expected);
    }
}

TYPED_TEST(FormatsOfAWord, EncodesEveryMidpointAndItsNeighbours) {
    using T = Tables<TypeParam>;
    const std::vector<std::uint32_t> decoded = expand(T::kDecode, 65536);
    const std::size_t count = TypeParam::kInf;
    const std::size_t evens = (count + 1) / 2;
    const std::size_t odds = count / 2;
    for (const float sign : {1.0f, -1.0f}) {
        const bool negative = sign < 0;
        const auto at_even = expand(negative ? T::kAtNegativeEven : T::kAtEven, evens);
        const auto at_odd = expand(negative ? T::kAtNegativeOdd : T::kAtOdd, odds);
        const auto below = expand(negative ? T::kBelowNegative : T::kBelow, count);
        const auto above = expand(negative ? T::kAboveNegative : T::kAbove, count);
        const std::uint32_t sign_bit = negative ? 0x8000'0000u : 0u;
        for (std::size_t code = 0; code < count; ++code) {
            // The last code's step is that of the code before it: past it lies infinity.
            const std::size_t lower = std::min(code, count - 2);
            const double step = static_cast<double>(from_bits(decoded[lower + 1])) -
                                static_cast<double>(from_bits(decoded[lower]));
            const std::uint32_t bits =
                to_bits(static_cast<float>(from_bits(decoded[code]) + step / 2));
            const std::uint32_t expected = code % 2 == 0 ? at_even[code / 2] : at_odd[code / 2];
            ASSERT_EQ(encode_bits<TypeParam>(from_bits(bits | sign_bit)), expected) << code;
            ASSERT_EQ(encode_bits<TypeParam>(from_bits((bits - 1) | sign_bit)), below[code]);
            ASSERT_EQ(encode_bits<TypeParam>(from_bits((bits + 1) | sign_bit)), above[code]);
        }
    }
}

TYPED_TEST(FormatsOfAWord, KeepsIeeeSpecialsAndOverflowsToInfinity) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr std::uint32_t kInf = TypeParam::kInf;
    EXPECT_EQ(encode_bits<TypeParam>(0.0f), 0u);
    EXPECT_EQ(encode_bits<TypeParam>(-0.0f), 0x8000u);
    EXPECT_EQ(encode_bits<TypeParam>(kInfinity), kInf);
    EXPECT_EQ(encode_bits<TypeParam>(-kInfinity), kInf | 0x8000u);
    EXPECT_EQ(encode_bits<TypeParam>(std::numeric_limits<float>::max()), kInf);
    EXPECT_EQ(encode_bits<TypeParam>(std::numeric_limits<float>::lowest()), kInf | 0x8000u);
    EXPECT_EQ(encode_bits<TypeParam>(TypeParam::kMax), kInf - 1);
    EXPECT_EQ(encode_bits<TypeParam>(std::numeric_limits<float>::denorm_min()), 0u);
    for (const std::uint32_t nan : {0x7FC0'0000u, 0xFFC0'0000u, 0x7F80'0001u, 0xFF80'0001u,
                                    0x7FFF'FFFFu, 0xFFFF'FFFFu, 0x7F80'8000u}) {
        EXPECT_EQ(encode_bits<TypeParam>(from_bits(nan)), TypeParam::kNan) << std::hex << nan;
    }
    EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::kNan)));
}

TEST(FormatsOfAWordOnTheirOwn, F16OverflowsFrom65520) {
    EXPECT_EQ(F16::encode(65519.996f), 0x7BFF);
    EXPECT_EQ(F16::encode(65520.0f), F16::kInf);
    EXPECT_EQ(F16::encode(-65520.0f), F16::kInf | 0x8000);
}

TYPED_TEST(AllFormats, EncodesRandomFloats) {
    using T = Tables<TypeParam>;
    const std::uint32_t low = T::kRandomExponents[0];
    const std::uint32_t spread = T::kRandomExponents[1] - low + 1;
    constexpr int kCodeBits = std::is_same_v<TypeParam, Ue4m3> ? 7 : TypeParam::kBits;
    const NearestCode<TypeParam> nearest(1u << kCodeBits);
    constexpr bool kIsSigned =
        !std::is_same_v<TypeParam, Ue4m3> && !std::is_same_v<TypeParam, Ue8m0>;
    std::mt19937 generator(kRandomSeed);
    ASSERT_EQ(T::kRandom.size(), kRandomBlocks);
    for (std::uint32_t block = 0; block < kRandomBlocks; ++block) {
        std::uint32_t sum = 0;
        for (std::uint32_t i = 0; i < kRandomBlock; ++i) {
            auto bits = static_cast<std::uint32_t>(generator());
            if (i % 2 == 1) {
                const std::uint32_t exponent = low + ((bits >> 23) & 0xFFu) % spread;
                bits = (bits & 0x807F'FFFFu) | (exponent << 23);
            }
            const float x = from_bits(bits);
            const std::uint32_t code = encode_bits<TypeParam>(x);
            sum += code * (2 * i + 1) * 2654435761u;

            // The sums tell only that a block differs from ml_dtypes; this tells which float.
            const bool in_range = std::abs(x) <= TypeParam::kMax && (kIsSigned || x >= 0);
            if (!in_range) continue;
            const std::uint32_t expected = nearest(x);
            const bool is_zero = decode_bits<TypeParam>(expected) == 0;
            const float value = decode_bits<TypeParam>(code);
            ASSERT_TRUE(code == expected || (is_zero && value == 0 && std::signbit(x)))
                << "fp32 bits " << std::hex << bits << ": code " << code << ", not " << expected;
        }
        ASSERT_EQ(sum, T::kRandom[block]) << "block " << block;
    }
}

TEST(E2m1Pairs, KeepTheEvenElementInTheLowNibble) {
    EXPECT_EQ(E2m1::pack(0x1, 0xF), 0xF1);
    for (unsigned int even = 0; even < 256; ++even) {
        for (unsigned int odd = 0; odd < 256; ++odd) {
            const std::uint8_t byte =
                E2m1::pack(static_cast<std::uint8_t>(even), static_cast<std::uint8_t>(odd));
            ASSERT_EQ(E2m1::unpack(byte, 0), even & 0xF);
            ASSERT_EQ(E2m1::unpack(byte, 1), odd & 0xF);
            ASSERT_EQ(E2m1::unpack(byte, 1'000'000'000'001), odd & 0xF);
        }
    }
}

// Constant expressions: values, ties, both ends, and NaN, which a compiler may refuse to compute.
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr float kHuge = std::numeric_limits<float>::max();

static_assert(Bf16::encode(1.0f) == 0x3F80 && Bf16::decode(0x3F80) == 1.0f);
static_assert(Bf16::encode(kInfF) == Bf16::kInf && Bf16::encode(kNanF) == Bf16::kNan);
static_assert(Bf16::encode(kHuge) == Bf16::kInf && Bf16::decode(0x7F7F) == Bf16::kMax);
static_assert(F16::encode(-1.5f) == 0xBE00 && F16::decode(0xBE00) == -1.5f);
static_assert(F16::encode(kHuge) == F16::kInf && F16::encode(kNanF) == F16::kNan);
static_assert(F16::decode(1) == 0x1p-24f && F16::decode(F16::kInf) == kInfF);
static_assert(E4m3::encode(1.0f) == 0x38 && E4m3::decode(0x38) == 1.0f);
static_assert(E4m3::encode(-kInfF) == 0xFE && E4m3::encode(kNanF) == E4m3::kNan);
static_assert(E4m3::encode(0x1p-10f) == 0 && E4m3::encode(0x1.8p-9f) == 2);
static_assert(E4m3::decode(E4m3::kNan) != E4m3::decode(E4m3::kNan));
static_assert(E5m2::encode(kHuge) == 0x7B && E5m2::encode(kNanF) == E5m2::kNan);
static_assert(E5m2::decode(E5m2::kInf) == kInfF && E5m2::decode(0x7B) == E5m2::kMax);
static_assert(E2m1::encode(5.0f) == 6 && E2m1::encode(-kInfF) == 0xF && E2m1::encode(kNanF) == 0);
static_assert(E2m1::decode(0xF) == -6.0f && E2m1::unpack(E2m1::pack(3, 9), 1) == 9);
static_assert(Ue4m3::encode(-1.0f) == 0 && Ue4m3::encode(kHuge) == 0x7E);
static_assert(Ue4m3::encode(kNanF) == Ue4m3::kNan && Ue4m3::decode(0xB8) == 1.0f);
static_assert(Ue8m0::encode(1.5f) == 0x80 && Ue8m0::encode(0.0f) == 0 && Ue8m0::encode(-0.0f) == 0);
static_assert(Ue8m0::encode(kInfF) == 0xFE && Ue8m0::encode(-1.0f) == Ue8m0::kNan);
static_assert(Ue8m0::decode(0) == 0x1p-127f && Ue8m0::decode(0xFE) == Ue8m0::kMax);
static_assert(Int8::encode(2.5f) == 2 && Int8::encode(-3.5f) == -4 && Int8::encode(kNanF) == 0);
static_assert(Int8::encode(-kInfF) == -127 && Int8::decode(-128) == -128.0f);
static_assert(kDecodeTable<E4m3>[0x7E] == E4m3::kMax && kDecodeTable<Int8>[0x81] == -127.0f);

}  // namespace
}  // namespace quatt::formats

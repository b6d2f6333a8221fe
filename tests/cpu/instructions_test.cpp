// The instructions of cpu/instructions.hpp beside scalar arithmetic that shares nothing with them,
// in software and, where the processor has them, native; and the products made of them, at their
// limits.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "cpu/bodies.hpp"
#include "cpu/kernels.hpp"
#include "cpu/level.hpp"
#include "cpu/software_levels.hpp"
#include "support/attention.hpp"

namespace quatt::test {
namespace {

using std::int32_t;
using std::uint16_t;
using std::uint32_t;

// ---- scalar arithmetic --------------------------------------------------------------------------

bool is_nan16(uint16_t x) {
    return (x & 0x7FFF) > 0x7C00;
}
bool is_inf16(uint16_t x) {
    return (x & 0x7FFF) == 0x7C00;
}

// A finite fp16 number as a multiple of 2^-24.
std::int64_t units_of(uint16_t x) {
    const int e = x >> 10 & 31;
    const std::int64_t m = x & 0x3FF, n = e == 0 ? m : (m | 0x400) << (e - 1);
    return (x & 0x8000) != 0 ? -n : n;
}

// a * b + c in fp16, rounded once, by integers: every number is a multiple of 2^-48.
uint16_t fma16(uint16_t a, uint16_t b, uint16_t c) {
    constexpr uint16_t kNaN = 0x7E00;
    const uint16_t sign = (a ^ b) & 0x8000;  // of the product
    if (is_nan16(a) || is_nan16(b) || is_nan16(c)) {
        return kNaN;
    }
    if (is_inf16(a) || is_inf16(b)) {
        const bool invalid =
            (a & 0x7FFF) == 0 || (b & 0x7FFF) == 0 || (is_inf16(c) && (c & 0x8000) != sign);
        return invalid ? kNaN : static_cast<uint16_t>(sign | 0x7C00);
    }
    if (is_inf16(c)) {
        return c;
    }
    __extension__ using Wide = __int128;
    const Wide product = Wide{units_of(a)} * units_of(b);
    const Wide exact = product + (Wide{units_of(c)} << 24);
    if (exact == 0) {  // both are 0, or cancel: minus only where both were
        const bool minus = product == 0 && units_of(c) == 0 && sign != 0 && (c & 0x8000) != 0;
        return minus ? 0x8000 : 0;
    }
    const uint16_t minus = exact < 0 ? 0x8000 : 0;
    const Wide magnitude = exact < 0 ? -exact : exact;
    // The last place is 2^-24 up to 2^-13, and doubles with each power of two from there.
    int place = 24;
    while ((magnitude >> place) >= 2048) {
        place++;
    }
    const Wide whole = magnitude >> place, rest = magnitude - (whole << place),
               half = Wide{1} << (place - 1);
    const bool up = rest > half || (rest == half && (whole & 1) != 0);
    const std::int64_t m = static_cast<std::int64_t>(whole) + (up ? 1 : 0);  // 2048: carries over
    const std::int64_t bits = m + (std::int64_t{place - 24} << 10);
    return static_cast<uint16_t>(minus | (bits >= 0x7C00 ? 0x7C00 : bits));
}

// fp32 FMA that takes subnormal operands for 0 and gives 0 for subnormal results. What is small is
// scaled up by 2^100, so that it is rounded as if exponents had no end.
float fma_flushed(float a, float b, float c) {
    const auto zeroed = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0 : x; };
    a = zeroed(a);
    b = zeroed(b);
    c = zeroed(c);
    const float plain = std::fma(a, b, c);
    if (!(std::fabs(plain) < 0x1p-60f)) {
        return plain;
    }
    // Below: c and the product are both small, or cancel and are still far from 2^127.
    const bool a_smaller = std::fabs(a) < std::fabs(b);
    const float scaled = std::fma(a_smaller ? std::ldexp(a, 100) : a,
                                  a_smaller ? b : std::ldexp(b, 100), std::ldexp(c, 100));
    if (!std::isfinite(scaled)) {
        return plain;
    }
    return std::fabs(scaled) < 0x1p-26f ? std::copysign(0.0f, scaled) : std::ldexp(scaled, -100);
}

float bf16(uint16_t x) {
    return std::bit_cast<float>(uint32_t{x} << 16);
}

// TDPBF16PS: c [16, 16] += a [16, 16 pairs] . b [16 pairs, 16]
void dot_bf16(const uint16_t* a, const uint16_t* b, float* c) {
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 16; n++) {
            float sum[2] = {};
            for (int k = 0; k < 16; k++) {
                for (int i = 0; i < 2; i++) {
                    sum[i] = fma_flushed(bf16(a[m * 32 + 2 * k + i]), bf16(b[k * 32 + 2 * n + i]),
                                         sum[i]);
                }
            }
            float& to = c[m * 16 + n];
            to = fma_flushed(1, fma_flushed(1, sum[0], sum[1]), to);
        }
    }
}

bool same(float a, float b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// ---- bodies -------------------------------------------------------------------------------------

constexpr std::array kBodies = {"software", "native"};

class Instruction : public testing::TestWithParam<const char*> {
protected:
    [[nodiscard]] static bool native() { return std::strcmp(GetParam(), "native") == 0; }
    [[nodiscard]] static const Fp16Body& fp16() { return native() ? kNativeFp16 : kSoftwareFp16; }
    [[nodiscard]] static const AmxBody& amx() { return native() ? kNativeAmx : kSoftwareAmx; }

    // Why a body cannot run here; empty: it can.
    [[nodiscard]] static std::string missing(const char* kernel) {
        const cpu::Level* level = software_level("cpu_avx512_fp16_software");
        for (const cpu::Level& row : cpu::kLevels) {
            level = native() && std::strcmp(row.kernel, kernel) == 0 ? &row : level;
        }
        return !level->supported()
                   ? "needs " + std::string(level->needs) + "; this CPU has " + quatt_cpu_features()
               : level->permission != nullptr ? level->permission()
                                              : "";
    }
};

INSTANTIATE_TEST_SUITE_P(Bodies, Instruction, testing::ValuesIn(kBodies),
                         [](const auto& tested) { return std::string(tested.param); });

#define QUATT_SKIP_WITHOUT(kernel)                             \
    if (const std::string no = missing(kernel); !no.empty()) { \
        GTEST_SKIP() << no;                                    \
    }

uint16_t fma_of(const Fp16Body& body, uint16_t a, uint16_t b, uint16_t c) {
    std::array<uint16_t, 32> x{}, y{}, z{}, d{};
    x.fill(a);
    y.fill(b);
    z.fill(c);
    body.fma(x.data(), y.data(), z.data(), d.data());
    for (const uint16_t lane : d) {
        EXPECT_EQ(lane, d[0]);
    }
    return d[0];
}

TEST_P(Instruction, Fp16RoundsTiesToEvenAndKeepsSubnormals) {
    QUATT_SKIP_WITHOUT("cpu_avx512_fp16");
    struct Known {
        uint16_t a, b, c, want;
    };
    constexpr uint16_t kOne = 0x3C00, kHalf = 0x3800, kInf16 = 0x7C00;
    for (const Known& k : std::initializer_list<Known>{
             {0x6800, kOne, kOne, 0x6800},      // 2048 + 1: a tie, to 2048
             {0x6801, kOne, kOne, 0x6802},      // 2050 + 1: a tie, to 2052
             {0x6800, kOne, 0x3C01, 0x6801},    // 2048 + 1.001: up
             {0x7BFF, kOne, 0x4C00, kInf16},    // 65504 + 16: a tie, to infinity
             {0x7BFF, kOne, 0x4BFF, 0x7BFF},    // 65504 + 15.99
             {0x0001, kHalf, 0x0000, 0x0000},   // half the least number: a tie, to 0
             {0x0003, kHalf, 0x0000, 0x0002},   // one and a half of it: a tie, to 2
             {0x8001, kHalf, 0x8000, 0x8000},   // minus 0
             {0x0001, kOne, 0x0001, 0x0002},    // subnormal operands and results
             {0x03FF, kOne, 0x0001, 0x0400},    // the least normal number
             {kInf16, 0x0000, kOne, 0x7E00},    // infinity times 0
             {kInf16, kOne, 0xFC00, 0x7E00},    // infinity minus infinity
             {0x7BFF, 0x7BFF, 0xFC00, 0xFC00},  // a product past fp16 is finite before the sum
         }) {
        const uint16_t got = fma_of(fp16(), k.a, k.b, k.c);
        EXPECT_EQ(fma16(k.a, k.b, k.c), k.want) << "the test's own arithmetic";
        EXPECT_TRUE(is_nan16(k.want) ? is_nan16(got) : got == k.want)
            << std::hex << k.a << " * " << k.b << " + " << k.c << " = " << got << ", not "
            << k.want;
    }
}

// All bits of three operands cannot be tried; all pairs of notable numbers with each other, and
// random bits, half of them with a sum near the product, where rounding is hard.
TEST_P(Instruction, Fp16IsScalarArithmetic) {
    QUATT_SKIP_WITHOUT("cpu_avx512_fp16");
    constexpr std::array<uint16_t, 22> kNotable = {
        0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x0401, 0x1400, 0x3800, 0x3BFF, 0x3C00,
        0x3C01, 0xBC00, 0x5FFF, 0x6800, 0x6801, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01};
    Random random(41);
    const auto check = [&](const std::array<uint16_t, 32>& a, const std::array<uint16_t, 32>& b,
                           const std::array<uint16_t, 32>& c) {
        std::array<uint16_t, 32> d{}, in_software{};
        fp16().fma(a.data(), b.data(), c.data(), d.data());
        kSoftwareFp16.fma(a.data(), b.data(), c.data(), in_software.data());
        for (std::size_t i = 0; i < 32; i++) {
            const uint16_t want = fma16(a[i], b[i], c[i]);
            ASSERT_TRUE(is_nan16(want) ? is_nan16(d[i]) : d[i] == want)
                << std::hex << a[i] << " * " << b[i] << " + " << c[i] << " = " << d[i] << ", not "
                << want;
            ASSERT_TRUE(is_nan16(want) || d[i] == in_software[i]);
        }
    };
    std::array<uint16_t, 32> a{}, b{}, c{};
    for (const uint16_t x : kNotable) {
        for (const uint16_t y : kNotable) {
            a.fill(x);
            b.fill(y);
            for (std::size_t i = 0; i < 32; i++) {
                c[i] = kNotable[i % kNotable.size()];
            }
            check(a, b, c);
        }
    }
    for (int n = 0; n < scaled(50000); n++) {
        for (std::size_t i = 0; i < 32; i++) {
            a[i] = static_cast<uint16_t>(random.bits());
            b[i] = static_cast<uint16_t>(random.bits());
            c[i] = static_cast<uint16_t>(random.bits());
            if (i % 2 == 0) {
                const auto near = static_cast<uint16_t>(random.in(0, 24) << 10);
                c[i] =
                    static_cast<uint16_t>((fma16(a[i], b[i], 0) ^ (random.bits() & 0x83FF)) - near);
            }
        }
        check(a, b, c);
    }
}

TEST_P(Instruction, TilesMoveRowsAndZero) {
    QUATT_SKIP_WITHOUT("cpu_amx");
    std::array<uint32_t, 16 * 20> from{}, to{};
    for (std::size_t i = 0; i < from.size(); i++) {
        from[i] = static_cast<uint32_t>(i * 2654435761u);
    }
    to.fill(7);
    amx().copy(from.data(), 80, to.data(), 64);
    for (std::size_t i = 0; i < 256; i++) {
        ASSERT_EQ(to[i], from[i / 16 * 20 + i % 16]);
    }
    EXPECT_EQ(to[256], 7u) << "past the rows";
    amx().copy(from.data(), 0, to.data(), 80);  // one row, 16 times
    for (std::size_t i = 0; i < 256; i++) {
        ASSERT_EQ(to[i / 16 * 20 + i % 16], from[i % 16]);
    }
    std::array<uint32_t, 256> some{};
    some.fill(9);
    amx().zero(some.data());
    EXPECT_EQ(some, (std::array<uint32_t, 256>{}));
}

TEST_P(Instruction, TileDotOfBytesIsExact) {
    QUATT_SKIP_WITHOUT("cpu_amx");
    Random random(43);
    for (int n = 0; n < scaled(200); n++) {
        std::array<std::uint8_t, 1024> a{};
        std::array<std::int8_t, 1024> b{};
        std::array<int32_t, 256> c{}, want{};
        for (std::size_t i = 0; i < 1024; i++) {
            a[i] = n == 0 ? 255 : static_cast<std::uint8_t>(random.bits());
            b[i] = n == 0 ? -128 : static_cast<std::int8_t>(random.bits());
        }
        for (std::size_t i = 0; i < 256; i++) {
            // They wrap: the first case from the least number down.
            c[i] = n == 0 ? INT32_MIN : static_cast<int32_t>(random.bits());
            std::int64_t sum = c[i];
            for (std::size_t k = 0; k < 64; k++) {
                sum += a[i / 16 * 64 + k] * b[k / 4 * 64 + i % 16 * 4 + k % 4];
            }
            want[i] = static_cast<int32_t>(static_cast<std::uint64_t>(sum));
        }
        amx().dot_bytes(a.data(), b.data(), c.data());
        ASSERT_EQ(c, want);
    }
}

TEST_P(Instruction, TileDotOfBf16FlushesAndRoundsAsTheManualSays) {
    QUATT_SKIP_WITHOUT("cpu_amx");
    // One product at a time, in the first pair of row and column 0.
    const auto one = [](uint16_t a, uint16_t b, float c) {
        std::array<uint16_t, 512> x{}, y{};
        std::array<float, 256> z{};
        x[0] = a;
        y[0] = b;
        z[0] = c;
        amx().dot_bf16(x.data(), y.data(), z.data());
        return z[0];
    };
    constexpr uint16_t kOne = 0x3F80, kLeast = 0x0080 /* 2^-126 */, kHalf = 0x3F00;
    EXPECT_EQ(one(kOne, kOne, 2), 3);
    EXPECT_EQ(one(0x007F, kOne, 1), 1) << "a subnormal operand is 0";
    EXPECT_TRUE(same(one(0x007F, 0x7F00, 0), 0)) << "before it is multiplied by 2^127";
    EXPECT_TRUE(same(one(kLeast, kHalf, 0), 0)) << "a subnormal result is 0";
    EXPECT_TRUE(same(one(kOne, 0, 0x1p-130f), 0)) << "a subnormal sum is 0";
    EXPECT_TRUE(same(one(kLeast, kOne, 0), 0x1p-126f));
    EXPECT_TRUE(same(one(0x80C0, kOne, 0x1p-126f), -0.0f)) << "-1.5 * 2^-126 + 2^-126";
    EXPECT_EQ(one(0x3F81, 0x3F81, 0x1p24f), 0x1p24f + 2) << "1.0157 beside 2^24: up from a tie";
    EXPECT_EQ(one(kOne, kOne, 0x1p24f), 0x1p24f) << "a tie, to even";
    EXPECT_TRUE(std::isnan(one(0x7F80, 0, 1))) << "infinity times 0";
    EXPECT_TRUE(std::isinf(one(0x7F7F, 0x7F7F, 1)));

    // 2^-126 less 2^-152 rounds to 2^-126 in 24 bits and stays; less 2^-150 it is a number of its
    // own with 24 bits, below the least normal one, and 0. The first products of two units are
    // summed.
    for (const auto& [less, want] : {std::pair{0x2680, 0x1p-126f}, std::pair{0x2780, 0.0f}}) {
        std::array<uint16_t, 512> x{}, y{};
        std::array<float, 256> z{};
        x[0] = kOne;
        y[0] = kLeast;
        x[2] = 0x8000 | 0x0C80;               // -2^-102
        y[32] = static_cast<uint16_t>(less);  // 2^-50 or 2^-48
        amx().dot_bf16(x.data(), y.data(), z.data());
        EXPECT_TRUE(same(z[0], want)) << z[0];
    }

    Random random(47);
    for (int n = 0; n < scaled(400); n++) {
        std::array<uint16_t, 512> a{}, b{};
        std::array<float, 256> c{}, want{}, in_software{};
        // Ranges of exponents: ordinary numbers; around the least normal one; any bits.
        const auto draw = [&] {
            const auto bits = static_cast<uint16_t>(random.bits());
            const int e = n % 3 == 0   ? static_cast<int>(random.in(120, 134))
                          : n % 3 == 1 ? static_cast<int>(random.in(0, 130))
                                       : static_cast<int>(random.in(0, 255));
            return static_cast<uint16_t>((bits & 0x807F) | e << 7);
        };
        for (std::size_t i = 0; i < 512; i++) {
            a[i] = draw();
            b[i] = draw();
        }
        for (std::size_t i = 0; i < 256; i++) {
            c[i] = want[i] = in_software[i] = bf16(draw());
        }
        dot_bf16(a.data(), b.data(), want.data());
        amx().dot_bf16(a.data(), b.data(), c.data());
        kSoftwareAmx.dot_bf16(a.data(), b.data(), in_software.data());
        for (std::size_t i = 0; i < 256; i++) {
            ASSERT_TRUE(same(c[i], want[i])) << "case " << n << ": " << c[i] << ", not " << want[i];
            ASSERT_TRUE(same(c[i], in_software[i]));
        }
    }
}

// The refusal of the system is a reason that explain can print.
TEST(Permission, OfAmxIsRefusedWithAReasonWhereThereIsNoAmx) {
    const cpu::Level& amx = cpu::kLevels[0];
    ASSERT_STREQ(amx.kernel, "cpu_amx");
    if (amx.supported()) {
        GTEST_SKIP() << "this CPU has AMX";
    }
    const std::string first = amx.permission();
    EXPECT_NE(first.find("the system refuses AMX's tiles"), std::string::npos) << first;
    EXPECT_NE(first.find("ARCH_REQ_XCOMP_PERM"), std::string::npos) << first;
    EXPECT_EQ(amx.permission(), first) << "asked once";
}

// ---- the product of values in fp16 ------------------------------------------------------------

// Codes of E4M3 as numbers.
double e4m3(std::uint8_t code) {
    return decode(QUATT_E4M3, code);
}

struct ValuesResult {
    std::array<float, 4 * 64> o{};
    std::array<double, 4 * 64> exact{}, magnitude{};  // sum of p v, of |p v|
    std::array<float, 4 * 64> scalar{};               // by fma16 in the order of keys
};

// 4 rows x 64 keys x 64 channels on the level with the instructions in software.
ValuesResult values_of(const std::function<std::uint8_t(std::size_t, std::size_t)>& p_code,
                       const std::function<std::uint8_t(std::size_t, std::size_t)>& v_code) {
    const auto f16_of = [](double x) {  // exact for codes of E4M3 times 2^0 or 2^-8
        const auto units = static_cast<std::int64_t>(std::fabs(x) * 0x1p24);
        int e = 0;
        while ((units >> e) >= 2048) {
            e++;
        }
        const std::int64_t bits = (units >> e) + (std::int64_t{e} << 10);
        return static_cast<uint16_t>(bits | (x < 0 ? 0x8000 : 0));
    };
    ValuesResult r;
    std::vector<uint32_t> p(4 * 64), v(64 * 32);
    std::vector<uint16_t> sum(4 * 64);
    for (std::size_t key = 0; key < 64; key++) {
        for (std::size_t row = 0; row < 4; row++) {
            p[row * 64 + key] = f16_of(e4m3(p_code(row, key))) * 0x10001u;
        }
        for (std::size_t d = 0; d < 64; d++) {
            const uint16_t scaled_v = f16_of(e4m3(v_code(key, d)) * 0x1p-8);
            v[key * 32 + d / 2] |= uint32_t{scaled_v} << (d % 2 * 16);
            for (std::size_t row = 0; row < 4; row++) {
                const double product = e4m3(p_code(row, key)) * e4m3(v_code(key, d));
                r.exact[row * 64 + d] += product;
                r.magnitude[row * 64 + d] += std::fabs(product);
                sum[row * 64 + d] =
                    fma16(static_cast<uint16_t>(p[row * 64 + key]), scaled_v, sum[row * 64 + d]);
            }
        }
    }
    for (std::size_t i = 0; i < sum.size(); i++) {
        EXPECT_FALSE(is_inf16(sum[i]) || is_nan16(sum[i]));
        r.scalar[i] = static_cast<float>(static_cast<double>(units_of(sum[i])) * 0x1p-16);
    }
    const std::array<float, 4> factor{};
    cpu::kEmulatedAvx512Fp16Kernels.pv_product[static_cast<std::size_t>(cpu::Product::kF16)](
        p.data(), v.data(), 4, 64, factor.data(), r.o.data());
    return r;
}

class Fp16Values : public testing::Test {
protected:
    void SetUp() override {
        if (const cpu::Level* level = software_level("cpu_avx512_fp16_software");
            !level->supported()) {
            GTEST_SKIP() << "needs " << level->needs << "; this CPU has " << quatt_cpu_features();
        }
    }
};

constexpr std::uint8_t kLargestP = 0x7D, kLargestV = 0x7E;  // 416 and 448

// The sum of the largest codes stays finite, exact or not.
TEST_F(Fp16Values, TheLargestCodesDoNotOverflow) {
    for (const std::uint8_t sign : {std::uint8_t{0}, std::uint8_t{0x80}}) {
        const ValuesResult r =
            values_of([](std::size_t, std::size_t) { return kLargestP; },
                      [&](std::size_t, std::size_t) { return kLargestV | sign; });
        for (std::size_t i = 0; i < r.o.size(); i++) {
            ASSERT_TRUE(std::isfinite(r.o[i]));
            ASSERT_EQ(r.o[i], r.scalar[i]);
            ASSERT_LE(std::fabs(static_cast<double>(r.o[i]) - r.exact[i]),
                      64 * 0x1p-11 * r.magnitude[i]);
        }
    }
}

// Bit for bit the chain of single instructions, and within the bound that MacF16 states.
TEST_F(Fp16Values, AreTheChainOfKeysWithinItsBound) {
    Random random(53);
    double worst = 0;
    for (int n = 0; n < scaled(300); n++) {
        const int kind = n % 4;
        const ValuesResult r = values_of(
            [&](std::size_t row, std::size_t key) -> std::uint8_t {
                Random here(static_cast<std::uint64_t>(n) * 7919 + row * 64 + key);
                if (kind == 1) {  // one key above all others
                    return static_cast<std::uint8_t>(key == row ? kLargestP : here.in(0, 8));
                }
                return static_cast<std::uint8_t>(here.in(kind == 2 ? 0x70 : 0, kLargestP));
            },
            [&](std::size_t key, std::size_t d) -> std::uint8_t {
                Random here(static_cast<std::uint64_t>(n) * 104729 + key * 64 + d);
                const auto code = static_cast<std::uint8_t>(here.in(0, kLargestV));
                return kind == 3 || here.chance(.5) ? code : code | 0x80;
            });
        for (std::size_t i = 0; i < r.o.size(); i++) {
            ASSERT_EQ(r.o[i], r.scalar[i]) << n;
            const double error = std::fabs(static_cast<double>(r.o[i]) - r.exact[i]);
            ASSERT_LE(error, 64 * 0x1p-11 * r.magnitude[i]) << n;
            worst = std::max(worst, error / r.magnitude[i]);
        }
    }
    RecordProperty("worst_error_per_magnitude", std::to_string(worst));
}

}  // namespace
}  // namespace quatt::test

// mma against scalar models written from the PTX ISA's own formulas: for element i of a fragment,
// its row and column as functions of the lane (9.7.14.5.8, 9.7.14.5.10).
#include <cmath>
#include <vector>

#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "warp.hpp"

namespace quatt::test {
namespace {

// Matrices of codes and the fragments that hold them.
template <class Format, int K>
struct Case {
    static constexpr int kPer = 32 / Format::kBits, kHalf = 8 * kPer / 2;
    typename Format::Code a[16][K], b[K][8];
    float c[16][8];
    u32 fa[32][4] = {}, fb[32][2] = {};
    float fd[32][4];

    explicit Case(unsigned seed) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        for (auto& row : a)
            for (auto& x : row)
                x = Format::encode(normal(generator));
        for (auto& row : b)
            for (auto& x : row)
                x = Format::encode(normal(generator));
        for (auto& row : c)
            for (float& x : row)
                x = normal(generator);
        fill();
    }

    void fill() {
        for (int lane = 0; lane < 32; lane++) {
            const int group = lane >> 2, in_group = lane % 4;
            for (int i = 0; i < 4 * kPer; i++) {
                const bool is_upper = (i / kPer) % 2 == 0;
                const int row = is_upper ? group : group + 8;
                const int column = in_group * kPer + i % kPer + (i < 2 * kPer ? 0 : kHalf);
                set(fa[lane][i / kPer], i % kPer, a[row][column]);
            }
            for (int i = 0; i < 2 * kPer; i++) {
                const int row = in_group * kPer + i % kPer + (i < kPer ? 0 : kHalf);
                set(fb[lane][i / kPer], i % kPer, b[row][group]);
            }
            for (int i = 0; i < 4; i++)
                fd[lane][i] = c[i < 2 ? group : group + 8][in_group * 2 + (i & 1)];
        }
    }
    static void set(u32& packed, int i, typename Format::Code code) {
        const u32 mask = (u32{1} << Format::kBits) - 1;
        packed = (packed & ~(mask << (Format::kBits * i))) | u32{code} << (Format::kBits * i);
    }
    // Extended precision: exact where fp64 is, and rounded once.
    [[nodiscard]] float expected(int m, int n, long double scale = 1) const {
        long double sum = 0;
        for (int k = 0; k < K; k++)
            sum += static_cast<long double>(Format::decode(a[m][k])) * Format::decode(b[k][n]);
        return static_cast<float>(sum * scale + c[m][n]);
    }
    template <class Check>
    void each_result(Check check) const {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++)
                check(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1), fd[lane][i]);
    }
};

template <class Format, int K, class Instruction>
void check_mma(Instruction instruction) {
    for (unsigned seed = 1; seed <= 20; seed++) {
        Case<Format, K> test(seed);
        const auto start = test;
        run_warp([&] {
            const u32 lane = lane_id();
            float d[4];
            std::copy_n(start.fd[lane], 4, d);
            instruction(d, test.fa[lane], test.fb[lane]);
            std::copy_n(d, 4, test.fd[lane]);
        });
        test.each_result([&](int m, int n, float got) {
            EXPECT_EQ(bits(got), bits(test.expected(m, n)))
                << "seed " << seed << " (" << m << "," << n << ")";
        });
    }
}

TEST(Mma, Bf16) {
    check_mma<formats::Bf16, 16>(
        [](float(&d)[4], const u32(&a)[4], const u32(&b)[2]) { mma_bf16(d, a, b[0], b[1]); });
}
TEST(Mma, F16) {
    check_mma<formats::F16, 16>(
        [](float(&d)[4], const u32(&a)[4], const u32(&b)[2]) { mma_f16(d, a, b[0], b[1]); });
}
TEST(Mma, E4m3) {
    check_mma<formats::E4m3, 32>(
        [](float(&d)[4], const u32(&a)[4], const u32(&b)[2]) { mma_e4m3(d, a, b[0], b[1]); });
}
TEST(Mma, E4m3Fast) {
    check_mma<formats::E4m3, 32>(
        [](float(&d)[4], const u32(&a)[4], const u32(&b)[2]) { mma_e4m3_fast(d, a, b[0], b[1]); });
}

template <u32 ByteA, u32 ThreadA, u32 ByteB, u32 ThreadB>
void check_block_scaled() {
    Case<formats::E4m3, 32> test(ByteA + 10 * ThreadA + 100 * ByteB + ThreadB);
    const auto start = test;
    std::mt19937 generator(5);
    u32 row[16], column[8], scale_a[32], scale_b[32];
    for (u32& code : row)
        code = 120 + generator() % 16;
    for (u32& code : column)
        code = 120 + generator() % 16;
    for (u32 lane = 0; lane < 32; lane++) {
        // Only the selected byte of the selected lanes counts; the rest is NaN codes.
        scale_a[lane] = scale_b[lane] = 0xFFFFFFFFu;
        const auto put = [](u32& word, u32 byte, u32 code) {
            word = (word & ~(0xFFu << (8 * byte))) | code << (8 * byte);
        };
        if (lane % 4 / 2 == ThreadA) put(scale_a[lane], ByteA, row[lane / 4 + 8 * (lane % 2)]);
        if (lane % 4 == ThreadB) put(scale_b[lane], ByteB, column[lane / 4]);
    }
    run_warp([&] {
        const u32 lane = lane_id();
        float d[4];
        std::copy_n(start.fd[lane], 4, d);
        mma_e4m3_block_scaled<ByteA, ThreadA, ByteB, ThreadB>(
            d, test.fa[lane], test.fb[lane][0], test.fb[lane][1], scale_a[lane], scale_b[lane]);
        std::copy_n(d, 4, test.fd[lane]);
    });
    test.each_result([&](int m, int n, float got) {
        const long double scale = std::ldexp(1.0L, static_cast<int>(row[m] + column[n]) - 254);
        EXPECT_EQ(bits(got), bits(test.expected(m, n, scale))) << m << "," << n;
    });
}

TEST(Mma, BlockScaledSelectsItsScales) {
    check_block_scaled<0, 0, 0, 0>();
    check_block_scaled<1, 1, 2, 3>();
    check_block_scaled<3, 0, 1, 2>();
    check_block_scaled<2, 1, 3, 1>();
}

TEST(Mma, BlockScaledWithUnitScalesIsThePlainForm) {
    Case<formats::E4m3, 32> plain(3), scaled(3);
    const auto start = plain;
    run_warp([&] {
        const u32 lane = lane_id();
        float d[4], e[4];
        std::copy_n(start.fd[lane], 4, d);
        std::copy_n(start.fd[lane], 4, e);
        mma_e4m3(d, plain.fa[lane], plain.fb[lane][0], plain.fb[lane][1]);
        mma_e4m3_block_scaled(e, plain.fa[lane], plain.fb[lane][0], plain.fb[lane][1], 0x7F7F7F7F,
                              0x7F7F7F7F);
        for (int i = 0; i < 4; i++)
            EXPECT_EQ(bits(d[i]), bits(e[i]));
    });
}

TEST(Mma, NanStaysInItsRowAndColumn) {
    Case<formats::E4m3, 32> test(9);
    test.a[5][17] = formats::E4m3::kNan;
    test.fill();
    const auto start = test;
    run_warp([&] {
        const u32 lane = lane_id();
        float d[4];
        std::copy_n(start.fd[lane], 4, d);
        mma_e4m3(d, test.fa[lane], test.fb[lane][0], test.fb[lane][1]);
        std::copy_n(d, 4, test.fd[lane]);
    });
    test.each_result([](int m, int, float got) { EXPECT_EQ(std::isnan(got), m == 5); });
}

}  // namespace
}  // namespace quatt::test

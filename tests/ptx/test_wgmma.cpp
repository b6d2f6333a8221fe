// wgmma against a scalar model written from the PTX ISA: where a descriptor's rows lie, which
// element a lane's register is (9.7.15.5.1), and the measured sum of a step.
#include <cmath>
#include <vector>

#include "formats/e4m3.hpp"
#include "recipe/accumulate.hpp"
#include "warp.hpp"

namespace quatt::test {
namespace {

using formats::E4m3;
using simt::MatrixDescriptor;
using simt::Swizzle;

constexpr u32 kSharedBytes = 64 * 1024;

// K-major operand of `rows` rows of `steps` times 32 bytes, from `start` on.
struct Layout {
    Swizzle swizzle;
    u32 start, rows, steps;

    // Byte k of a row, from the layouts drawn in the ISA.
    [[nodiscard]] u32 place(u32 row, u32 k) const {
        const u32 chunk = k / 16, byte = k % 16;
        switch (swizzle) {
            case Swizzle::kNone:  // core matrices of 8 x 16 bytes, those along K side by side
                return start + row / 8 * (256 * steps) + chunk * 128 + row % 8 * 16 + byte;
            case Swizzle::k32B:
                return start + row * 32 + ((chunk ^ (row / 4 % 2)) * 16) + byte;
            case Swizzle::k64B:
                return start + row * 64 + ((chunk ^ (row / 2 % 4)) * 16) + byte;
            case Swizzle::k128B:
                return start + row * 128 + ((chunk ^ (row % 8)) * 16) + byte;
        }
        return 0;
    }
    [[nodiscard]] u64 descriptor(u32 step) const {
        if (swizzle == Swizzle::kNone)
            return u64(start + 256 * step) / 16 | u64(128 / 16) << 16 | u64(256 * steps / 16) << 32;
        const Shared at = Shared(start, kSharedBytes - start).sub(32 * step, 32);
        if (swizzle == Swizzle::k32B) return k_major<32>(at);
        return swizzle == Swizzle::k64B ? k_major<64>(at) : k_major<128>(at);
    }
    void fill(const std::vector<u8>& codes) const {
        for (u32 i = thread_x(); i < rows * steps * 32; i += threads_x())
            Shared(0, kSharedBytes).store(place(i / (32 * steps), i % (32 * steps)), codes[i]);
    }
};

struct Operands {
    u32 n, depth;
    std::vector<u8> a, b;
    std::vector<float> c, d;

    Operands(u32 columns, u32 steps, unsigned seed)
        : n(columns), depth(32 * steps), a(64 * depth), b(n * depth), c(64 * n), d(64 * n) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        const auto spread = [&] {
            return normal(generator) * std::exp2(static_cast<float>(generator() % 12) - 6);
        };
        for (u8& code : a)
            code = E4m3::encode(spread());
        for (u8& code : b)
            code = E4m3::encode(spread());
        for (float& x : c)
            x = spread();
        a[17 * depth + 3] = E4m3::kNan;  // of one row
        a[18 * depth + 5] = 0x80;        // -0
        c[5] = INFINITY;
        std::fill_n(&a[40 * depth], depth, u8{0});
        c[40 * n + 1] = 0x1p-100f;  // beside products that are all 0
    }
    [[nodiscard]] float expected(u32 row, u32 column, bool accumulate) const {
        float sum = accumulate ? c[row * n + column] : 0;
        for (u32 k = 0; k < depth; k += 32) {
            float x[32], y[32];
            for (u32 i = 0; i < 32; i++) {
                x[i] = E4m3::decode(a[row * depth + k + i]);
                y[i] = E4m3::decode(b[column * depth + k + i]);
            }
            sum = recipe::hopper_step(sum, x, 1, y, 1, 32);
        }
        return sum;
    }
};

template <u32 N, bool InRegisters>
void product(Operands& x, Swizzle swizzle, bool accumulate) {
    const u32 steps = x.depth / 32;
    const Layout la{swizzle, 8192, 64, steps}, lb{swizzle, 16384, N, steps};
    if constexpr (!InRegisters) la.fill(x.a);
    lb.fill(x.b);
    fence_proxy_async();
    barrier_sync();

    const u32 lane = lane_id(), first = warp_id() * 16;
    const auto at = [&](u32 i) {  // element of the result that register i holds
        return (first + lane / 4 + (i % 4 < 2 ? 0 : 8)) * N + i / 4 * 8 + lane % 4 * 2 + i % 2;
    };
    float d[N / 2];
    for (u32 i = 0; i < N / 2; i++)
        d[i] = x.c[at(i)];
    u32 a[4][4] = {};
    for (u32 i = 0; i < 16 * steps; i++) {
        const u32 step = i / 16, e = i % 16;
        const u32 row = first + lane / 4 + (e < 4 || (e >= 8 && e < 12) ? 0 : 8);
        const u32 k = 32 * step + lane % 4 * 4 + e % 4 + (e < 8 ? 0 : 16);
        a[step][e / 4] |= u32{x.a[row * x.depth + k]} << (8 * (e % 4));
    }
    wgmma_fence();
    for (u32 step = 0; step < steps; step++) {
        const bool add = accumulate || step != 0;
        if constexpr (InRegisters)
            wgmma_e4m3<N>(d, a[step], lb.descriptor(step), add);
        else
            wgmma_e4m3<N>(d, la.descriptor(step), lb.descriptor(step), add);
    }
    wgmma_commit();
    wgmma_wait<0>();
    for (u32 i = 0; i < N / 2; i++)
        x.d[at(i)] = d[i];
}

template <u32 N, bool InRegisters>
void check_products() {
    for (const Swizzle swizzle : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
        for (const bool accumulate : {false, true}) {
            const u32 steps = swizzle == Swizzle::k32B ? 1 : swizzle == Swizzle::k128B ? 4 : 2;
            Operands x(N, steps, N + steps);
            run_warp([&] { product<N, InRegisters>(x, swizzle, accumulate); }, kSharedBytes, {128});
            u32 wrong = 0;
            for (u32 i = 0; i < 64 * N; i++) {
                const float expected = x.expected(i / N, i % N, accumulate);
                wrong +=
                    std::isnan(expected) ? !std::isnan(x.d[i]) : bits(expected) != bits(x.d[i]);
            }
            EXPECT_EQ(wrong, 0u) << "N " << N << " swizzle " << static_cast<int>(swizzle)
                                 << " accumulate " << accumulate;
        }
}

TEST(Wgmma, AInSharedMemory) {
    check_products<64, false>();
    check_products<128, false>();
    check_products<192, false>();
}
TEST(Wgmma, AInRegisters) {
    check_products<64, true>();
    check_products<128, true>();
}

// The descriptor's fields one by one, and patterns that do not start at a multiple of their size.
TEST(MatrixDescriptor, BaseOffsetMovesThePhase) {
    for (u32 base = 0; base < 8; base++) {
        const u32 start = 4096 + 128 * base;
        const MatrixDescriptor m(u64(start / 16) | u64(1024 / 16) << 32 | u64(base) << 49 |
                                 u64(1) << 62);
        EXPECT_EQ(m.invalid(64, 65536), "");
        for (u32 row = 0; row < 64; row++)
            for (u32 chunk = 0; chunk < 2; chunk++)
                EXPECT_EQ(m.address(row, chunk), start + row * 128 + (chunk ^ (row % 8)) * 16);
        // The same start without it is within a pattern.
        const MatrixDescriptor plain(u64(start / 16) | u64(1024 / 16) << 32 | u64(1) << 62);
        EXPECT_EQ(plain.invalid(64, 65536).empty(), base == 0);
    }
}

TEST(MatrixDescriptor, SaysWhatIsWrong) {
    const auto invalid = [](u32 start, u32 leading, u32 stride, u64 mode, u64 more = 0,
                            u32 rows = 64) {
        return MatrixDescriptor(u64(start / 16) | u64(leading / 16) << 16 | u64(stride / 16) << 32 |
                                mode << 62 | more)
            .invalid(rows, 16384);
    };
    EXPECT_EQ(invalid(0, 16, 1024, 1), "");
    EXPECT_EQ(invalid(96, 16, 1024, 1), "");
    EXPECT_EQ(invalid(8192, 16, 1024, 1), "");
    EXPECT_EQ(invalid(512, 16, 512, 2), "");
    EXPECT_EQ(invalid(256 + 0, 16, 256, 3), "");
    EXPECT_EQ(invalid(48, 128, 256, 0), "");
    EXPECT_NE(invalid(16, 16, 1024, 1), "");   // half a step
    EXPECT_NE(invalid(128, 16, 1024, 1), "");  // the second row
    EXPECT_NE(invalid(64, 16, 512, 2), "");    // the second row
    EXPECT_NE(invalid(0, 16, 512, 1), "");     // the stride of another swizzle
    EXPECT_NE(invalid(0, 16, 0, 1), "");
    EXPECT_EQ(invalid(0, 16, 0, 1, 0, 8), "");         // of which 8 rows need none
    EXPECT_NE(invalid(8192 + 1024, 16, 1024, 1), "");  // beyond shared memory
    EXPECT_NE(invalid(0, 16, 256, 0), "");             // core matrices overlap
    EXPECT_NE(invalid(0, 128, 64, 0), "");
    EXPECT_NE(invalid(0, 16, 1024, 1, u64(1) << 14), "");
    EXPECT_NE(invalid(0, 16, 1024, 1, u64(1) << 52), "");
    EXPECT_NE(invalid(0, 128, 256, 0, u64(1) << 49), "");
}

}  // namespace
}  // namespace quatt::test

// The executor's bodies of the mma instructions.
//
// Order of summation: the products of an element are added in fp64, in the order of k, then the
// accumulator is added, and the sum is rounded once to fp32. Products of E4M3 and sums of 32 of
// them are exact in fp64, and so is the product of two bf16 or f16. Hardware keeps fewer bits (and
// Hopper far fewer for FP8): results differ in the last places, as they do between GPUs.
#pragma once

#include <array>
#include <cmath>
#include <cstring>

#include "cuda/ptx/platform.hpp"
#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "formats/ue8m0.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {
namespace host {

struct Bf16Element {
    static constexpr u32 kPerRegister = 2;
    static double decode(u32 packed, u32 i) {
        return formats::Bf16::decode(static_cast<u16>(packed >> (16 * i)));
    }
};

struct F16Element {
    static constexpr u32 kPerRegister = 2;
    static double decode(u32 packed, u32 i) {
        return formats::F16::decode(static_cast<u16>(packed >> (16 * i)));
    }
};

struct E4m3Element {
    static constexpr u32 kPerRegister = 4;
    static double decode(u32 packed, u32 i) { return table()[packed >> (8 * i) & 0xFFu]; }

private:
    static const std::array<double, 256>& table() {
        static const std::array<double, 256> values = [] {
            std::array<double, 256> v;
            for (u32 code = 0; code < 256; code++)
                v[code] = formats::E4m3::decode(static_cast<u8>(code));
            return v;
        }();
        return values;
    }
};

struct MmaOperands {
    float* d;
    const u32* a;
    u32 b[2];
    u32 scale_a, scale_b;
};

// The products of a whole warp: sums[m][n].
template <class Element>
void multiply(MmaOperands* const* lanes, double (&sums)[16][8]) {
    constexpr u32 kE = Element::kPerRegister, kK = 8 * kE;
    double a[16][kK], b[kK][8];
    for (u32 i = 0; i < simt::kLanes; i++) {
        const u32 g = i / 4, t = i % 4;
        for (u32 r = 0; r < 4; r++)
            for (u32 e = 0; e < kE; e++)
                a[g + 8 * (r % 2)][kE * (t + 4 * (r / 2)) + e] = Element::decode(lanes[i]->a[r], e);
        for (u32 r = 0; r < 2; r++)
            for (u32 e = 0; e < kE; e++)
                b[kE * (t + 4 * r) + e][g] = Element::decode(lanes[i]->b[r], e);
    }
    for (u32 m = 0; m < 16; m++) {
        double sum[8] = {};
        for (u32 k = 0; k < kK; k++)
            for (u32 n = 0; n < 8; n++)
                sum[n] += a[m][k] * b[k][n];
        std::memcpy(sums[m], sum, sizeof sum);
    }
}

template <class Element>
void mma(const char* what, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, Site site) {
    MmaOperands mine{d, a, {b0, b1}, 0, 0};
    simt::block().collective(what, site, mine, [](MmaOperands* const* lanes) {
        double sums[16][8];
        multiply<Element>(lanes, sums);
        for (u32 i = 0; i < simt::kLanes; i++)
            for (u32 r = 0; r < 4; r++) {
                float& out = lanes[i]->d[r];
                out = static_cast<float>(sums[i / 4 + 8 * (r / 2)][2 * (i % 4) + r % 2] +
                                         static_cast<double>(out));
            }
    });
}

inline void mma_block_scaled(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 scale_a,
                             u32 scale_b, u32 thread_a, u32 thread_b, Site site) {
    MmaOperands mine{d, a, {b0, b1}, scale_a, scale_b};
    simt::block().collective("mma e4m3 block_scale", site, mine, [&](MmaOperands* const* lanes) {
        double sums[16][8];
        multiply<E4m3Element>(lanes, sums);
        const auto scale = [](u32 code) -> double {
            return formats::Ue8m0::decode(static_cast<u8>(code));
        };
        for (u32 i = 0; i < simt::kLanes; i++)
            for (u32 r = 0; r < 4; r++) {
                const u32 m = i / 4 + 8 * (r / 2), n = 2 * (i % 4) + r % 2;
                const double row = scale(lanes[4 * (m % 8) + 2 * thread_a + m / 8]->scale_a);
                const double column = scale(lanes[4 * n + thread_b]->scale_b);
                float& out = lanes[i]->d[r];
                out = static_cast<float>(sums[m][n] * row * column + static_cast<double>(out));
            }
    });
}

}  // namespace host
}  // namespace QUATT_ABI
}  // namespace quatt::ptx

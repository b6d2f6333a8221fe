// P in the formats that PV products take: how four or two of its numbers become a register, and
// how an overflow shows (docs/recipes.md, "Lazy softmax", rule 2).
#pragma once

#include "cuda/ptx/ptx.hpp"

namespace quatt::softmax {
inline namespace QUATT_ABI {

using ptx::u32;

struct E4m3Probabilities {
    static constexpr u32 kPerRegister = 4;
    static constexpr float kOverflow = 432;  // from here on P rounds to 448, code 0x7E
    static constexpr float kOverflowExponent = 8.7548875f;  // its log2

    [[nodiscard]] QUATT_DEV static u32 pack(const float (&p)[4]) {
        return ptx::pack_e4m3x4(p[0], p[1], p[2], p[3]);
    }
    // Bits to gather with |; `overflows` tells from them whether a code reached 0x7E.
    [[nodiscard]] QUATT_DEV static u32 evidence(u32 packed) { return packed + 0x02020202u; }
    [[nodiscard]] QUATT_DEV static bool overflows(u32 evidence, float) {
        return (evidence & 0x80808080u) != 0;
    }
    // The row's four lanes agree. `lanes`: bit i says that lane i of them overflows.
    [[nodiscard]] QUATT_DEV static bool row_overflows(u32 lanes, float) { return lanes != 0; }
    // Whether one of the p's of this sum may overflow: none is larger than the sum. NaN may.
    [[nodiscard]] QUATT_DEV static bool may_overflow(float sum) { return !(sum < kOverflow); }
    // p = 2^exponent overflows.
    [[nodiscard]] QUATT_DEV static bool exponent_overflows(float exponent) {
        return !(exponent < kOverflowExponent);
    }
};

struct F16Probabilities {
    static constexpr u32 kPerRegister = 2;

    [[nodiscard]] QUATT_DEV static u32 pack(const float (&p)[2]) {
        return ptx::pack_f16x2(p[0], p[1]);
    }
    // 2^15 and above.
    [[nodiscard]] QUATT_DEV static u32 evidence(u32 packed) { return packed + 0x08000800u; }
    [[nodiscard]] QUATT_DEV static bool overflows(u32 evidence, float) {
        return (evidence & 0x80008000u) != 0;
    }
    [[nodiscard]] QUATT_DEV static bool row_overflows(u32 lanes, float) { return lanes != 0; }
};

// The row's sum counts: 2^64, a quarter of which some lane must have.
struct Bf16Probabilities {
    static constexpr u32 kPerRegister = 2;

    [[nodiscard]] QUATT_DEV static u32 pack(const float (&p)[2]) {
        return ptx::pack_bf16x2(p[0], p[1]);
    }
    [[nodiscard]] QUATT_DEV static u32 evidence(u32) { return 0; }
    [[nodiscard]] QUATT_DEV static bool overflows(u32, float lane_sum) {
        return !(lane_sum < 0x1p62f);
    }
    [[nodiscard]] QUATT_DEV static bool row_overflows(u32, float lane_sum) {
        float sum = lane_sum + ptx::shfl_xor(lane_sum, 1);
        sum += ptx::shfl_xor(sum, 2);
        return !(sum < 0x1p64f);
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::softmax

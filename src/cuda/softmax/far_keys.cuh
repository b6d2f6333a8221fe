// Keys whose V is coded without its centre, since they are far from it (docs/recipes.md, "Far
// tokens"): the sum l_far of their p, which the centre's share leaves out. Most tiles have none, so
// the sum lies in shared memory, under a running max of its own, and costs the others nothing.
#pragma once

#include "cuda/ptx/ptx.hpp"

namespace quatt::softmax {
inline namespace QUATT_ABI {

// Which keys of a tile are far: words 1 and 2 of its entry of K scales.
struct FarKeys {
    ptx::u32 low, high;  // bit i: keys i and 32 + i

    [[nodiscard]] QUATT_DEV bool any() const { return (low | high) != 0; }
    // Bit i: key 8 n + i.
    [[nodiscard]] QUATT_DEV ptx::u32 eight(ptx::u32 n) const {
        return (n < 4 ? low : high) >> 8 * (n % 4) & 0xFFu;
    }
};

// Of a lane's two rows, this lane's keys.
struct FarSum {
    static constexpr ptx::u32 kBytes = 16;  // a lane
    ptx::Shared memory;                     // of this lane: l_far of each row, then their w - m

    QUATT_DEV void reset() const { memory.store(0, ptx::F32x4{0, 0, 0, 0}); }

    // Adds a tile's: p(n, r, i) is that of key 8 n + 2 t + i of the tile, n < Eights, in row r,
    // under the offsets w - m given.
    template <ptx::u32 Eights, class P>
    QUATT_DEV void add(FarKeys keys, ptx::u32 t, float offset0, float offset1, P&& p) const {
        float sum[2] = {0, 0};
        QUATT_UNROLL
        for (ptx::u32 n = 0; n < Eights; n++) {
            const ptx::u32 eight = keys.eight(n);
            if (eight != 0) {
                QUATT_UNROLL
                for (ptx::u32 i = 0; i < 2; i++) {
                    const bool is_far = (eight >> (2 * t + i) & 1) != 0;
                    sum[0] += is_far ? p(n, 0, i) : 0.0f;
                    sum[1] += is_far ? p(n, 1, i) : 0.0f;
                }
            }
        }
        const auto before = memory.load<ptx::F32x4>(0);
        // NOTE: a sum of 0 has no max: nothing to rescale, by what might be infinite.
        sum[0] += before.x == 0 ? 0.0f : before.x * ptx::ex2(offset0 - before.z);
        sum[1] += before.y == 0 ? 0.0f : before.y * ptx::ex2(offset1 - before.w);
        memory.store(0, ptx::F32x4{sum[0], sum[1], offset0, offset1});
    }

    // The row's l_far over its four lanes, under the offset of row r.
    [[nodiscard]] QUATT_DEV float finish(ptx::u32 r, float offset) const {
        const auto x = memory.load<ptx::F32x4>(0);
        const float mine = r == 0 ? x.x : x.y, under = r == 0 ? x.z : x.w;
        float sum = mine == 0 ? 0.0f : mine * ptx::ex2(offset - under);
        sum += ptx::shfl_xor(sum, 1);
        return sum + ptx::shfl_xor(sum, 2);
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::softmax

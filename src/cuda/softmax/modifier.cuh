// What a kernel may do to scores before the softmax: a part that attention kernels are put together
// from. A bias, a soft cap or a window is a type like this one whose kChangesScores is true and
// which has
//   static float apply(const Params& p, float t, u32 head, i32 row, i32 key)   // t in log2 units
#pragma once

#include "cuda/ptx/ptx.hpp"

namespace quatt::softmax {
inline namespace QUATT_ABI {

// Scores stay as they are. Costs no instruction.
struct NoModifier {
    static constexpr bool kChangesScores = false;
    struct Params {};
};

}  // namespace QUATT_ABI
}  // namespace quatt::softmax

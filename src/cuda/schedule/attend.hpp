// What every attention kernel is launched with, and how an instance of one is named.
#pragma once

#include "cuda/epilogue/output.cuh"
#include "cuda/launch/launcher.hpp"
#include "cuda/tile/operands.hpp"
#include "cuda/worklist/segments.hpp"

namespace quatt::schedule {
inline namespace QUATT_ABI {

struct AttendParams {
    tile::PackedInputs packed;  // one of the two
    tile::RowOperands rows;
    epilogue::Output out;
    worklist::WorkList list;
    ptx::u32 heads_q, heads_per_group;
    float score_factor;  // softmax_scale * log2 e, of rows
    bool is_causal;
};

// Launches an attention kernel, of as many blocks as run at once.
using Attend = void (*)(launch::Launcher& launcher, const AttendParams& params,
                        ptx::u32 multiprocessors);

// A compiled kernel: what it serves.
struct Instance {
    const char* recipe;
    ptx::u32 dim;           // heads padded to it
    ptx::u32 shared_bytes;  // of a block
    bool is_block_scaled;   // has the instruction of sm_120f
    Attend attend;
};

// Of a Config.
template <class C>
[[nodiscard]] constexpr Instance instance_of(ptx::u32 shared_bytes, Attend attend) {
    return {C::Recipe::kRecipe.name, C::kDim, shared_bytes, C::kIsBlockScaled, attend};
}

}  // namespace QUATT_ABI
}  // namespace quatt::schedule

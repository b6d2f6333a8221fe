// wgmma in the support table.
#pragma once

#include "cuda/schedule/row.hpp"

namespace quatt::wgmma {

inline constexpr schedule::ScheduleRow kRow = {
    .name = "wgmma",
    .compute = "9.0",
    .recipes = "fp8",
    .dtypes = "q, k, v: all bf16 or all f16; out: bf16 f16 f32",
    .head_dims = "1..128",
    .most_head_dim = 128,
    .rows_per_item = 192,
    .accumulator = QUATT_ACCUMULATOR_HOPPER,
    // A warpgroup's accumulators and its products under way have no counterpart elsewhere.
    .not_on_emu = "wgmma cannot be emulated on another GPU; simt:sm_90a runs it on the CPU",
};

}  // namespace quatt::wgmma

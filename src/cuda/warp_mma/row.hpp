// warp_mma in the support table.
#pragma once

#include "cuda/schedule/row.hpp"

namespace quatt::warp_mma {

inline constexpr schedule::ScheduleRow kRow = {
    .name = "warp_mma",
    .compute = "9.0 12.0 12.1",
    .recipes = "bf16 f16 fp8",
    .dtypes = "q, k, v: all bf16 or all f16 (bf16 and f16: their own); out: bf16 f16 f32",
    .head_dims = "1..128",
    .most_head_dim = 128,
    .rows_per_item = 128,
    .accumulator = QUATT_ACCUMULATOR_FP32,
};

}  // namespace quatt::warp_mma

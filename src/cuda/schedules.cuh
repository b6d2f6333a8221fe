// The compiled kernels of all schedules.
#pragma once

#include <cstring>
#include <span>

#include "cuda/call.hpp"
#include "cuda/schedules.hpp"
#include "cuda/warp_mma/launch.cuh"
#include "cuda/wgmma/launch.cuh"

namespace quatt::cuda {
inline namespace QUATT_ABI {

// The first instance of the call's schedule that serves it; null where the build has none.
inline schedule::Attend attend_of(const Call& c) {
    struct Kernels {
        const schedule::ScheduleRow* row;
        std::span<const schedule::Instance> instances;
    };
#define QUATT_KERNELS(name) {&name::kRow, name::kInstances},
    static constexpr Kernels kKernels[] = {QUATT_SCHEDULES(QUATT_KERNELS)};
#undef QUATT_KERNELS
    for (const Kernels& k : kKernels) {
        for (const schedule::Instance& i : k.instances) {
            if (k.row == c.schedule && std::strcmp(i.recipe, c.recipe->name) == 0 &&
                i.dim == c.padded_dim() && i.shared_bytes <= c.block_shared_bytes &&
                (!i.is_block_scaled || c.has_block_scaled)) {
                return i.attend;
            }
        }
    }
    return nullptr;
}

}  // namespace QUATT_ABI
}  // namespace quatt::cuda

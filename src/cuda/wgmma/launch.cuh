// One instance of the attention kernel and its launch.
#pragma once

#include <cmath>
#include <cstddef>

#include "cuda/tile/launcher.hpp"
#include "cuda/wgmma/kernel.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

// Query rows of an item of work, in every instance: what `plan` cuts the rows into.
inline constexpr u32 kRowsPerItem = Config<128>::kRows;

// One block a multiprocessor; each takes items until none is left.
template <class C>
void launch_attention(tile::Launcher& launcher, const Params& params, u32 multiprocessors) {
    static_assert(C::kRows == kRowsPerItem);
    launcher.run<attention<C>>("attention", {multiprocessors}, C::kThreads, sizeof(SharedPlan<C>),
                               params);
}

// Every instance that the library has; one file of inst/ each, compiled for sm_90a only.
#define QUATT_WGMMA_INSTANCES(X) \
    X(fp8_64, Config<64>)        \
    X(fp8_128, Config<128>)

#define QUATT_DECLARE(name, ...) \
    void attention_##name(tile::Launcher&, const Params&, u32 multiprocessors);
QUATT_WGMMA_INSTANCES(QUATT_DECLARE)
#undef QUATT_DECLARE

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma

// One instance of the attention kernel and its launch.
#pragma once

#include <cmath>
#include <cstddef>

#include "cuda/tile/launcher.hpp"
#include "cuda/warp_mma/kernel.cuh"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

// Blocks: as many as run at once; each takes items until none is left.
template <class C>
void launch_attention(tile::Launcher& launcher, const Params& params, u32 multiprocessors) {
    launcher.run<attention<C>>("attention", {multiprocessors * C::kCtasPerSm}, C::kThreads,
                               sizeof(SharedPlan<C>), params);
}

// Every instance that the library has; one file of inst/ each.
#define QUATT_WARP_MMA_INSTANCES(X)                                                     \
    X(bf16_64, Config<Arithmetic::kBf16, 64>)                                           \
    X(bf16_128, Config<Arithmetic::kBf16, 128>)                                         \
    X(bf16_128_narrow, Config<Arithmetic::kBf16, 128, Atom::kNative, Mutant::kNone, 1>) \
    X(f16_64, Config<Arithmetic::kF16, 64>)                                             \
    X(f16_128, Config<Arithmetic::kF16, 128>)                                           \
    X(fp8_64, Config<Arithmetic::kFp8, 64>)                                             \
    X(fp8_128, Config<Arithmetic::kFp8, 128>)                                           \
    X(fp8_64_block_scaled, Config<Arithmetic::kFp8, 64, Atom::kBlockScaled>)            \
    X(fp8_128_block_scaled, Config<Arithmetic::kFp8, 128, Atom::kBlockScaled>)

#define QUATT_DECLARE(name, ...) \
    void attention_##name(tile::Launcher&, const Params&, u32 multiprocessors);
QUATT_WARP_MMA_INSTANCES(QUATT_DECLARE)
#undef QUATT_DECLARE

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma

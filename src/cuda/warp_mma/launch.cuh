// One instance of the attention kernel and its launch.
#pragma once

#include <cmath>
#include <cstddef>

#include "cuda/warp_mma/kernel.cuh"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

// As many blocks as run at once; each takes items until none is left.
template <class C>
void attend(launch::Launcher& launcher, const schedule::AttendParams& params, u32 multiprocessors) {
    launcher.run<attention<C>>("attention", {multiprocessors * C::kCtasPerSm}, C::kThreads,
                               sizeof(SharedPlan<C>), WarpMmaParams<C>{params, {}, {}});
}

// Every instance that the library has, in order of preference; a file of inst/ compiles each.
using bf16_64 = Config<softmax::Bf16, 64, 2>;
using bf16_128 = Config<softmax::Bf16, 128, 2>;
using bf16_128_rows16 =
    Config<softmax::Bf16, 128>;  // where bf16_128 does not fit the shared memory
using f16_64 = Config<softmax::F16, 64>;
using f16_128 = Config<softmax::F16, 128>;
using fp8_64_block_scaled = Config<softmax::Fp8, 64, 1, Instruction::kBlockScaled>;
using fp8_128_block_scaled = Config<softmax::Fp8, 128, 1, Instruction::kBlockScaled>;
using fp8_64 = Config<softmax::Fp8, 64>;
using fp8_128 = Config<softmax::Fp8, 128>;

#define QUATT_WARP_MMA_INSTANCES(X) \
    X(bf16_64)                      \
    X(bf16_128)                     \
    X(bf16_128_rows16)              \
    X(f16_64) X(f16_128) X(fp8_64_block_scaled) X(fp8_128_block_scaled) X(fp8_64) X(fp8_128)

#if defined(__CUDACC__)
#define QUATT_EXTERN(name) \
    extern template void attend<name>(launch::Launcher&, const schedule::AttendParams&, u32);
QUATT_WARP_MMA_INSTANCES(QUATT_EXTERN)
#undef QUATT_EXTERN
#endif

#define QUATT_INSTANCE(name) schedule::instance_of<name>(sizeof(SharedPlan<name>), attend<name>),
inline constexpr schedule::Instance kInstances[] = {QUATT_WARP_MMA_INSTANCES(QUATT_INSTANCE)};
#undef QUATT_INSTANCE

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma

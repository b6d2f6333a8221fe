// One instance of the attention kernel and its launch. Compiled for sm_90a only.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "cuda/wgmma/kernel.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

// One block a multiprocessor; each takes items until none is left.
template <class C>
void attend(launch::Launcher& launcher, const schedule::AttendParams& params, u32 multiprocessors) {
    launcher.run<attention<C>>("attention", {multiprocessors}, C::kThreads, sizeof(SharedPlan<C>),
                               WgmmaParams<C>{params, {}, {}});
}

// Every instance that the library has, in order of preference; a file of inst/ compiles each.
using fp8_64 = Config<softmax::Fp8, 64>;
using fp8_128 = Config<softmax::Fp8, 128>;

#define QUATT_WGMMA_INSTANCES(X) X(fp8_64) X(fp8_128)

// A build without sm_90a has none.
#if defined(QUATT_WITHOUT_WGMMA)
inline constexpr std::span<const schedule::Instance> kInstances;
#else
#if defined(__CUDACC__)
#define QUATT_EXTERN(name) \
    extern template void attend<name>(launch::Launcher&, const schedule::AttendParams&, u32);
QUATT_WGMMA_INSTANCES(QUATT_EXTERN)
#undef QUATT_EXTERN
#endif

#define QUATT_INSTANCE(name) schedule::instance_of<name>(sizeof(SharedPlan<name>), attend<name>),
inline constexpr schedule::Instance kInstances[] = {QUATT_WGMMA_INSTANCES(QUATT_INSTANCE)};
#undef QUATT_INSTANCE
#endif

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma

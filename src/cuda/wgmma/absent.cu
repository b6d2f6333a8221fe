// In place of inst/ in a build without sm_90a (QUATT_CUDA_ARCHITECTURES), where query refuses the
// schedule.
#include "cuda/wgmma/launch.cuh"

#define QUATT_DEFINE(name, ...)                                           \
    void attention_##name(tile::Launcher& launcher, const Params&, u32) { \
        launcher.error = cudaErrorNoKernelImageForDevice;                 \
        launcher.failed = "wgmma";                                        \
    }

namespace quatt::wgmma {
inline namespace QUATT_ABI {

QUATT_WGMMA_INSTANCES(QUATT_DEFINE)

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma

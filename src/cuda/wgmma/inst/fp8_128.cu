#include "cuda/wgmma/launch.cuh"

void quatt::wgmma::attention_fp8_128(tile::Launcher& launcher, const Params& params,
                                     u32 multiprocessors) {
    launch_attention<Config<128>>(launcher, params, multiprocessors);
}

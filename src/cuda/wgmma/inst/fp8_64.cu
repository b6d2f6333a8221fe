#include "cuda/wgmma/launch.cuh"

void quatt::wgmma::attention_fp8_64(tile::Launcher& launcher, const Params& params,
                                    u32 multiprocessors) {
    launch_attention<Config<64>>(launcher, params, multiprocessors);
}

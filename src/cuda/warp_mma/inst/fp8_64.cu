#include "cuda/warp_mma/launch.cuh"

void quatt::warp_mma::attention_fp8_64(tile::Launcher& launcher, const Params& params,
                                       u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kFp8, 64>>(launcher, params, multiprocessors);
}

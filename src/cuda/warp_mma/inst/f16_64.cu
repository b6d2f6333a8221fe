#include "cuda/warp_mma/launch.cuh"

void quatt::warp_mma::attention_f16_64(tile::Launcher& launcher, const Params& params,
                                       u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kF16, 64>>(launcher, params, multiprocessors);
}

#include "cuda/warp_mma/launch.cuh"

void quatt::warp_mma::attention_bf16_64(tile::Launcher& launcher, const Params& params,
                                        u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kBf16, 64>>(launcher, params, multiprocessors);
}

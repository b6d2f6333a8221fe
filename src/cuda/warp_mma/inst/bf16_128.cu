#include "cuda/warp_mma/launch.cuh"

void quatt::warp_mma::attention_bf16_128(tile::Launcher& launcher, const Params& params,
                                         u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kBf16, 128>>(launcher, params, multiprocessors);
}

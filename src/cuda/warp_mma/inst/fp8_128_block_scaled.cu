#include "cuda/warp_mma/launch.cuh"

void quatt::warp_mma::attention_fp8_128_block_scaled(tile::Launcher& launcher, const Params& params,
                                                     u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kFp8, 128, Atom::kBlockScaled>>(launcher, params,
                                                                        multiprocessors);
}

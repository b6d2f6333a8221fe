#include "cuda/warp_mma/launch.cuh"

// For GPUs with 100 KB of shared memory an SM, which bf16_128 does not fit.
void quatt::warp_mma::attention_bf16_128_narrow(tile::Launcher& launcher, const Params& params,
                                                u32 multiprocessors) {
    launch_attention<Config<Arithmetic::kBf16, 128, Atom::kNative, Mutant::kNone, 1>>(
        launcher, params, multiprocessors);
}

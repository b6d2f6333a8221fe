#include "cuda/warp_mma/launch.cuh"

template void quatt::warp_mma::attend<quatt::warp_mma::fp8_128>(
    quatt::launch::Launcher&, const quatt::schedule::AttendParams&, quatt::warp_mma::u32);

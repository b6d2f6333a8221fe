#include "cuda/wgmma/launch.cuh"

template void quatt::wgmma::attend<quatt::wgmma::fp8_128>(quatt::launch::Launcher&,
                                                          const quatt::schedule::AttendParams&,
                                                          quatt::wgmma::u32);

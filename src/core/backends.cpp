// Which backends this build has, and their order in the support table.
#include "core/backends.hpp"

#include <array>

namespace quatt::core {

#if !defined(QUATT_HAVE_CUDA)
constinit const Backend kCudaBackend{
    .device = QUATT_BACKEND_CUDA,
    .build_option = "-DQUATT_CUDA=ON (which needs CUDA's nvcc)",
};
constinit const Backend kEmuBackend{
    .device = QUATT_BACKEND_EMU,
    .build_option = kCudaBackend.build_option,
};
#endif
#if !defined(QUATT_HAVE_SIMT)
constinit const Backend kSimtBackend{
    .device = QUATT_BACKEND_SIMT,
    .host = true,
    .build_option = "-DQUATT_SIMT=ON (which needs Boost.Context)",
};
#endif

Backends backends() {
    static constexpr std::array kTable = {&kCudaBackend,    &kEmuBackend,       &kCpuBackend,
                                          &kEmulateBackend, &kReferenceBackend, &kSimtBackend};
    return kTable;
}

}  // namespace quatt::core

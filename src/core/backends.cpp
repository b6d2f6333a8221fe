// Which backends this build has, and their order in the support table.
#include "core/backends.hpp"

#include <array>

namespace quatt::core {

#if !defined(QUATT_HAVE_CUDA)
namespace {
constexpr const char* kCudaOption = "-DQUATT_CUDA=ON (which needs CUDA's nvcc)";
}  // namespace
constinit const Backend kCudaBackend{
    .device = QUATT_BACKEND_CUDA,
    .build_option = kCudaOption,
};
constinit const Backend kEmuBackend{
    .device = QUATT_BACKEND_EMU,
    .build_option = kCudaOption,
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

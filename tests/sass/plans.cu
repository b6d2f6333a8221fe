// Prints what config.hpp says of every kernel instance, as JSON: what the machine code alone does
// not tell.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <typeinfo>

#include "cuda/epilogue/zero_tail.cuh"
#include "cuda/quantize/launch.cuh"
#include "cuda/warp_mma/launch.cuh"
#include "cuda/wgmma/launch.cuh"
#include "cuda/worklist/build.cuh"

namespace {

using quatt::ptx::u32;

const char* separator = "{";

void print(const char* name, u32 threads, u32 shared_bytes, u32 ctas_per_sm) {
    std::printf("%s\n\"%s\": {\"threads\": %u, \"shared_bytes\": %u, \"ctas_per_sm\": %u",
                separator, name, threads, shared_bytes, ctas_per_sm);
    separator = "},";
}

// The template arguments by which the kernel of an instance is found among the symbols.
template <class C>
void print_arguments() {
    char* const name = abi::__cxa_demangle(typeid(C).name(), nullptr, nullptr, nullptr);
    std::printf(", \"arguments\": \"%s\"", name);
    std::free(name);
}

template <class C>
void print_attention(const char* name) {
    print(name, C::kThreads, sizeof(quatt::warp_mma::SharedPlan<C>), C::kCtasPerSm);
    print_arguments<C>();
    const u32 rows = 16 * C::kBlocks;
    const u32 products = C::kBlocks * (C::kScoreTiles * C::kKSteps + C::kOutTiles * C::kPSteps);
    std::printf(
        ", \"is_fp8\": %s, \"rows\": %u, \"keys\": %u, \"products\": %u, \"exponentials\": %u, "
        "\"stages\": %u",
        C::kIsPacked ? "true" : "false", rows, C::kKeys, products, rows * C::kKeys / 32,
        C::kStages);
}

// Of a warp: its quarter of a warpgroup's 64 rows.
template <class C>
void print_wgmma(const char* name) {
    print(name, C::kThreads, sizeof(quatt::wgmma::SharedPlan<C>), 1);
    print_arguments<C>();
    std::printf(
        ", \"is_fp8\": true, \"rows\": 16, \"keys\": %u, \"products\": %u, \"exponentials\": %u, "
        "\"stages\": %u, \"most_registers\": %u, \"shapes\": [\"64x%ux32\", \"64x%ux32\"]",
        C::kKeys, C::kKSteps + C::kPSteps, 16 * C::kKeys / 32, C::kStages, C::kConsumerRegisters,
        C::kKeys, C::kDim);
}

void print_quantize(const char* kernel, u32 dim, const quatt::quantize::LaunchShape& launch) {
    char name[64];
    std::snprintf(name, sizeof name, "%s_%u", kernel, dim);
    print(name, launch.threads, launch.shared_bytes, 1);
}

template <u32 Dim>
void print_quantize_of() {
    using namespace quatt::quantize;
    print_quantize("sample", Dim, sample_launch<Dim>(1, 1));
    print_quantize("pack", Dim, pack_launch<Dim>(1, 1, 1, 1));
    print_quantize("repack", Dim, repack_launch<Dim>(1));
    print_quantize("copy_rows", Dim, copy_rows_launch<Dim>(1, 1));
}

void print_warp_mma_instances() {
    using namespace quatt::warp_mma;
#define QUATT_PRINT(name) print_attention<name>(#name);
    QUATT_WARP_MMA_INSTANCES(QUATT_PRINT)
#undef QUATT_PRINT
}

void print_wgmma_instances() {
    using namespace quatt::wgmma;
#define QUATT_PRINT(name) print_wgmma<name>("wgmma_" #name);
    QUATT_WGMMA_INSTANCES(QUATT_PRINT)
#undef QUATT_PRINT
}

}  // namespace

int main() {
    print_warp_mma_instances();
    print_wgmma_instances();
    print_quantize_of<64>();
    print_quantize_of<128>();
    print("build_worklist", quatt::worklist::kBuildThreads, sizeof(quatt::worklist::BuildShared),
          1);
    print("zero_tail", quatt::epilogue::kTailThreads, 0, 1);
    std::printf("}\n}\n");
}

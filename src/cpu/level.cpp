#include "cpu/level.hpp"

#include "core/device.hpp"

namespace quatt::cpu {
namespace {

bool has_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
           core::cpu_has_f16c();
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
}
bool has_vnni() {
    return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0;
}
bool has_bf16() {
    return has_vnni() && __builtin_cpu_supports("avx512bf16") != 0;
}

bool always() {
    return true;
}
// vdpbf16ps has twice the rate of fp32 FMA on Zen 5, half of it on Intel (docs/perf/cpu.md).
bool bf16_is_fast() {
    return __builtin_cpu_is("amd") != 0;
}

// bf16 holds every code, times its UE4M3 scale where there is one.
bool exact_in_bf16(quatt_format f) {
    return f == QUATT_FORMAT_BF16 || f == QUATT_FORMAT_E4M3 || f == QUATT_FORMAT_E2M1;
}

}  // namespace

const std::array<Level, 4>& levels() {
    static constexpr std::array<Level, 4> kLevels = {{
        {"cpu_avx512_bf16", "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512BF16",
         &kAvx512Bf16Kernels, true, true, has_bf16, bf16_is_fast},
        {"cpu_avx512_vnni", "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI", &kAvx512VnniKernels,
         true, false, has_vnni, always},
        {"cpu_avx512", "AVX512F AVX512BW AVX512DQ AVX512VL", &kAvx512Kernels, false, false,
         has_avx512, always},
        {"cpu_avx2", "AVX2 FMA F16C", &kAvx2Kernels, false, false, has_avx2, always},
    }};
    return kLevels;
}

Product scores_product(const quatt_recipe& r, const Level& level) {
    if (level.int8 && r.q.format == QUATT_FORMAT_INT8 && r.k.format == QUATT_FORMAT_INT8) {
        return Product::kInt8;
    }
    return level.bf16 && exact_in_bf16(r.q.format) && exact_in_bf16(r.k.format) ? Product::kBf16
                                                                                : Product::kF32;
}

Product values_product(const quatt_recipe& r, const Level& level) {
    return level.bf16 && exact_in_bf16(r.p_format) && exact_in_bf16(r.v.format) ? Product::kBf16
                                                                                : Product::kF32;
}

}  // namespace quatt::cpu

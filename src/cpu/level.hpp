// Instruction-set levels: which this machine has, and which product each of them uses.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <string>

#include "cpu/kernels.hpp"

namespace quatt::cpu {

struct Level {
    const char* kernel;  // its name in the support table
    const char* needs;   // features, as quatt_cpu_features names them
    const Kernels* kernels;
    bool int8, bf16, f16;  // products that it has beside fp32
    bool (*supported)();   // by this processor and its system
    // Asks the system, once, for what it gives on request only; empty: given. Null: nothing to ask.
    std::string (*permission)() = nullptr;
    // false: correct, but no faster here than the levels after it. Null: always preferred.
    bool (*preferred)(const Level& level, const quatt_recipe& r) = nullptr;
};

// This processor and its system have it, and all that comes before it.
[[nodiscard]] bool has_avx2();
[[nodiscard]] bool has_avx512();
[[nodiscard]] bool has_avx512_vnni();
[[nodiscard]] bool has_avx512_bf16();
[[nodiscard]] bool has_avx512_fp16();  // after VNNI; without BF16
[[nodiscard]] bool has_amx();

[[nodiscard]] std::string ask_for_tiles();

// Values of Level::preferred.
[[nodiscard]] bool if_it_uses_tiles(const Level& level, const quatt_recipe& r);
[[nodiscard]] bool if_bf16_is_slow(const Level& level, const quatt_recipe& r);
[[nodiscard]] bool if_bf16_is_fast(const Level& level, const quatt_recipe& r);

// In order of preference; each is a row of the support table (rows.hpp).
inline constexpr std::array kLevels = {
    Level{
        .kernel = "cpu_amx",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512BF16 AMX-TILE AMX-INT8 "
                 "AMX-BF16",
        .kernels = &kAmxKernels,
        .int8 = true,
        .bf16 = true,
        .f16 = false,
        .supported = has_amx,
        .permission = ask_for_tiles,
        .preferred = if_it_uses_tiles,
    },
    Level{
        .kernel = "cpu_avx512_fp16",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512FP16",
        .kernels = &kAvx512Fp16Kernels,
        .int8 = true,
        .bf16 = false,
        .f16 = true,
        .supported = has_avx512_fp16,
        .preferred = if_bf16_is_slow,
    },
    Level{
        .kernel = "cpu_avx512_bf16",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512BF16",
        .kernels = &kAvx512Bf16Kernels,
        .int8 = true,
        .bf16 = true,
        .f16 = false,
        .supported = has_avx512_bf16,
        .preferred = if_bf16_is_fast,
    },
    Level{
        .kernel = "cpu_avx512_vnni",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI",
        .kernels = &kAvx512VnniKernels,
        .int8 = true,
        .bf16 = false,
        .f16 = false,
        .supported = has_avx512_vnni,
    },
    Level{
        .kernel = "cpu_avx512",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL",
        .kernels = &kAvx512Kernels,
        .int8 = false,
        .bf16 = false,
        .f16 = false,
        .supported = has_avx512,
    },
    Level{
        .kernel = "cpu_avx2",
        .needs = "AVX2 FMA F16C",
        .kernels = &kAvx2Kernels,
        .int8 = false,
        .bf16 = false,
        .f16 = false,
        .supported = has_avx2,
    },
};

// The products of a recipe's scores and values on a level. All of them multiply decoded codes
// exactly and sum them in fp32 or int32, kF16 the 64 keys of a tile in fp16.
[[nodiscard]] Product qk_product_of(const quatt_recipe& r, const Level& level);
[[nodiscard]] Product pv_product_of(const quatt_recipe& r, const Level& level);

}  // namespace quatt::cpu

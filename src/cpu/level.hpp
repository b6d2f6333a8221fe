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
    // Asks the system, once, for what it gives on request only; empty: given.
    std::string (*permission)();
    // false: correct, but no faster here than the levels after it
    bool (*preferred)(const quatt_recipe&);
};

// In order of preference.
[[nodiscard]] const std::array<Level, 6>& levels();

// The products of a recipe's scores and values on a level. All of them multiply decoded codes
// exactly and sum them in fp32 or int32, kF16 the 64 keys of a tile in fp16.
[[nodiscard]] Product scores_product(const quatt_recipe& r, const Level& level);
[[nodiscard]] Product values_product(const quatt_recipe& r, const Level& level);

}  // namespace quatt::cpu

// The FP8 accumulator of Hopper's tensor cores, for the emulation of recipes.
#pragma once

#include "formats/hopper_accumulator.hpp"  // IWYU pragma: export

namespace quatt::recipe {

using formats::hopper_step;
using formats::kHopperFractionBits;
using formats::kHopperStep;

}  // namespace quatt::recipe

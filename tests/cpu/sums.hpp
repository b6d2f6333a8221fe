// Kernels of the CPU that sum in fewer bits than fp32.
#pragma once
#include <quatt/quatt.h>

#include <string>

namespace quatt::test {

// How far fp16 sums of a tile may move a result beside fp32 sums, relative L2; 0 where a kernel has
// none. A tile's sum of 64 keys is rounded 64 times, each time by at most 2^-11 of what it is then.
// Were all of these as large as the last sum (one key that outweighs the tile) and of random sign,
// sqrt(64) 2^-11 would be their whole. Keys of like weight give less than half of it.
[[nodiscard]] inline double short_sums(const std::string& kernel, const quatt_recipe& r) {
    const bool fp16 = kernel.starts_with("cpu_avx512_fp16") && r.p_format == QUATT_FORMAT_E4M3 &&
                      r.v.format == QUATT_FORMAT_E4M3;
    return fp16 ? 8 * 0x1p-11 : 0;
}

}  // namespace quatt::test

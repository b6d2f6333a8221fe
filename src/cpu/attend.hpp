// A block of up to 128 query rows of one head against all its keys: the recipe as `emulate`
// computes it (recipe/emulate.cpp), in the order of sums of the kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/tiles.hpp"
#include "recipe/attend.hpp"

namespace quatt::cpu {

inline constexpr std::int64_t kBlockRows = 128;  // also the rows of Q that share a mean (nvfp4_fp8)

// A head's operands: q canonical, k and v packed; of k and v also the canonical scales and means.
struct PackedHead {
    recipe::CanonicalHead q, k, v;
    const std::byte *k_tiles, *v_tiles;
};

struct BlockOptions {
    const quatt_recipe* recipe;
    const Kernels* kernels;
    TileShape shape;
    std::int64_t splits;
};

[[nodiscard]] std::size_t block_scratch_bytes(const TileShape& s);

// scratch: 64-byte aligned. Rows ascend and are consecutive.
void attend_block(const recipe::HeadProblem& p, const BlockOptions& o, const PackedHead& head,
                  std::span<const std::int64_t> rows, std::span<std::byte> scratch);

}  // namespace quatt::cpu

// Keys and values of a head, packed in tiles of 64 keys as the products read them (kernels.hpp).
// Where the product is kF32, a tile is kept as 16-bit numbers and widened when it is used.
#pragma once
#include <quatt/quatt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/level.hpp"
#include "recipe/quantize.hpp"

namespace quatt::cpu {

inline constexpr std::int64_t kLine = 64;  // bytes, the alignment of tiles

struct TileShape {
    Product qk, pv;
    std::int64_t dim, dim_v;
    std::int64_t row_step;  // rows are padded to a multiple of it
    std::int64_t steps;     // 32-bit units of a row of q
    std::int64_t dv;        // channels of V, padded

    TileShape(const quatt_recipe& r, const Level& level, std::int64_t head_dim,
              std::int64_t head_dim_v);

    [[nodiscard]] std::int64_t k_bytes() const;  // of one tile
    [[nodiscard]] std::int64_t v_bytes() const { return v_codes_bytes() + kLine; }
    [[nodiscard]] std::int64_t v_codes_bytes() const { return kTile * dv * 2; }
    // fp32 numbers of a tile that is widened; 0 where none is
    [[nodiscard]] std::int64_t k_floats() const { return qk == Product::kF32 ? dim * kTile : 0; }
    [[nodiscard]] std::int64_t v_floats() const { return pv == Product::kF32 ? kTile * dv : 0; }
};

[[nodiscard]] constexpr std::int64_t padded(std::int64_t n, std::int64_t step) {
    return (n + step - 1) / step * step;
}

[[nodiscard]] constexpr std::int64_t tiles_of(std::int64_t keys) {
    return (keys + kTile - 1) / kTile;
}

// The 16-bit format of a tile that is widened.
[[nodiscard]] inline bool kept_as_f16(const quatt_operand_recipe& r) {
    return r.format == QUATT_FORMAT_F16;
}

// Row j of Q, or its mean row of a block, as the scores' product reads it: [steps] units. What is
// past the channels is 0.
void pack_query(const quatt_operand_recipe& r, const recipe::CanonicalHead& q, std::int64_t j,
                const TileShape& s, std::uint32_t* to);
void pack_query_mean(const quatt_operand_recipe& r, const recipe::CanonicalHead& q,
                     std::int64_t block, const TileShape& s, std::uint32_t* to);
// All tiles of a head; keys past the last are 0.
void pack_keys(const quatt_operand_recipe& r, const recipe::CanonicalHead& k, const TileShape& s,
               std::byte* to);
// A tile of V holds 0 for what is not finite: the product has 0 times it for a row that does not
// see the key. Its last line says which keys have such values, a bit each.
void pack_values(const quatt_operand_recipe& r, const recipe::CanonicalHead& v, const TileShape& s,
                 std::byte* to);
[[nodiscard]] inline std::uint64_t keys_not_finite(const std::byte* v_tile, const TileShape& s) {
    std::uint64_t keys;
    std::memcpy(&keys, v_tile + s.v_codes_bytes(), sizeof keys);
    return keys;
}

}  // namespace quatt::cpu

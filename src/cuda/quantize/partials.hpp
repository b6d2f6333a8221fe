// The partial statistics of K and V, one a tile of 128 keys. Plain C++: the host knows their
// extents too.
#pragma once

#include "cuda/tile/packed.hpp"

namespace quatt::quantize {

inline constexpr std::uint32_t kStatTile = 128;  // keys that one partial covers
// Channel sums of K, and of V sums, minima and maxima.
enum Stat : std::uint32_t { kKSum, kVSum, kVMin, kVMax, kStats };

[[nodiscard]] QUATT_HD constexpr std::int64_t stat_slots(std::int64_t keys, std::int64_t segments) {
    return tile::tiles_of(keys, segments, kStatTile);
}
// Floats: [Hkv, stat slots, kStats, dim].
[[nodiscard]] QUATT_HD constexpr std::int64_t partials(const tile::PackedShape& s) {
    return s.heads_kv * stat_slots(s.keys, s.segments) * kStats * s.dim;
}

}  // namespace quatt::quantize

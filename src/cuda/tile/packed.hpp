// Packed operands: what the quantisers write and the attention kernels of 8-bit recipes read. The
// one description of their tiles, for workspace, quantisers and kernels. Plain C++: the host knows
// it too.
//
//   Q     [Hq, query tiles, 64 rows, dim]    E4M3, the 16-byte chunks of a row swizzled
//   K     [Hkv, key tiles, 64 keys, dim]     likewise
//   V^T   [Hkv, key tiles, dim, 64 keys]     likewise, keys in stored order
//   scale of K      [Hkv, key tiles, 4]      fp32, the first of each four; the second and third are
//                                            bits: which keys of the tile are far from V's centre
//   scale, mean of V  [segments, Hkv, dim]   fp32
//   factor of Q       [Hq, queries]          fp32: scale * softmax_scale * log2 e
//
// `dim` is the head size padded with zero channels to 64 or 128. Each segment begins with a tile of
// its own: segment number s at tile first_tile(its first token, s). No two meet, since floor((a +
// b) / n) + 1 >= floor(a / n) + ceil(b / n), and extents follow from capacities alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::tile {

inline constexpr std::uint32_t kKeyTile = 64;    // keys of a packed tile, and of a K scale
inline constexpr std::uint32_t kQueryTile = 64;  // rows of a packed Q tile
// K scales are so many floats apart, because a bulk copy moves 16 bytes at least.
inline constexpr std::uint32_t kKeyScaleStride = 4;

// Number of `index`'s segment's first tile of `tile_tokens` tokens.
[[nodiscard]] QUATT_HD constexpr std::int32_t first_tile(std::int64_t first_token,
                                                         std::uint32_t index,
                                                         std::uint32_t tile_tokens) {
    return static_cast<std::int32_t>(first_token / tile_tokens + index);
}
// Tiles over all segments of so many tokens: each may end in one that is not full.
[[nodiscard]] QUATT_HD constexpr std::int64_t tiles_of(std::int64_t tokens, std::int64_t segments,
                                                       std::uint32_t tile_tokens) {
    return tokens / tile_tokens + segments;
}

// Bytes of packed tiles are swizzled in 16-byte chunks inside a row, as wgmma has it for rows of
// 128 and 64 bytes, so that a tile copied flat into shared memory has the 8 rows of an ldmatrix
// matrix in different banks too.
[[nodiscard]] QUATT_HD constexpr std::uint32_t swizzled_chunk(std::uint32_t row_bytes,
                                                              std::uint32_t row,
                                                              std::uint32_t chunk) {
    return row_bytes == 128 ? chunk ^ (row & 7) : chunk ^ (row / 2 & 3);
}

// Extents of a problem's packed operands, from its capacities.
struct PackedShape {
    std::int64_t segments = 0, queries = 0, keys = 0;  // over all segments
    std::int64_t heads_q = 0, heads_kv = 0, dim = 0;

    [[nodiscard]] QUATT_HD constexpr std::int64_t query_tiles() const {
        return tiles_of(queries, segments, kQueryTile);
    }
    [[nodiscard]] QUATT_HD constexpr std::int64_t key_tiles() const {
        return tiles_of(keys, segments, kKeyTile);
    }
    // Elements; a code is a byte.
    [[nodiscard]] QUATT_HD constexpr std::int64_t q_codes() const {
        return heads_q * query_tiles() * kQueryTile * dim;
    }
    [[nodiscard]] QUATT_HD constexpr std::int64_t q_rows() const { return heads_q * queries; }
    [[nodiscard]] QUATT_HD constexpr std::int64_t k_codes() const {  // and of V
        return heads_kv * key_tiles() * kKeyTile * dim;
    }
    [[nodiscard]] QUATT_HD constexpr std::int64_t k_scales() const {
        return heads_kv * key_tiles() * kKeyScaleStride;
    }
    [[nodiscard]] QUATT_HD constexpr std::int64_t channels() const {  // of K or V of all segments
        return segments * heads_kv * dim;
    }
};

}  // namespace quatt::tile

// Quantisation of one head of one segment into the canonical layout: what a recipe means, before
// any kernel packs it its own way.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "recipe/head_view.hpp"

namespace quatt::recipe {

inline constexpr std::int64_t kMaxHeadDim = 256;

// Extents of the canonical arrays of one head with `tokens` rows. All groups and blocks start at
// the segment's first token.
struct CanonicalShape {
    std::int64_t code_bytes = 1;      // 1, bf16 and f16 2, f32 4; E2M1 codes are not packed here
    std::int64_t token_groups = 0;    // rows of scales
    std::int64_t channel_groups = 0;  // columns of scales
    std::int64_t mean_blocks = 0;     // rows of mean
    std::int64_t norm_blocks = 0;     // entries of norm
    std::int64_t far_words = 0;       // entries of far
    bool mean_row_codes = false;      // the mean rows are quantised too (q_mean_term)
};

[[nodiscard]] CanonicalShape canonical_shape(const quatt_operand_recipe& r, bool mean_term,
                                             std::int64_t tokens, std::int64_t channels);

// x ~ mean + norm * scale * decode(code), without the mean for tokens that are far from it. Views
// of memory that the caller provides.
struct CanonicalHead {
    std::byte* codes = nullptr;  // [tokens, channels]
    float* scales =
        nullptr;  // [token_groups, channel_groups]; UE4M3 scales as the number they decode to
    float* mean = nullptr;            // [mean_blocks, channels]; bf16 numbers
    std::uint64_t* far = nullptr;     // [far_words]: bit j % 64 of word j / 64 is token j's
    float* norm = nullptr;            // [norm_blocks]; powers of two
    std::byte* mean_codes = nullptr;  // [mean_blocks, channels]
    float* mean_scales = nullptr;     // [mean_blocks, channel_groups]
    std::int64_t tokens = 0, channels = 0;
    CanonicalShape shape;
};

// Row of `scales` that token j uses.
[[nodiscard]] inline std::int64_t token_group(const quatt_operand_recipe& r, std::int64_t j) {
    if (r.key_groups != 0) {
        return j / 32 * 2 + j % 8 / 4;  // 16 keys {8i + 4b + 0..3 : i = 0..3} of each 32
    }
    return r.group_tokens == 0 ? 0 : j / r.group_tokens;
}

[[nodiscard]] inline bool is_far_token(const CanonicalHead& h, std::int64_t j) {
    return h.shape.far_words > 0 && (h.far[j / 64] >> j % 64 & 1) != 0;
}

// Fills `to`; reads x up to four times. A group with a value that is not finite gets the scale
// NaN, so that all of it is NaN. A finite value that a 16-bit format cannot hold becomes NaN.
// Returns QUATT_DATA_* bits: whether there was one.
std::int32_t quantize(const quatt_operand_recipe& r, const HeadView& x, const CanonicalHead& to);

// Row j as decode(code), times its scale where that is UE4M3 (the block-scaled tensor-core
// operand). fp32 scales and norm are not in it.
void decode_row(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t j, float* out);

// The quantised mean row of block b, likewise.
void decode_mean_row(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t b,
                     float* out);

// What multiplies a row's products: its fp32 scale (1 for other scale formats) times norm.
[[nodiscard]] float row_factor(const quatt_operand_recipe& r, const CanonicalHead& h,
                               std::int64_t j);

// What multiplies each channel of V in the end: its fp32 scale (1 for other scale formats) times
// norm.
void channel_factors(const quatt_operand_recipe& r, const CanonicalHead& h, float* out);

}  // namespace quatt::recipe

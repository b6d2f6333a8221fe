// Attention of one head of one segment, rows in small blocks: what the two portable devices
// compute.
//   reference_rows: exact, in fp64, on the inputs as given
//   emulate_rows:   the recipe step by step, on quantised operands (docs/recipes.md)
// Neither allocates; a caller runs any number of blocks at once, each with a scratch of its own.
#pragma once
#include <quatt/quatt.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "recipe/head_view.hpp"
#include "recipe/quantize.hpp"

namespace quatt::recipe {

inline constexpr std::int64_t kRowBlock = 64;     // rows of one call
inline constexpr std::int64_t kMaxKeyTile = 256;  // keys of a tile

// Keys that query row i sees: [first(i), last(i)), a contiguous range. Bottom-right aligned.
struct Mask {
    std::int64_t q_len = 0, k_len = 0;
    bool causal = false;
    std::int64_t left = -1, right = -1;  // -1 = open

    [[nodiscard]] std::int64_t first(std::int64_t i) const {
        // NOTE: compared before subtracting: left may be as large as int64 allows.
        const std::int64_t p = i + k_len - q_len;
        return left < 0 || p <= left ? 0 : std::min(p - left, k_len);
    }
    [[nodiscard]] std::int64_t last(std::int64_t i) const {
        const std::int64_t p = i + k_len - q_len;
        std::int64_t end = k_len;
        if (right >= 0 && right < k_len - 1 - p) {
            end = p + right + 1;
        }
        if (causal) {
            end = std::min(end, p + 1);
        }
        return std::max(end, first(i));
    }
};

// Where the results of a head go. Rows are of the segment, strides in elements.
struct HeadOutput {
    std::byte* out = nullptr;
    quatt_dtype dtype = QUATT_NONE;
    std::int64_t token_stride = 0, channel_stride = 0, channels = 0;
    float* lse = nullptr;  // null: not wanted
    std::int64_t lse_stride = 0;
    float* light_mass = nullptr;  // likewise; reference only
    std::int64_t light_stride = 0;
};

struct HeadProblem {
    Mask mask;
    float softmax_scale = 1.0f;
    bool has_sink = false;
    float sink = 0;  // natural logit
    HeadView q, k, v;
    HeadOutput to;
};

void reference_rows(const HeadProblem& p, std::span<const std::int64_t> rows,
                    std::span<std::byte> scratch);
[[nodiscard]] std::size_t reference_scratch_bytes(std::int64_t head_dim, std::int64_t head_dim_v);

struct EmulateOptions {
    const quatt_recipe* recipe = nullptr;
    std::int64_t key_tile = 64;
    std::int64_t splits = 1;
};

void emulate_rows(const HeadProblem& p, const EmulateOptions& o, const CanonicalHead& q,
                  const CanonicalHead& k, const CanonicalHead& v,
                  std::span<const std::int64_t> rows, std::span<std::byte> scratch,
                  quatt_counters& counters);
[[nodiscard]] std::size_t emulate_scratch_bytes(std::int64_t head_dim, std::int64_t head_dim_v,
                                                std::int64_t key_tile);

// Ends a row: o [channels of v] and l are the sums under the running max m, l_far the part of l
// that belongs to tokens far from V's centre. The sink joins, scales and means of V and the LSE
// that smoothing K took come back, and the row is stored.
void finish_row(const HeadProblem& p, const quatt_recipe& r, const CanonicalHead& k,
                const CanonicalHead& v, std::int64_t row, float m, float l, float l_far,
                const float* o);

// Writes one row of results, converted to the output's dtype, and its lse where wanted.
void store_row(const HeadOutput& to, std::int64_t row, const float* values, float lse);
// Zeroes a row: out = 0, lse = -inf.
void zero_row(const HeadOutput& to, std::int64_t row);

}  // namespace quatt::recipe

#include "cpu/tiles.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/f16.hpp"
#include "formats/platform.hpp"

namespace quatt::cpu {
namespace {

using recipe::kMaxHeadDim;

constexpr std::int32_t kByteOffset = 128;  // rows are unsigned in vpdpbusd

// The bf16 number that x is.
std::uint16_t bf16_of(float x) {
    return static_cast<std::uint16_t>(formats::bit_cast<std::uint32_t>(x) >> 16);
}

std::uint32_t pair(float low, float high) {
    return bf16_of(low) | static_cast<std::uint32_t>(bf16_of(high)) << 16;
}

// Rows of one tile as numbers; what is past the last key or channel is 0.
struct Rows {
    std::array<std::array<float, kMaxHeadDim>, kTile> x;

    void load(const quatt_operand_recipe& r, const recipe::CanonicalHead& h, std::int64_t tile) {
        for (std::int64_t j = 0; j < kTile; j++) {
            std::array<float, kMaxHeadDim>& row = x[static_cast<std::size_t>(j)];
            row.fill(0.0f);
            if (tile * kTile + j < h.tokens) {
                recipe::decode_row(r, h, tile * kTile + j, row.data());
            }
        }
    }
    [[nodiscard]] float at(std::int64_t j, std::int64_t d) const {
        return d < kMaxHeadDim ? x[static_cast<std::size_t>(j)][static_cast<std::size_t>(d)] : 0;
    }
};

void pack_int8(const Rows& rows, const TileShape& s, std::uint32_t* to) {
    for (std::int64_t j = 0; j < kTile; j++) {
        std::int32_t sum = 0;
        for (std::int64_t k = 0; k < s.steps; k++) {
            std::uint32_t unit = 0;
            for (std::int64_t e = 0; e < 4; e++) {
                const auto code = static_cast<std::int32_t>(rows.at(j, 4 * k + e));
                sum += code;
                unit |= static_cast<std::uint32_t>(code & 0xFF) << (8 * e);
            }
            to[kTile + k * kTile + j] = unit;
        }
        to[j] = static_cast<std::uint32_t>(-kByteOffset * sum);
    }
}

}  // namespace

TileShape::TileShape(const quatt_recipe& r, const Level& level, std::int64_t head_dim,
                     std::int64_t head_dim_v)
    : scores(scores_product(r, level)),
      values(values_product(r, level)),
      dim(head_dim),
      dim_v(head_dim_v),
      steps((head_dim + elements(scores) - 1) / elements(scores)),
      dv((head_dim_v + kChannelStep - 1) / kChannelStep * kChannelStep) {}

std::int64_t TileShape::k_bytes() const {
    switch (scores) {
        case Product::kInt8:
            return (1 + steps) * kTile * 4;
        case Product::kBf16:
            return steps * kTile * 4;
        default:
            return dim * kTile * 2;
    }
}

std::int64_t TileShape::v_bytes() const {
    return kTile * dv * 2;
}

void pack_query(const TileShape& s, const float* row, std::uint32_t* to) {
    const auto at = [&](std::int64_t d) { return d < s.dim ? row[d] : 0.0f; };
    for (std::int64_t k = 0; k < s.steps; k++) {
        switch (s.scores) {
            case Product::kInt8:
                to[k] = 0;
                for (std::int64_t e = 0; e < 4; e++) {
                    const auto code = static_cast<std::int32_t>(at(4 * k + e)) + kByteOffset;
                    to[k] |= static_cast<std::uint32_t>(code) << (8 * e);
                }
                break;
            case Product::kBf16:
                to[k] = pair(at(2 * k), at(2 * k + 1));
                break;
            default:
                std::memcpy(to + k, row + k, sizeof(float));
        }
    }
}

void pack_keys(const quatt_operand_recipe& r, const recipe::CanonicalHead& k, const TileShape& s,
               std::byte* to) {
    Rows rows;
    for (std::int64_t tile = 0; tile < tiles_of(k.tokens); tile++, to += s.k_bytes()) {
        rows.load(r, k, tile);
        if (s.scores == Product::kInt8) {
            pack_int8(rows, s, reinterpret_cast<std::uint32_t*>(to));
        } else if (s.scores == Product::kBf16) {
            auto* unit = reinterpret_cast<std::uint32_t*>(to);
            for (std::int64_t d = 0; d < s.steps; d++) {
                for (std::int64_t j = 0; j < kTile; j++) {
                    unit[d * kTile + j] = pair(rows.at(j, 2 * d), rows.at(j, 2 * d + 1));
                }
            }
        } else {
            auto* number = reinterpret_cast<std::uint16_t*>(to);
            for (std::int64_t d = 0; d < s.dim; d++) {
                for (std::int64_t j = 0; j < kTile; j++) {
                    const float x = rows.at(j, d);
                    number[d * kTile + j] = kept_as_f16(r) ? formats::F16::encode(x) : bf16_of(x);
                }
            }
        }
    }
}

void pack_values(const quatt_operand_recipe& r, const recipe::CanonicalHead& v, const TileShape& s,
                 std::byte* to) {
    Rows rows;
    for (std::int64_t tile = 0; tile < tiles_of(v.tokens); tile++, to += s.v_bytes()) {
        rows.load(r, v, tile);
        if (s.values == Product::kBf16) {
            auto* unit = reinterpret_cast<std::uint32_t*>(to);
            for (std::int64_t j = 0; j < kTile; j += 2) {
                for (std::int64_t d = 0; d < s.dv; d++) {
                    unit[j / 2 * s.dv + d] = pair(rows.at(j, d), rows.at(j + 1, d));
                }
            }
        } else {
            auto* number = reinterpret_cast<std::uint16_t*>(to);
            for (std::int64_t j = 0; j < kTile; j++) {
                for (std::int64_t d = 0; d < s.dv; d++) {
                    const float x = rows.at(j, d);
                    number[j * s.dv + d] = kept_as_f16(r) ? formats::F16::encode(x) : bf16_of(x);
                }
            }
        }
    }
}

}  // namespace quatt::cpu

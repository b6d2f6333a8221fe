#include "cpu/tiles.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/bf16.hpp"
#include "formats/f16.hpp"
#include "recipe/rows.hpp"

namespace quatt::cpu {
namespace {

using recipe::CanonicalHead;
using recipe::kMaxHeadDim;

constexpr std::uint32_t kSigns = 0x80808080;  // flips four int8 codes to code + 128, unsigned

// Row j in 16-bit numbers, which hold every code: f16 where kept_as_f16, else bf16.
void row_in_16_bits(const quatt_operand_recipe& r, const CanonicalHead& h, std::int64_t j,
                    std::uint16_t* to) {
    const std::byte* codes = h.codes + j * h.channels * h.shape.code_bytes;
    if (h.shape.code_bytes == 2) {
        std::memcpy(to, codes, static_cast<std::size_t>(2 * h.channels));
    } else if (r.scale_format != QUATT_SCALE_UE4M3) {
        recipe::narrow_codes_as_bf16(r.format, codes, h.channels, to);
    } else {
        std::array<float, kMaxHeadDim> row;
        recipe::decode_row(r, h, j, row.data());
        recipe::encode_row(QUATT_FORMAT_BF16, row.data(), h.channels,
                           reinterpret_cast<std::byte*>(to));
    }
}

// E4M3 codes times 2^-8 in f16: 2^-8 is the difference of the biases, so each number, subnormal or
// not, has the code's own bits. NaN (0x7F) stays NaN.
void e4m3_as_f16(const std::byte* codes, std::int64_t n, std::uint16_t* to) {
    for (std::int64_t i = 0; i < n; i++) {
        const auto c = static_cast<std::uint32_t>(codes[i]);
        const std::uint32_t magnitude = (c & 0x7F) == 0x7F ? 0x7E00 : (c & 0x7F) << 7;
        to[i] = static_cast<std::uint16_t>((c & 0x80) << 8 | magnitude);
    }
}

// Puts 0 where a number of 16 bits is not finite, and says whether there was one. n is a multiple
// of 4. exponent: the bits that are all set then; its lowest bit, added, carries into the sign's
// place.
bool take_out_not_finite(std::uint16_t* row, std::int64_t n, std::uint16_t exponent) {
    constexpr std::uint64_t kEach = 0x0001'0001'0001'0001;
    const std::uint64_t mask = exponent * kEach, lowest = mask & ~(mask << 1);
    std::uint64_t any = 0;
    for (std::int64_t d = 0; d < n; d += 4) {
        std::uint64_t four;
        std::memcpy(&four, row + d, sizeof four);
        any |= (four & mask) + lowest;
    }
    if ((any & 0x8000 * kEach) == 0) {
        return false;
    }
    for (std::int64_t d = 0; d < n; d++) {
        row[d] = (row[d] & exponent) == exponent ? std::uint16_t{0} : row[d];
    }
    return true;
}

// A row of units, of bytes or 16-bit numbers; what is past its channels is 0.
struct Row {
    alignas(64) std::array<std::uint16_t, kMaxHeadDim + 4> x{};

    void load(const TileShape& s, const quatt_operand_recipe& r, const CanonicalHead& h,
              std::int64_t j) {
        if (s.qk == Product::kInt8) {
            std::memcpy(x.data(), h.codes + j * h.channels, static_cast<std::size_t>(h.channels));
        } else {
            row_in_16_bits(r, h, j, x.data());
        }
    }
};

// Some rows of a tile, one beside the other: all 64 would be too much for a small stack.
constexpr std::int64_t kTurnedRows = 16;

template <class T>
struct Rows {
    alignas(64) std::array<T, kTurnedRows * kMaxHeadDim> x;

    // 16 columns of to [steps][64] = the rows [16][steps] turned
    void turn(std::int64_t steps, T* to) const {
        for (std::int64_t k = 0; k < steps; k++) {
            for (std::int64_t j = 0; j < kTurnedRows; j++) {
                to[k * kTile + j] = x[static_cast<std::size_t>(j * steps + k)];
            }
        }
    }
};

// Minus 128 times the sum of a key's codes: what takes the 128 out of the products again.
std::int32_t correction(const CanonicalHead& k, std::int64_t j) {
    std::int32_t sum = 0;
    for (std::int64_t d = 0; d < k.channels; d++) {
        sum += static_cast<std::int8_t>(k.codes[j * k.channels + d]);
    }
    return -128 * sum;
}

// Keys of a product of 32-bit units.
void pack_units(const quatt_operand_recipe& r, const CanonicalHead& k, const TileShape& s,
                std::int64_t tile, std::uint32_t* to) {
    Rows<std::uint32_t> rows;
    std::uint32_t* const units = to + (s.qk == Product::kInt8 ? kTile : 0);
    for (std::int64_t j0 = 0; j0 < kTile; j0 += kTurnedRows) {
        for (std::int64_t j = 0; j < kTurnedRows; j++) {
            const std::int64_t key = tile * kTile + j0 + j;
            Row row;
            if (key < k.tokens) {
                row.load(s, r, k, key);
            }
            std::memcpy(rows.x.data() + j * s.steps, row.x.data(),
                        static_cast<std::size_t>(4 * s.steps));
            if (s.qk == Product::kInt8) {
                to[j0 + j] = key < k.tokens ? static_cast<std::uint32_t>(correction(k, key)) : 0;
            }
        }
        rows.turn(s.steps, units + j0);
    }
}

}  // namespace

TileShape::TileShape(const quatt_recipe& r, const Level& level, std::int64_t head_dim,
                     std::int64_t head_dim_v)
    : qk(qk_product_of(r, level)),
      pv(pv_product_of(r, level)),
      dim(head_dim),
      dim_v(head_dim_v),
      row_step(level.kernels->row_step),
      steps(padded((head_dim + elements(qk) - 1) / elements(qk),
                   qk == Product::kF32 ? 1 : level.kernels->unit_step)),
      dv(padded(head_dim_v, channel_step(pv))) {}

std::int64_t TileShape::k_bytes() const {
    switch (qk) {
        case Product::kInt8:
            return (1 + steps) * kTile * 4;
        case Product::kBf16:
            return steps * kTile * 4;
        default:
            return dim * kTile * 2;
    }
}

void pack_query(const quatt_operand_recipe& r, const CanonicalHead& q, std::int64_t j,
                const TileShape& s, std::uint32_t* to) {
    if (s.qk == Product::kF32) {
        recipe::decode_row(r, q, j, reinterpret_cast<float*>(to));
        return;
    }
    Row row;
    row.load(s, r, q, j);
    std::memcpy(to, row.x.data(), static_cast<std::size_t>(4 * s.steps));
    for (std::int64_t k = 0; s.qk == Product::kInt8 && k < s.steps; k++) {
        to[k] ^= kSigns;
    }
}

void pack_query_mean(const quatt_operand_recipe& r, const CanonicalHead& q, std::int64_t block,
                     const TileShape& s, std::uint32_t* to) {
    std::array<float, kMaxHeadDim + 2> mean{};
    recipe::decode_mean_row(r, q, block, mean.data());
    if (s.qk == Product::kF32) {
        std::memcpy(to, mean.data(), static_cast<std::size_t>(4 * s.steps));
    } else {
        recipe::encode_row(QUATT_FORMAT_BF16, mean.data(), 2 * s.steps,
                           reinterpret_cast<std::byte*>(to));
    }
}

void pack_keys(const quatt_operand_recipe& r, const CanonicalHead& k, const TileShape& s,
               std::byte* to) {
    for (std::int64_t tile = 0; tile < tiles_of(k.tokens); tile++, to += s.k_bytes()) {
        if (s.qk != Product::kF32) {
            pack_units(r, k, s, tile, reinterpret_cast<std::uint32_t*>(to));
            continue;
        }
        Rows<std::uint16_t> rows;
        for (std::int64_t j0 = 0; j0 < kTile; j0 += kTurnedRows) {
            for (std::int64_t j = 0; j < kTurnedRows; j++) {
                const std::int64_t key = tile * kTile + j0 + j;
                std::uint16_t* row = rows.x.data() + j * s.dim;
                if (key < k.tokens) {
                    row_in_16_bits(r, k, key, row);
                } else {
                    std::fill(row, row + s.dim, std::uint16_t{0});
                }
            }
            rows.turn(s.dim, reinterpret_cast<std::uint16_t*>(to) + j0);
        }
    }
}

void pack_values(const quatt_operand_recipe& r, const CanonicalHead& v, const TileShape& s,
                 std::byte* to) {
    const std::uint16_t exponent =
        s.pv == Product::kF16 || kept_as_f16(r) ? formats::F16::kInf : formats::Bf16::kInf;
    alignas(64) std::array<std::uint16_t, 2 * kMaxHeadDim> pair{};
    for (std::int64_t tile = 0; tile < tiles_of(v.tokens); tile++) {
        std::uint64_t not_finite = 0;
        for (std::int64_t j = 0; j < kTile; j += 2, to += 4 * s.dv) {
            for (std::int64_t e = 0; e < 2; e++) {
                std::uint16_t* row = pair.data() + e * s.dv;
                const std::int64_t key = tile * kTile + j + e;
                if (key >= v.tokens) {
                    std::fill(row, row + s.dv, std::uint16_t{0});
                    continue;
                }
                if (s.pv == Product::kF16) {
                    e4m3_as_f16(v.codes + key * v.channels, v.channels, row);
                } else {
                    row_in_16_bits(r, v, key, row);
                }
                if (take_out_not_finite(row, s.dv, exponent)) {
                    not_finite |= std::uint64_t{1} << (j + e);
                }
            }
            auto* out = reinterpret_cast<std::uint16_t*>(to);
            if (s.pv != Product::kBf16) {
                std::memcpy(out, pair.data(), static_cast<std::size_t>(4 * s.dv));
                continue;
            }
            for (std::int64_t d = 0; d < s.dv; d++) {
                out[2 * d] = pair[static_cast<std::size_t>(d)];
                out[2 * d + 1] = pair[static_cast<std::size_t>(s.dv + d)];
            }
        }
        std::memset(to, 0, static_cast<std::size_t>(kLine));
        std::memcpy(to, &not_finite, sizeof not_finite);
        to += kLine;
    }
}

}  // namespace quatt::cpu

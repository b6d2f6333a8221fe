// The loops that are compiled once per instruction-set level (level_kernels.hpp, levels/*.cpp), and
// the layouts that they read. All of them work on one tile of 64 keys and a block of rows, padded
// to a multiple of four.
//
// A tile is a matrix of 32-bit units, [steps, columns]; each unit holds the elements of one column
// that one instruction multiplies and adds:
//   product  unit
//   kF32     1 fp32 number                        vfmadd
//   kBf16    2 bf16 numbers                       vdpbf16ps
//   kInt8    4 bytes: rows + 128, keys as int8    vpdpbusd
// Scores: rows q [rows, steps] along channels, times K^T [steps, 64 keys].
// Values: rows p [rows, steps] along keys, times V [steps, dv channels padded to 16].
#pragma once
#include <quatt/quatt.h>

#include <cstdint>

#include "recipe/softmax_law.hpp"

namespace quatt::cpu {

inline constexpr std::int64_t kTile = 64;         // keys
inline constexpr std::int64_t kRowStep = 4;       // rows that the products work on together
inline constexpr std::int64_t kChannelStep = 16;  // dv is padded to a multiple of it
inline constexpr std::int64_t kSumLanes = 16;     // partial sums of l a row

enum class Product { kF32, kBf16, kInt8 };

// Elements in a 32-bit unit.
[[nodiscard]] constexpr std::int64_t elements(Product p) {
    return p == Product::kF32 ? 1 : p == Product::kBf16 ? 2 : 4;
}

// What the softmax of a block of rows and one tile reads and writes.
struct Meeting {
    const quatt_recipe* recipe;
    std::int64_t interval;    // of the tile
    std::int64_t rows;        // not padded
    const float* t;           // [rows, 64]: products
    const float* mean_term;   // [64]: products of the mean row of Q with the keys; null: none
    float key_factor;         // of all keys of the tile
    const float* row_factor;  // [rows]
    const std::int32_t *first, *last;  // [rows]: keys of the tile that a row sees, [first, last)
    recipe::RowReference* reference;   // [rows]
    float* l;                          // [rows, kSumLanes]: partial sums, under the reference
    float* factor;                     // [rows] out: what O is to be multiplied by
    std::uint32_t* p;                  // [rows, 64 / elements] out: rounded P
};

struct Kernels {
    // c [rows, 64] = q . k. kInt8: the tile begins with 64 int32, minus 128 times the sum of each
    // key, which undo the 128 in q.
    void (*scores[3])(const std::uint32_t* q, const std::uint32_t* k, std::int64_t rows,
                      std::int64_t steps, float* c);
    // o [rows, dv] = o * factor[row] + p . v; by kF32, kBf16
    void (*values[2])(const std::uint32_t* p, const std::uint32_t* v, std::int64_t rows,
                      std::int64_t dv, const float* factor, float* o);
    // The law of the softmax reference, row by row; P as kF32, kBf16
    void (*meet[2])(const Meeting& m);
    // Tiles of 16-bit numbers as fp32: count is a multiple of 16
    void (*widen_bf16)(const std::uint16_t* from, std::int64_t count, float* to);
    void (*widen_f16)(const std::uint16_t* from, std::int64_t count, float* to);
};

extern const Kernels kAvx2Kernels, kAvx512Kernels, kAvx512VnniKernels, kAvx512Bf16Kernels;

}  // namespace quatt::cpu

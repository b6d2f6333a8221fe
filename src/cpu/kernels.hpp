// The loops that are compiled once per instruction-set level (level_kernels.hpp, levels/*.cpp), and
// the layouts that they read. All of them work on one tile of 64 keys and a block of rows, padded
// to a multiple of four, or of the 16 of AMX.
//
// A tile is a matrix of 32-bit units, [steps, columns]; each unit holds the elements of one column
// that one instruction multiplies and adds:
//   product  unit
//   kF32     1 fp32 number                        vfmadd
//   kBf16    2 bf16 numbers                       vdpbf16ps, tdpbf16ps
//   kInt8    4 bytes: rows + 128, keys as int8    vpdpbusd, tdpbusd
//   kF16     2 fp16 numbers of one key: p twice,  vfmadd..ph
//            v * 2^-8 of two channels
// Scores: rows q [rows, steps] along channels, times K^T [steps, 64 keys].
// Values: rows p [rows, steps] along keys, times V [steps, dv channels], kF16 [64, dv / 2].
#pragma once
#include <quatt/quatt.h>

#include <cstdint>

#include "recipe/lazy_softmax.hpp"

namespace quatt::cpu {

inline constexpr std::int64_t kTile = 64;      // keys
inline constexpr std::int64_t kRowStep = 4;    // rows that a product keeps in registers
inline constexpr std::int64_t kTileRows = 16;  // rows of a register of AMX, and units of a row
inline constexpr std::int64_t kSumLanes = 16;  // partial sums of l a row

enum class Product { kF32, kBf16, kF16, kInt8 };

// Elements along the summed axis in a 32-bit unit.
[[nodiscard]] constexpr std::int64_t elements(Product p) {
    return p == Product::kInt8 ? 4 : p == Product::kBf16 ? 2 : 1;
}

// dv is padded to a multiple of it: a vector of 16 units.
[[nodiscard]] constexpr std::int64_t channel_step(Product p) {
    return p == Product::kF16 ? 32 : 16;
}

// What the softmax of a block of rows and one tile reads and writes.
struct SoftmaxTile {
    const recipe::SoftmaxPolicy* policy;
    std::int64_t interval;    // of the tile
    std::int64_t rows;        // not padded
    const float* t;           // [rows, 64]: products
    const float* mean_term;   // [64]: products of the mean row of Q with the keys; null: none
    float key_factor;         // of all keys of the tile
    const float* row_factor;  // [rows]
    const std::int32_t *first, *last;  // [rows]: keys of the tile that a row sees, [first, last)
    recipe::RowState* row;             // [rows]
    float* l;                          // [rows, kSumLanes]: partial sums, under the running max
    float* factor;                     // [rows] out: what O is to be multiplied by
    std::uint32_t* p;                  // [rows, 64 / elements] out: rounded P
};

// Functions by product, null where a level has none.
struct Kernels {
    // Rows are padded to a multiple of the first, steps of kBf16 and kInt8 of the second.
    std::int64_t row_step, unit_step;
    // Around the other calls, on the same thread: AMX's tiles are configured, and released.
    void (*enter)();
    void (*leave)();
    // c [rows, 64] = q . k. kInt8: the tile begins with 64 int32, minus 128 times the sum of each
    // key, which undo the 128 in q.
    void (*qk_product[4])(const std::uint32_t* q, const std::uint32_t* k, std::int64_t rows,
                          std::int64_t steps, float* c);
    // o [rows, dv] = o * factor[row] + p . v
    void (*pv_product[3])(const std::uint32_t* p, const std::uint32_t* v, std::int64_t rows,
                          std::int64_t dv, const float* factor, float* o);
    // Lazy softmax, row by row; P as the product reads it
    void (*softmax_tile[3])(const SoftmaxTile& m);
    // Tiles of 16-bit numbers as fp32: count is a multiple of 16
    void (*widen_bf16)(const std::uint16_t* from, std::int64_t count, float* to);
    void (*widen_f16)(const std::uint16_t* from, std::int64_t count, float* to);
};

extern const Kernels kAvx2Kernels, kAvx512Kernels, kAvx512VnniKernels, kAvx512Bf16Kernels,
    kAvx512Fp16Kernels, kAmxKernels;

}  // namespace quatt::cpu

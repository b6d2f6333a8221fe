// Q, K and V as attention kernels find them: packed by a quantiser, or rows of 16-bit numbers.
#pragma once

#include "cuda/tile/packed.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::tile {
inline namespace QUATT_ABI {

// Layouts in packed.hpp. Code and Number are const where the operands are read.
template <class Code, class Number>
struct BasicPackedOperands {
    ptx::Global<Code> q, k, v;
    ptx::Global<Number> q_factor;   // [Hq, q_rows]
    ptx::Global<Number> lse_shift;  // [Hq, q_rows]: what centring K took from the scores, natural
                                    // units; where an LSE is wanted
    ptx::Global<Number> k_scale;    // [Hkv, k_tiles, kKeyScaleStride]
    ptx::Global<Number> v_scale, v_mean, k_mean;  // [segments, Hkv, dim]
    ptx::i64 q_rows, q_tiles, k_tiles;

    // For readers.
    [[nodiscard]] auto as_const() const {
        return BasicPackedOperands<const Code, const Number>{q,         k,       v,       q_factor,
                                                             lse_shift, k_scale, v_scale, v_mean,
                                                             k_mean,    q_rows,  q_tiles, k_tiles};
    }
};
// What a quantiser writes, and what an attention kernel reads: a value that a caller may keep.
using PackedOperands = BasicPackedOperands<ptx::u8, float>;
using PackedInputs = BasicPackedOperands<const ptx::u8, const float>;

// Views whose rows are 16-byte aligned: the caller's, or copies, whose rows of a segment start at
// its q_row and its 64 * k_tile.
struct RowOperands {
    ptx::Global<const ptx::u16> q, k, v;
    Strides q_strides, k_strides, v_strides;
    bool is_copy;
};

}  // namespace QUATT_ABI
}  // namespace quatt::tile

// What all quantisers share: finding their segment, reading rows of any layout, the rule of scales.
#pragma once

#include "cuda/launch/pdl.hpp"
#include "cuda/quantize/config.hpp"
#include "formats/bf16.hpp"
#include "formats/f16.hpp"

namespace quatt::quantize {
inline namespace QUATT_ABI {

using ptx::Site;

[[nodiscard]] QUATT_DEV u32 larger(u32 a, u32 b) {
    return a < b ? b : a;
}
[[nodiscard]] QUATT_DEV i32 smaller(i32 a, i32 b) {
    return a < b ? a : b;
}
// Rows of a segment from `first` on; none for a slot before the segment's first one.
[[nodiscard]] QUATT_DEV i32 rows_from(i32 first, i32 length) {
    return first < 0 ? 0 : length - first;
}
// `row`, or the last of `rows` where there are not so many. Unsigned: a product with a 64-bit
// stride is then two instructions.
[[nodiscard]] QUATT_DEV i64 row_or_last(u32 row, i32 rows) {
    return u32(smaller(i32(row), rows - 1));
}

// `row`, or the first of `rows` where there are not so many, or none.
[[nodiscard]] QUATT_DEV i64 row_or_first(u32 row, i32 rows) {
    return i32(row) < rows ? row : 0;
}

[[nodiscard]] QUATT_DEV u32 ones(u32 bits) {
    bits -= bits >> 1 & 0x55555555u;
    bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
    return ((bits + (bits >> 4)) & 0x0F0F0F0Fu) * 0x01010101u >> 24;
}

[[nodiscard]] QUATT_DEV ptx::F32x2 unpack(formats::Bf16, u32 pair) {
    return ptx::unpack_bf16x2(pair);
}
[[nodiscard]] QUATT_DEV ptx::F32x2 unpack(formats::F16, u32 pair) {
    return ptx::unpack_f16x2(pair);
}

// fp32 scale of a group from the bits of its amax; NaN for a group that is not finite.
[[nodiscard]] QUATT_DEV float scale_of(u32 amax_bits) {
    return amax_bits >= kInfBits
               ? formats::bit_cast<float>(kInfBits | 1u << 22)
               : recipe::scale_of_amax(formats::bit_cast<float>(amax_bits), kTarget);
}

// The numbers of a segment that say where its slots and rows begin.
struct SegmentStarts {
    i32 q_row, k_tile;
};
[[nodiscard]] QUATT_DEV SegmentStarts load_segment_starts(ptx::Global<const ptx::U32x4> table,
                                                          u32 s, Site site) {
    static_assert(sizeof(worklist::SegmentEntry) == 64 &&
                  offsetof(worklist::SegmentEntry, q_row) == 48 &&
                  offsetof(worklist::SegmentEntry, k_tile) == 52);
    const ptx::U32x4 last = table.load(4 * i64(s) + 3, site);
    return {i32(last.x), i32(last.y)};
}

// The last segment whose first slot, `first(places, s)`, is at most `slot`. A collective of the
// warp, with the same result in all lanes: each round looks at 32 segments. No round for one.
template <class First>
[[nodiscard]] QUATT_DEV u32 find_segment(ptx::Global<const ptx::U32x4> table, u32 count, i32 slot,
                                         First first, Site site = Site::current()) {
    const u32 lane = ptx::lane_id();
    u32 low = 0, left = count;  // it is one of [low, low + left)
    while (left > 1) {
        const u32 step = (left + 31) / 32, mine = lane * step;
        bool is_before = mine == 0;
        if (mine != 0 && mine < left) {
            is_before = first(load_segment_starts(table, low + mine, site), low + mine) <= slot;
        }
        // True in the lanes up to the one sought.
        const u32 before = ptx::ballot(is_before, site);
        const u32 last = ones(before) - 1;
        low += last * step;
        left = left - last * step < step ? left - last * step : step;
    }
    return low;
}

// 2 * Words channels from `first` on of the row at `row`; zeros past the last channel.
template <bool Aligned16, u32 Words>
QUATT_DEV void load_piece(u32 (&w)[Words], const Input& x, i64 row, u32 first, u32 channels,
                          Site site = Site::current()) {
    static_assert(Words == 2 || Words == 4);
    QUATT_UNROLL
    for (u32 i = 0; i < Words; i++) {
        w[i] = 0;
    }
    if constexpr (!Aligned16) {
        QUATT_UNROLL
        for (u32 i = 0; i < 2 * Words; i++) {
            if (first + i < channels) {
                const u32 code = x.data.load(row + i64(first + i) * x.strides.channel, site);
                w[i / 2] |= code << 16 * (i % 2);
            }
        }
    } else if (first < channels) {
        if constexpr (Words == 4) {
            const auto v = x.data.template load<ptx::U32x4>(row + first, site);
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else {
            const auto v = x.data.template load<ptx::U32x2>(row + first, site);
            w[0] = v.x, w[1] = v.y;
        }
    }
}

// The same of Rows rows, number r at row_at(r). NOTE: one branch for all of them, so that they are
// asked for one after the other.
template <bool Aligned16, u32 Rows, u32 Words, class RowAt>
QUATT_DEV void load_pieces(u32 (&w)[Rows][Words], const Input& x, u32 first, u32 channels,
                           RowAt&& row_at, Site site = Site::current()) {
    if (!Aligned16 || first < channels) {
        QUATT_UNROLL
        for (u32 r = 0; r < Rows; r++) {
            load_piece<Aligned16>(w[r], x, row_at(r), first, Aligned16 ? first + 1 : channels,
                                  site);
        }
    } else {
        QUATT_UNROLL
        for (u32 r = 0; r < Rows; r++) {
            QUATT_UNROLL
            for (u32 i = 0; i < Words; i++) {
                w[r][i] = 0;
            }
        }
    }
}

// N fp32 numbers, N a multiple of 4.
template <u32 N>
QUATT_DEV void load_floats(float (&x)[N], const ptx::Global<const float>& from, i64 at,
                           Site site = Site::current()) {
    QUATT_UNROLL
    for (u32 i = 0; i < N; i += 4) {
        const auto v = from.template load<ptx::F32x4>(at + i, site);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::quantize

// The launches of prep: which instance of each kernel, and its grid.
#pragma once

#include "cuda/prep/pack.cuh"
#include "cuda/prep/statistics.cuh"
#include "cuda/tile/launcher.hpp"

namespace quatt::prep {
inline namespace QUATT_ABI {

struct Call {
    Input q, k, v;
    i64 q_batch, k_batch, v_batch;  // elements between batch items
    ptx::Global<const ptx::U32x4> segments;
    i64 segment_count, total_q, total_k;  // capacities, over all segments
    u32 heads_q, heads_kv, channels, channels_v;
    bool is_f16, is_dim_128, has_lse;
    float softmax_scale;
};

// What recipe fp8 packs to; extents in config.hpp.
struct Packed {
    ptx::Global<u8> q8, k8, v8;
    ptx::Global<float> q_factor, lse_shift, k_scale, v_scale, v_mean, k_mean, partials;
};

template <auto Kernel, class P>
void start(tile::Launcher& launcher, const char* name, const Launch& l, const P& params) {
    if (l.blocks > 0) {
        launcher.run<Kernel>(name, {static_cast<u32>(l.blocks)}, l.threads, l.shared_bytes, params);
    }
}

// Calls f.operator()<Format, Dim>().
template <class F>
void with_format(const Call& c, F&& f) {
    if (c.is_dim_128) {
        c.is_f16 ? f.template operator()<formats::F16, 128>()
                 : f.template operator()<formats::Bf16, 128>();
    } else {
        c.is_f16 ? f.template operator()<formats::F16, 64>()
                 : f.template operator()<formats::Bf16, 64>();
    }
}

inline bool is_wide_input(const Input& x, i64 batch, u32 channels) {
    return is_wide(reinterpret_cast<u64>(x.data.data()), batch, x.strides, channels);
}

template <class Format, u32 Dim, bool Wide>
void pack_fp8(const Call& c, const Packed& to, tile::Launcher& l) {
    const u32 segments = static_cast<u32>(c.segment_count);
    const i64 slots = stat_slots(c.total_k, c.segment_count),
              tiles = key_tiles(c.total_k, c.segment_count);
    const PackQParams q{c.segments,      segments,
                        c.heads_q,       c.heads_q / c.heads_kv,
                        c.channels,      c.q,
                        c.softmax_scale, c.has_lse,
                        c.total_q,       query_tiles(c.total_q, c.segment_count),
                        to.q8,           to.q_factor,
                        to.k_mean,       to.lse_shift};
    const Launch q_launch = pack_q_launch<Dim>(query_slots(c.total_q, c.segment_count), c.heads_q);
    const u32 q_blocks = c.has_lse ? 0 : static_cast<u32>(q_launch.blocks);
    const StatisticsParams statistics_of{c.segments,   segments, c.heads_kv, c.channels,
                                         c.channels_v, c.k,      c.v,        slots,
                                         to.partials,  q_blocks, q};
    start<statistics<Format, Dim, Wide>>(
        l, "statistics", statistics_launch<Dim>(q_blocks, slots, c.heads_kv), statistics_of);
    const FinaliseParams finalised{c.segments, c.heads_kv, slots,     to.partials,
                                   to.k_mean,  to.v_mean,  to.v_scale};
    start<finalise<Dim>>(l, "finalise", finalise_launch<Dim>(c.segment_count, c.heads_kv),
                         finalised);
    if (c.has_lse) {
        start<pack_q<Format, Dim, Wide>>(l, "pack_q", q_launch, q);
    }
    const PackKvParams kv{
        {c.segments, segments, c.heads_kv, c.channels, c.k, tiles, to.k_mean, to.k8, to.k_scale},
        {c.segments, segments, c.heads_kv, c.channels_v, c.v, tiles, to.v_mean, to.v_scale, to.v8}};
    start<pack_kv<Format, Dim, Wide>>(l, "pack_kv", pack_kv_launch<Dim>(tiles, c.heads_kv), kv);
}

// Recipe fp8: statistics, means and scales, codes.
inline void pack_fp8(const Call& c, const Packed& to, tile::Launcher& l) {
    const bool wide = is_wide_input(c.q, c.q_batch, c.channels) &&
                      is_wide_input(c.k, c.k_batch, c.channels) &&
                      is_wide_input(c.v, c.v_batch, c.channels_v);
    with_format(c, [&]<class Format, u32 Dim>() {
        wide ? pack_fp8<Format, Dim, true>(c, to, l) : pack_fp8<Format, Dim, false>(c, to, l);
    });
}

template <Operand Which, u32 Dim>
void copy_rows_of(const Call& c, const Input& x, i64 batch, u32 heads, u32 channels, i64 rows,
                  i64 slots, ptx::Global<u16> to, tile::Launcher& l) {
    const CopyRowsParams p{c.segments, static_cast<u32>(c.segment_count), heads, channels, x, rows,
                           to};
    const Launch launch = copy_rows_launch<Dim>(slots, heads);
    is_wide_input(x, batch, channels)
        ? start<copy_rows<Which, Dim, true>>(l, "copy_rows", launch, p)
        : start<copy_rows<Which, Dim, false>>(l, "copy_rows", launch, p);
}

// 16-bit recipes whose inputs the kernel cannot read where they are.
inline void copy_16bit(const Call& c, ptx::Global<u16> q, ptx::Global<u16> k, ptx::Global<u16> v,
                       tile::Launcher& l) {
    with_format(c, [&]<class, u32 Dim>() {
        const i64 tiles = key_tiles(c.total_k, c.segment_count), k_rows = kKeyTile * tiles;
        copy_rows_of<Operand::kQ, Dim>(c, c.q, c.q_batch, c.heads_q, c.channels, c.total_q,
                                       query_tiles(c.total_q, c.segment_count), q, l);
        copy_rows_of<Operand::kK, Dim>(c, c.k, c.k_batch, c.heads_kv, c.channels, k_rows, tiles, k,
                                       l);
        copy_rows_of<Operand::kV, Dim>(c, c.v, c.v_batch, c.heads_kv, c.channels_v, k_rows, tiles,
                                       v, l);
    });
}

}  // namespace QUATT_ABI
}  // namespace quatt::prep

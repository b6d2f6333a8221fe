// The launches of the quantisers: which instance of each kernel, and its grid.
#pragma once

#include "cuda/launch/launcher.hpp"
#include "cuda/quantize/pack.cuh"
#include "cuda/quantize/sample.cuh"
#include "cuda/tile/operands.hpp"

namespace quatt::quantize {
inline namespace QUATT_ABI {

// Q, K and V of a call, 16 bit.
struct Inputs {
    Input q, k, v;
    i64 q_batch, k_batch, v_batch;  // elements between batch items
    worklist::WorkList list;
    bool builds_list;  // sample does
    worklist::BuildParams build;
    tile::PackedShape shape;
    u32 channels, channels_v;
    bool is_f16, has_lse;
    float softmax_scale;
    bool packs_q, packs_kv;  // what is wanted of pack_fp8
};

template <auto Kernel, class P>
void start(launch::Launcher& launcher, const char* name, const LaunchShape& l, const P& params) {
    if (l.blocks > 0) {
        launcher.run<Kernel>(name, {static_cast<u32>(l.blocks)}, l.threads, l.shared_bytes, params);
    }
}

// Calls f.operator()<Format, Dim>().
template <class F>
void with_format(const Inputs& c, F&& f) {
    if (c.shape.dim == 128) {
        c.is_f16 ? f.template operator()<formats::F16, 128>()
                 : f.template operator()<formats::Bf16, 128>();
    } else {
        c.is_f16 ? f.template operator()<formats::F16, 64>()
                 : f.template operator()<formats::Bf16, 64>();
    }
}

inline bool is_aligned_input(const Input& x, i64 batch, u32 channels) {
    return is_aligned16(reinterpret_cast<u64>(x.data.data()), batch, x.strides, channels);
}

// What the quantisers of V tell each other, in the workspace.
struct SampleState {
    ptx::Global<float> v_sample_scale;  // [segments, Hkv, dim]
    ptx::Global<u32> v_beyond;          // likewise
    ptx::Global<u32> v_lied;            // [segments, Hkv]
};

template <class Format, u32 Dim, bool Aligned16>
void pack_fp8(const Inputs& c, const tile::PackedOperands& to, const SampleState& state,
              u32 multiprocessors, launch::Launcher& l) {
    const tile::PackedShape& shape = c.shape;
    const auto table = c.list.segments;
    const u32 segments = c.list.segment_count, heads_q = static_cast<u32>(shape.heads_q),
              heads_kv = static_cast<u32>(shape.heads_kv);
    const i64 query_tiles = c.packs_q ? to.q_tiles : 0, key_tiles = c.packs_kv ? to.k_tiles : 0;
    if (c.packs_kv) {
        start<sample<Format, Dim, Aligned16>>(l, "sample", sample_launch<Dim>(segments, heads_kv),
                                              SampleParams{.segments = table,
                                                           .builds_list = c.builds_list,
                                                           .build = c.build,
                                                           .kv_heads = heads_kv,
                                                           .channels = c.channels,
                                                           .channels_v = c.channels_v,
                                                           .k = c.k,
                                                           .v = c.v,
                                                           .k_mean = to.k_mean,
                                                           .v_mean = to.v_mean,
                                                           .v_scale = to.v_scale,
                                                           .v_sample_scale = state.v_sample_scale,
                                                           .v_beyond = state.v_beyond,
                                                           .v_lied = state.v_lied});
    }
    const PackVParams v{
        .segments = table,
        .segment_count = segments,
        .kv_heads = heads_kv,
        .channels = c.channels_v,
        .v = c.v,
        .k_tiles = to.k_tiles,
        .v_mean = to.v_mean,
        .v_sample_scale = state.v_sample_scale,
        .v_beyond = state.v_beyond,
        .v_lied = state.v_lied,
        .far_keys = {reinterpret_cast<u16*>(to.k_scale.data()), 2 * to.k_scale.count()},
        .v_scale = to.v_scale,
        .v8 = to.v};
    start<pack<Format, Dim, Aligned16>>(
        l, "pack", pack_launch<Dim>(query_tiles, heads_q, key_tiles, heads_kv),
        PackParams{.q_blocks = static_cast<u32>(query_blocks<Dim>(query_tiles, heads_q)),
                   .q = {.segments = table,
                         .segment_count = segments,
                         .q_heads = heads_q,
                         .heads_per_group = heads_q / heads_kv,
                         .channels = c.channels,
                         .q = c.q,
                         .softmax_scale = c.softmax_scale,
                         .has_lse_shift = c.has_lse,
                         .q_rows = to.q_rows,
                         .q_tiles = to.q_tiles,
                         .q8 = to.q,
                         .q_factor = to.q_factor,
                         .k_mean = to.k_mean,
                         .lse_shift = to.lse_shift},
                   .k = {.segments = table,
                         .segment_count = segments,
                         .kv_heads = heads_kv,
                         .channels = c.channels,
                         .k = c.k,
                         .k_tiles = to.k_tiles,
                         .k_mean = to.k_mean,
                         .k8 = to.k,
                         .k_scale = to.k_scale},
                   .v = v});
    if (c.packs_kv) {
        start<repack<Format, Dim, Aligned16>>(l, "repack", repack_launch<Dim>(multiprocessors), v);
    }
}

// Recipe fp8: centres and scales, codes, and V again where the sample lied; or one half of it.
inline void pack_fp8(const Inputs& c, const tile::PackedOperands& to, const SampleState& state,
                     u32 multiprocessors, launch::Launcher& l) {
    const bool aligned = (!c.packs_q || is_aligned_input(c.q, c.q_batch, c.channels)) &&
                         (!c.packs_kv || (is_aligned_input(c.k, c.k_batch, c.channels) &&
                                          is_aligned_input(c.v, c.v_batch, c.channels_v)));
    with_format(c, [&]<class Format, u32 Dim>() {
        aligned ? pack_fp8<Format, Dim, true>(c, to, state, multiprocessors, l)
                : pack_fp8<Format, Dim, false>(c, to, state, multiprocessors, l);
    });
}

template <Operand Which, u32 Dim>
void copy_rows_of(const Inputs& c, const Input& x, i64 batch, u32 heads, u32 channels, i64 rows,
                  i64 slots, ptx::Global<u16> to, launch::Launcher& l) {
    const CopyRowsParams p{.segments = c.list.segments,
                           .segment_count = c.list.segment_count,
                           .heads = heads,
                           .channels = channels,
                           .x = x,
                           .rows = rows,
                           .to = to};
    const LaunchShape launch = copy_rows_launch<Dim>(slots, heads);
    is_aligned_input(x, batch, channels)
        ? start<copy_rows<Which, Dim, true>>(l, "copy_rows", launch, p)
        : start<copy_rows<Which, Dim, false>>(l, "copy_rows", launch, p);
}

// 16-bit recipes whose inputs the kernel cannot read where they are.
inline void copy_16bit(const Inputs& c, ptx::Global<u16> q, ptx::Global<u16> k, ptx::Global<u16> v,
                       launch::Launcher& l) {
    with_format(c, [&]<class, u32 Dim>() {
        const tile::PackedShape& shape = c.shape;
        const u32 heads_q = static_cast<u32>(shape.heads_q),
                  heads_kv = static_cast<u32>(shape.heads_kv);
        const i64 tiles = shape.key_tiles(), k_rows = kKeyTile * tiles;
        copy_rows_of<Operand::kQ, Dim>(c, c.q, c.q_batch, heads_q, c.channels, shape.queries,
                                       shape.query_tiles(), q, l);
        copy_rows_of<Operand::kK, Dim>(c, c.k, c.k_batch, heads_kv, c.channels, k_rows, tiles, k,
                                       l);
        copy_rows_of<Operand::kV, Dim>(c, c.v, c.v_batch, heads_kv, c.channels_v, k_rows, tiles, v,
                                       l);
    });
}

}  // namespace QUATT_ABI
}  // namespace quatt::quantize

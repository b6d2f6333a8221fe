// The kernels of one call, in order. The same source starts them on a stream (native.cu) and in the
// executor (simt.cpp).
#pragma once

#include <initializer_list>
#include <limits>
#include <utility>

#include "cuda/call.hpp"
#include "cuda/prep/launch.cuh"
#include "cuda/prep/plan.cuh"
#include "cuda/prep/tail.cuh"
#include "cuda/tile/launcher.hpp"
#include "cuda/warp_mma/launch.cuh"
#include "cuda/wgmma/launch.cuh"

namespace quatt::cuda {
inline namespace QUATT_ABI {

using ptx::Global;
using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

// A part of the workspace as a view.
template <class T>
Global<T> part(const Call& c, const Workspace::Part& p) {
    return {reinterpret_cast<T*>(c.workspace + p.at), static_cast<i64>(p.bytes / sizeof(T))};
}

// All elements that strides reach, backwards too: what the executor lets a kernel touch. `origin`:
// where element 0 of the tensor is.
template <class T>
struct Reach {
    Global<T> view;
    i64 origin = 0;
};

template <class T>
Reach<T> reach(T* data, std::initializer_list<std::pair<i64, i64>> axes) {  // extent, stride
    i64 low = 0, high = 0;
    for (const auto& [extent, stride] : axes) {
        if (extent == 0) {
            return {{data, 0}, 0};
        }
        (stride < 0 ? low : high) += (extent - 1) * stride;
    }
    return {{data + low, high - low + 1}, -low};
}

template <class T>
Reach<T> reach(const Operand& x, i64 batches, i64 tokens, i64 heads, i64 channels) {
    return reach(static_cast<T*>(x.data),
                 {{batches, x.batch}, {tokens, x.token}, {heads, x.head}, {channels, x.channel}});
}

inline tile::Strides strides(const Operand& x) {
    return {x.token, x.head, x.channel};
}

// What launches the attention kernel of a call: the one of its schedule.
struct Start {
    void (*warp_mma)(tile::Launcher&, const warp_mma::Params&, u32 multiprocessors) = nullptr;
    void (*wgmma)(tile::Launcher&, const wgmma::Params&, u32 multiprocessors) = nullptr;
};

inline Start start_of(const Call& c) {
    const bool is_wide = c.padded_dim() == 128;
    if (c.schedule == Schedule::kWgmma) {
        return {.wgmma = is_wide ? wgmma::attention_fp8_128 : wgmma::attention_fp8_64};
    }
    const auto kernel =
        c.recipe == Recipe::kF16
            ? (is_wide ? warp_mma::attention_f16_128 : warp_mma::attention_f16_64)
        : c.recipe == Recipe::kBf16 ? (!is_wide             ? warp_mma::attention_bf16_64
                                       : c.has_small_shared ? warp_mma::attention_bf16_128_narrow
                                                            : warp_mma::attention_bf16_128)
        : c.block_scaled            ? (is_wide ? warp_mma::attention_fp8_128_block_scaled
                                               : warp_mma::attention_fp8_64_block_scaled)
                         : (is_wide ? warp_mma::attention_fp8_128 : warp_mma::attention_fp8_64);
    return {.warp_mma = kernel};
}

// `start`: start_of(c), or in tests an instance with a planted fault.
inline void run_chain(const Call& c, tile::Launcher& launcher, const Start& start) {
    const Workspace w(c);
    const i64 batches = c.is_packed ? 1 : c.segments;
    const auto segments = part<ptx::U32x4>(c, w.segments);
    const auto work = part<u32>(c, w.work);
    const auto lens = [](const Lengths& x, i64 count) {
        return x.data != nullptr ? reach(x.data, {{count, x.stride}}) : Reach<const i32>{};
    };
    const auto cu_q = lens(c.cu_seqlens_q, c.segments + 1),
               cu_k = lens(c.cu_seqlens_k, c.segments + 1), kv_lens = lens(c.kv_lens, c.segments);

    prep::PlanParams plan{};
    plan.cu_seqlens_q = cu_q.view;
    plan.cu_seqlens_k = cu_k.view;
    plan.kv_lens = kv_lens.view;
    plan.cu_q_origin = cu_q.origin;
    plan.cu_k_origin = cu_k.origin;
    plan.kv_lens_origin = kv_lens.origin;
    plan.cu_q_stride = c.cu_seqlens_q.stride;
    plan.cu_k_stride = c.cu_seqlens_k.stride;
    plan.kv_lens_stride = c.kv_lens.stride;
    plan.segments = segments;
    plan.work = work;
    const auto q = reach<const u16>(c.q, batches, c.tokens_q, c.heads_q, c.head_dim);
    const auto k = reach<const u16>(c.k, batches, c.tokens_k, c.heads_kv, c.head_dim);
    const auto v = reach<const u16>(c.v, batches, c.tokens_k, c.heads_kv, c.head_dim_v);
    const bool is_f32 = c.out.element == Element::kF32;
    const auto out16 =
        is_f32 ? Reach<u16>{} : reach<u16>(c.out, batches, c.tokens_q, c.heads_q, c.head_dim_v);
    const auto out32 =
        is_f32 ? reach<float>(c.out, batches, c.tokens_q, c.heads_q, c.head_dim_v) : Reach<float>{};
    const auto lse =
        c.lse != nullptr
            ? reach(c.lse,
                    {{batches, c.lse_batch}, {c.heads_q, c.lse_head}, {c.tokens_q, c.lse_token}})
            : Reach<float>{};
    plan.q_origin = q.origin;
    plan.k_origin = k.origin;
    plan.v_origin = v.origin;
    plan.out_origin = is_f32 ? out32.origin : out16.origin;
    plan.lse_origin = lse.origin;
    plan.status_word = {c.status_word, c.status_word != nullptr ? 1 : 0};
    plan.has_status_word = c.status_word != nullptr;
    plan.q_batch = c.q.batch;
    plan.k_batch = c.k.batch;
    plan.v_batch = c.v.batch;
    plan.out_batch = c.out.batch;
    plan.lse_batch = c.lse_batch;
    plan.q_token = c.q.token;
    plan.k_token = c.k.token;
    plan.v_token = c.v.token;
    plan.out_token = c.out.token;
    plan.lse_token = c.lse_token;
    plan.count = static_cast<u32>(c.segments);
    plan.tokens_q = static_cast<u32>(c.tokens_q);
    plan.tokens_k = static_cast<u32>(c.tokens_k);
    plan.heads_q = static_cast<u32>(c.heads_q);
    plan.rows_per_item =
        c.schedule == Schedule::kWgmma ? wgmma::kRowsPerItem : warp_mma::kRowsPerItem;
    plan.is_packed = c.is_packed;
    plan.has_cu_seqlens = c.cu_seqlens_q.data != nullptr;
    plan.has_kv_lens = c.kv_lens.data != nullptr;
    launcher.run<prep::plan<>>("plan", {}, prep::kPlanThreads, sizeof(prep::PlanShared), plan);

    if (c.total_q() == 0) {
        return;
    }

    tile::Output out{};
    out.out16 = out16.view;
    out.out32 = out32.view;
    out.strides = strides(c.out);
    out.type = is_f32                           ? tile::Output::Type::kF32
               : c.out.element == Element::kF16 ? tile::Output::Type::kF16
                                                : tile::Output::Type::kBf16;
    // Whether n neighbouring channels may be stored at once: they never cross a multiple of n.
    const auto in_steps_of = [&](i64 n) {
        return c.head_dim_v % n == 0 && c.out.channel == 1 && c.out.batch % n == 0 &&
               c.out.token % n == 0 && c.out.head % n == 0 &&
               reinterpret_cast<std::uintptr_t>(c.out.data) %
                       static_cast<std::uintptr_t>(n * (is_f32 ? 4 : 2)) ==
                   0;
    };
    out.pairs = in_steps_of(2);
    out.bulk = !is_f32 && in_steps_of(8);
    out.channels = static_cast<u32>(c.head_dim_v);
    out.has_lse = c.lse != nullptr;
    out.lse = lse.view;
    out.lse_head = c.lse_head;
    out.lse_token = c.lse_token;
    if (c.zero_tail && c.is_packed && c.cu_seqlens_q.data != nullptr) {
        prep::TailParams tail{};
        tail.work = part<const u32>(c, w.work);
        tail.out16 = out.out16;
        tail.out32 = out.out32;
        tail.out_strides = out.strides;
        tail.lse = out.lse;
        tail.out_origin = plan.out_origin;
        tail.lse_origin = plan.lse_origin;
        tail.lse_head = out.lse_head;
        tail.lse_token = out.lse_token;
        tail.tokens_q = plan.tokens_q;
        tail.heads_q = plan.heads_q;
        tail.channels = out.channels;
        tail.is_f32 = is_f32;
        tail.has_lse = out.has_lse;
        launcher.run<prep::zero_tail<>>("zero_tail",
                                        {static_cast<u32>(c.blocks), static_cast<u32>(c.heads_q)},
                                        prep::kTailThreads, 0, tail);
    }
    if (c.segments == 0) {
        return;
    }

    prep::Call prep_call;
    prep_call.q = {q.view, strides(c.q)};
    prep_call.k = {k.view, strides(c.k)};
    prep_call.v = {v.view, strides(c.v)};
    prep_call.q_batch = c.q.batch;
    prep_call.k_batch = c.k.batch;
    prep_call.v_batch = c.v.batch;
    prep_call.segments = segments;
    prep_call.segment_count = c.segments;
    prep_call.total_q = c.total_q();
    prep_call.total_k = c.total_k();
    prep_call.heads_q = static_cast<u32>(c.heads_q);
    prep_call.heads_kv = static_cast<u32>(c.heads_kv);
    prep_call.channels = static_cast<u32>(c.head_dim);
    prep_call.channels_v = static_cast<u32>(c.head_dim_v);
    prep_call.is_f16 = c.q.element == Element::kF16;
    prep_call.is_dim_128 = c.padded_dim() == 128;
    prep_call.softmax_scale = c.softmax_scale;
    prep_call.has_lse = c.lse != nullptr;

    // What the schedules' parameters share.
    const auto fill = [&](auto& p) {
        p.out = out;
        p.segments = segments;
        p.work = work;
        p.segment_count = static_cast<u32>(c.segments);
        p.heads_q = static_cast<u32>(c.heads_q);
        p.heads_per_group = static_cast<u32>(c.heads_q / c.heads_kv);
        p.is_causal = c.is_causal;
    };
    const auto fill_packed = [&](auto& p) {
        p.q8 = part<const u8>(c, w.q8);
        p.k8 = part<const u8>(c, w.k8);
        p.v8 = part<const u8>(c, w.v8);
        p.q_factor = part<const float>(c, w.q_factor);
        p.lse_shift = part<const float>(c, w.lse_shift);
        p.k_scale = part<const float>(c, w.k_scale);
        p.v_scale = part<const float>(c, w.v_scale);
        p.v_mean = part<const float>(c, w.v_mean);
        p.q_rows = c.total_q();
        p.q_tiles = c.query_tiles();
        p.k_tiles = c.key_tiles(64);
    };
    warp_mma::Params p{};
    fill(p);
    // NOTE: never 0, or masked scores, -inf, would become NaN.
    const float factor = c.softmax_scale * 1.4426950408889634f;
    p.score_factor = factor > 0 ? factor : std::numeric_limits<float>::min();
    if (c.recipe == Recipe::kFp8) {
        prep::Packed packed;
        packed.q8 = part<u8>(c, w.q8);
        packed.k8 = part<u8>(c, w.k8);
        packed.v8 = part<u8>(c, w.v8);
        packed.q_factor = part<float>(c, w.q_factor);
        packed.lse_shift = part<float>(c, w.lse_shift);
        packed.k_scale = part<float>(c, w.k_scale);
        packed.v_scale = part<float>(c, w.v_scale);
        packed.v_mean = part<float>(c, w.v_mean);
        packed.k_mean = part<float>(c, w.k_mean);
        packed.partials = part<float>(c, w.partials);
        prep::pack_fp8(prep_call, packed, launcher);
        if (c.schedule == Schedule::kWgmma) {
            wgmma::Params wide{};
            fill(wide);
            fill_packed(wide);
            start.wgmma(launcher, wide, static_cast<u32>(c.blocks));
            return;
        }
        fill_packed(p);
    } else {
        if (c.is_direct) {
            p.q = q.view;
            p.k = k.view;
            p.v = v.view;
            p.q_strides = strides(c.q);
            p.k_strides = strides(c.k);
            p.v_strides = strides(c.v);
        } else {
            prep::copy_16bit(prep_call, part<u16>(c, w.q16), part<u16>(c, w.k16),
                             part<u16>(c, w.v16), launcher);
            const i64 dim = c.padded_dim(), k_rows = 64 * c.key_tiles(64);
            p.is_copy = true;
            p.q = part<const u16>(c, w.q16);
            p.k = part<const u16>(c, w.k16);
            p.v = part<const u16>(c, w.v16);
            p.q_strides = {dim, c.total_q() * dim, 1};
            p.k_strides = p.v_strides = {dim, k_rows * dim, 1};
        }
    }
    start.warp_mma(launcher, p, static_cast<u32>(c.blocks));
}

inline void run_chain(const Call& c, tile::Launcher& launcher) {
    run_chain(c, launcher, start_of(c));
}

}  // namespace QUATT_ABI
}  // namespace quatt::cuda

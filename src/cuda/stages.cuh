// The kernels of one call, as stages: build the work list, quantise (or copy rows), attend, zero
// the tail. The same source starts them on a stream (native.cu) and in the executor (simt.cpp).
#pragma once

#include <initializer_list>
#include <limits>
#include <utility>

#include "cuda/call.hpp"
#include "cuda/epilogue/zero_tail.cuh"
#include "cuda/launch/launcher.hpp"
#include "cuda/quantize/launch.cuh"
#include "cuda/schedules.cuh"
#include "cuda/worklist/build.cuh"

namespace quatt::cuda {
inline namespace QUATT_ABI {

using ptx::Global;
using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

// A part of the workspace, or of packed K and V, as a view.
template <class T>
Global<T> part(const Call& c, const Workspace::Part& p) {
    return {reinterpret_cast<T*>((p.is_packed ? c.packed : c.workspace) + p.at),
            static_cast<i64>(p.bytes / sizeof(T))};
}

// Without the tensors that the call's work does not touch. In kQuantize lengths of queries are
// those of keys, so that a segment is sound where its keys are.
inline Call touched(Call c) {
    const auto leave = [](Tensor& x) { x = {nullptr, x.element, 0, 0, 0, 0}; };
    if (c.work == core::Work::kQuantize) {
        leave(c.q);
        leave(c.out);
        c.lse_batch = c.lse_head = c.lse_token = 0;
        c.cu_seqlens_q = c.cu_seqlens_k;
    } else if (c.work == core::Work::kAttend) {
        leave(c.k);
        leave(c.v);
    }
    return c;
}

// All elements that a tensor's strides lead to, backwards too: what the executor lets a kernel
// touch.
template <class T>
struct TensorView {
    Global<T> view;
    i64 origin = 0;  // where element 0 of the tensor is
};

template <class T>
TensorView<T> view_of(T* data, std::initializer_list<std::pair<i64, i64>> axes) {  // extent, stride
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
TensorView<T> view_of(const Tensor& x, i64 batches, i64 tokens, i64 heads, i64 channels) {
    return view_of(static_cast<T*>(x.data),
                   {{batches, x.batch}, {tokens, x.token}, {heads, x.head}, {channels, x.channel}});
}

inline tile::Strides strides(const Tensor& x) {
    return {x.token, x.head, x.channel};
}

// The caller's tensors.
struct TensorViews {
    TensorView<const u16> q, k, v;
    TensorView<u16> out16;  // one of the two
    TensorView<float> out32;
    TensorView<float> lse;
    TensorView<const i32> cu_seqlens_q, cu_seqlens_k, kv_lens;

    explicit TensorViews(const Call& c) {
        const i64 batches = c.is_packed ? 1 : c.segments;
        const auto lengths = [](const Lengths& x, i64 count) {
            return x.data != nullptr ? view_of(x.data, {{count, x.stride}})
                                     : TensorView<const i32>{};
        };
        q = view_of<const u16>(c.q, batches, c.tokens_q, c.heads_q, c.head_dim);
        k = view_of<const u16>(c.k, batches, c.tokens_k, c.heads_kv, c.head_dim);
        v = view_of<const u16>(c.v, batches, c.tokens_k, c.heads_kv, c.head_dim_v);
        if (c.out.element == Element::kF32) {
            out32 = view_of<float>(c.out, batches, c.tokens_q, c.heads_q, c.head_dim_v);
        } else {
            out16 = view_of<u16>(c.out, batches, c.tokens_q, c.heads_q, c.head_dim_v);
        }
        if (c.lse != nullptr) {
            lse = view_of(
                c.lse,
                {{batches, c.lse_batch}, {c.heads_q, c.lse_head}, {c.tokens_q, c.lse_token}});
        }
        cu_seqlens_q = lengths(c.cu_seqlens_q, c.segments + 1);
        cu_seqlens_k = lengths(c.cu_seqlens_k, c.segments + 1);
        kv_lens = lengths(c.kv_lens, c.segments);
    }
};

// ---------------------------------------------------------------- build the work list

inline worklist::WorkList work_list(const Call& c, const Workspace& w) {
    return {part<ptx::U32x4>(c, w.segments), part<u32>(c, w.work), static_cast<u32>(c.segments)};
}

inline worklist::BuildParams build_params(const Call& c, const TensorViews& t,
                                          const worklist::WorkList& list) {
    worklist::BuildParams p{};
    p.cu_seqlens_q = t.cu_seqlens_q.view;
    p.cu_seqlens_k = t.cu_seqlens_k.view;
    p.kv_lens = t.kv_lens.view;
    p.cu_q_origin = t.cu_seqlens_q.origin;
    p.cu_k_origin = t.cu_seqlens_k.origin;
    p.kv_lens_origin = t.kv_lens.origin;
    p.cu_q_stride = c.cu_seqlens_q.stride;
    p.cu_k_stride = c.cu_seqlens_k.stride;
    p.kv_lens_stride = c.kv_lens.stride;
    p.segments = list.segments;
    p.work = list.words;
    p.q_origin = t.q.origin;
    p.k_origin = t.k.origin;
    p.v_origin = t.v.origin;
    p.out_origin = c.out.element == Element::kF32 ? t.out32.origin : t.out16.origin;
    p.lse_origin = t.lse.origin;
    p.status_word = {c.status_word, c.status_word != nullptr ? 1 : 0};
    p.has_status_word = c.status_word != nullptr;
    p.q_batch = c.q.batch;
    p.k_batch = c.k.batch;
    p.v_batch = c.v.batch;
    p.out_batch = c.out.batch;
    p.lse_batch = c.lse_batch;
    p.q_token = c.q.token;
    p.k_token = c.k.token;
    p.v_token = c.v.token;
    p.out_token = c.out.token;
    p.lse_token = c.lse_token;
    p.count = list.segment_count;
    p.tokens_q = static_cast<u32>(c.work == core::Work::kQuantize ? c.tokens_k : c.tokens_q);
    p.tokens_k = static_cast<u32>(c.tokens_k);
    p.heads_q = static_cast<u32>(c.heads_q);
    p.rows_per_item = static_cast<u32>(c.schedule->rows_per_item);
    p.is_packed = c.is_packed;
    p.has_cu_seqlens = c.cu_seqlens_q.data != nullptr;
    p.has_kv_lens = c.kv_lens.data != nullptr;
    return p;
}

// Whether `sample` writes the list: a quantised call of one segment whose length the host knows.
[[nodiscard]] inline bool sample_builds_list(const Call& c) {
    return c.is_quantized() && c.work != core::Work::kAttend && c.segments == 1 &&
           c.cu_seqlens_q.data == nullptr && c.kv_lens.data == nullptr && c.total_q() > 0;
}

inline void build_worklist(const Call& c, const worklist::BuildParams& p,
                           launch::Launcher& launcher) {
    if (!sample_builds_list(c)) {
        launcher.run<worklist::build_worklist<>>("build_worklist", {}, worklist::kBuildThreads,
                                                 sizeof(worklist::BuildShared), p);
    }
}

// ---------------------------------------------------------------- operands

inline quantize::Inputs inputs(const Call& c, const TensorViews& t,
                               const worklist::WorkList& list) {
    quantize::Inputs x;
    x.q = {t.q.view, strides(c.q)};
    x.k = {t.k.view, strides(c.k)};
    x.v = {t.v.view, strides(c.v)};
    x.q_batch = c.q.batch;
    x.k_batch = c.k.batch;
    x.v_batch = c.v.batch;
    x.list = list;
    x.builds_list = sample_builds_list(c);
    x.build = build_params(c, t, list);
    x.shape = c.packed_shape();
    x.channels = static_cast<u32>(c.head_dim);
    x.channels_v = static_cast<u32>(c.head_dim_v);
    x.is_f16 = c.q.element == Element::kF16;
    x.softmax_scale = c.softmax_scale;
    x.has_lse = c.lse != nullptr;
    x.packs_q = c.work != core::Work::kQuantize;
    x.packs_kv = c.work != core::Work::kAttend;
    return x;
}

// Codes, scales and means of Q, K and V; written are those that are not there yet.
inline tile::PackedOperands quantize_operands(const Call& c, const Workspace& w,
                                              const TensorViews& t, const worklist::WorkList& list,
                                              launch::Launcher& launcher) {
    const tile::PackedShape shape = c.packed_shape();
    const tile::PackedOperands to{.q = part<u8>(c, w.q),
                                  .k = part<u8>(c, w.k),
                                  .v = part<u8>(c, w.v),
                                  .q_factor = part<float>(c, w.q_factor),
                                  .lse_shift = part<float>(c, w.lse_shift),
                                  .k_scale = part<float>(c, w.k_scale),
                                  .v_scale = part<float>(c, w.v_scale),
                                  .v_mean = part<float>(c, w.v_mean),
                                  .k_mean = part<float>(c, w.k_mean),
                                  .q_rows = shape.queries,
                                  .q_tiles = shape.query_tiles(),
                                  .k_tiles = shape.key_tiles()};
    quantize::pack_fp8(
        inputs(c, t, list), to,
        {part<float>(c, w.v_sample_scale), part<u32>(c, w.v_beyond), part<u32>(c, w.v_lied)},
        static_cast<u32>(c.blocks), launcher);
    return to;
}

// Rows of 16-bit numbers: the caller's, or copies in the workspace.
inline tile::RowOperands row_operands(const Call& c, const Workspace& w, const TensorViews& t,
                                      const worklist::WorkList& list, launch::Launcher& launcher) {
    if (c.is_direct) {
        return {.q = t.q.view,
                .k = t.k.view,
                .v = t.v.view,
                .q_strides = strides(c.q),
                .k_strides = strides(c.k),
                .v_strides = strides(c.v),
                .is_copy = false};
    }
    const auto q = part<u16>(c, w.q), k = part<u16>(c, w.k), v = part<u16>(c, w.v);
    quantize::copy_16bit(inputs(c, t, list), q, k, v, launcher);
    const tile::PackedShape shape = c.packed_shape();
    const tile::Strides of_keys{shape.dim, shape.k_codes() / shape.heads_kv, 1};
    return {.q = q,
            .k = k,
            .v = v,
            .q_strides = {shape.dim, shape.queries * shape.dim, 1},
            .k_strides = of_keys,
            .v_strides = of_keys,
            .is_copy = true};
}

// ---------------------------------------------------------------- results

inline epilogue::Output output(const Call& c, const TensorViews& t) {
    const bool is_f32 = c.out.element == Element::kF32;
    // Whether n neighbouring channels may be stored at once: they never cross a multiple of n.
    const auto in_steps_of = [&](i64 n) {
        return c.head_dim_v % n == 0 && c.out.channel == 1 && c.out.batch % n == 0 &&
               c.out.token % n == 0 && c.out.head % n == 0 &&
               reinterpret_cast<std::uintptr_t>(c.out.data) %
                       static_cast<std::uintptr_t>(n * (is_f32 ? 4 : 2)) ==
                   0;
    };
    epilogue::Output out{};
    out.out16 = t.out16.view;
    out.out32 = t.out32.view;
    out.strides = strides(c.out);
    out.type = is_f32                           ? epilogue::Output::Type::kF32
               : c.out.element == Element::kF16 ? epilogue::Output::Type::kF16
                                                : epilogue::Output::Type::kBf16;
    out.pairs = in_steps_of(2);
    out.bulk = !is_f32 && in_steps_of(8);
    out.channels = static_cast<u32>(c.head_dim_v);
    out.has_lse = c.lse != nullptr;
    out.lse = t.lse.view;
    out.lse_head = c.lse_head;
    out.lse_token = c.lse_token;
    return out;
}

// Rows of a packed stream past its last segment.
inline void zero_tail(const Call& c, const TensorViews& t, const epilogue::Output& out,
                      const worklist::WorkList& list, launch::Launcher& launcher) {
    const bool is_f32 = out.type == epilogue::Output::Type::kF32;
    epilogue::TailParams p{};
    p.work = list.words;
    p.out = out;
    p.out_origin = is_f32 ? t.out32.origin : t.out16.origin;
    p.lse_origin = t.lse.origin;
    p.tokens_q = static_cast<u32>(c.tokens_q);
    launcher.run<epilogue::zero_tail<>>("zero_tail",
                                        {static_cast<u32>(c.blocks), static_cast<u32>(c.heads_q)},
                                        epilogue::kTailThreads, 0, p);
}

// ---------------------------------------------------------------- a call

// `attend`: attend_of(c), or in tests an instance of their own.
inline void run_stages(const Call& call, launch::Launcher& launcher, schedule::Attend attend) {
    const Call c = touched(call);
    const Workspace w(c);
    const TensorViews t(c);
    const worklist::WorkList list = work_list(c, w);
    build_worklist(c, build_params(c, t, list), launcher);
    if (c.work == core::Work::kQuantize) {
        if (c.segments > 0) {
            (void)quantize_operands(c, w, t, list, launcher);
        }
        return;
    }
    if (c.total_q() == 0) {
        return;
    }
    const epilogue::Output out = output(c, t);
    if (c.segments > 0) {
        schedule::AttendParams p{};
        if (c.is_quantized()) {
            p.packed = quantize_operands(c, w, t, list, launcher).as_const();
        } else {
            p.rows = row_operands(c, w, t, list, launcher);
        }
        p.out = out;
        p.list = list;
        p.heads_q = static_cast<u32>(c.heads_q);
        p.heads_per_group = static_cast<u32>(c.heads_q / c.heads_kv);
        p.is_causal = c.is_causal;
        // NOTE: never 0, or masked scores, -inf, would become NaN.
        const float factor = c.softmax_scale * 1.4426950408889634f;
        p.score_factor = factor > 0 ? factor : std::numeric_limits<float>::min();
        attend(launcher, p, static_cast<u32>(c.blocks));
    }
    if (c.zero_tail && c.is_packed && c.cu_seqlens_q.data != nullptr) {
        zero_tail(c, t, out, list, launcher);
    }
}

inline void run_stages(const Call& c, launch::Launcher& launcher) {
    const schedule::Attend attend = attend_of(c);
    attend != nullptr ? run_stages(c, launcher, attend) : launcher.fail("attention");
}

}  // namespace QUATT_ABI
}  // namespace quatt::cuda

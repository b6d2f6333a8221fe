// One attention call as plain numbers and pointers: what the launch code (nvcc, or the executor)
// gets from the planning code. No CUDA header and no view, so that both sides compile it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "cuda/schedule/row.hpp"
#include "cuda/tile/packed.hpp"
#include "cuda/worklist/layout.hpp"

namespace quatt::cuda {

enum class Element : std::int32_t { kBf16, kF16, kF32 };

// q, k, v or out. Strides in elements; 0 where the extent is 1.
struct Tensor {
    void* data;
    Element element;
    std::int64_t batch, token, head, channel;
};

// Operands of the recipe are codes in packed tiles; else rows of 16-bit numbers.
[[nodiscard]] inline bool is_quantized(const quatt_recipe& r) {
    return r.k.scale_format != QUATT_SCALE_NONE;
}

struct Lengths {
    const std::int32_t* data;  // null: absent
    std::int64_t stride;
};

struct Call {
    Tensor q, k, v, out;
    float* lse;  // null: not wanted
    std::int64_t lse_batch, lse_head, lse_token;
    Lengths cu_seqlens_q, cu_seqlens_k, kv_lens;
    std::int32_t* status_word;
    std::int64_t segments, tokens_q,
        tokens_k;  // batch items or segments; Sq and Sk, or the capacities of the packed stream
    std::int32_t heads_q, heads_kv, head_dim, head_dim_v;
    bool is_packed, is_causal, zero_tail;
    float softmax_scale;
    const quatt_recipe* recipe;  // a named one
    const schedule::ScheduleRow* schedule;
    bool is_direct;                    // rows of 16 bit: the kernel reads q, k and v where they are
    bool has_block_scaled;             // the instruction of sm_120f, also where it must be emulated
    std::uint32_t block_shared_bytes;  // that a block may have
    bool overlaps;                     // programmatic dependent launch
    std::int32_t blocks;  // of the persistent grids; 0: as many as the GPU has multiprocessors
    core::Work work;
    std::byte* workspace;
    std::byte* packed;  // K and V of an 8-bit recipe; only read in kAttend

    [[nodiscard]] std::int64_t total_q() const {
        return is_packed ? tokens_q : segments * tokens_q;
    }
    [[nodiscard]] std::int64_t total_k() const {
        return is_packed ? tokens_k : segments * tokens_k;
    }
    [[nodiscard]] std::int64_t padded_dim() const {
        const std::int32_t d = head_dim > head_dim_v ? head_dim : head_dim_v;
        return d <= 64 ? 64 : 128;
    }
    // Its operands are codes in packed tiles; else rows of 16-bit numbers.
    [[nodiscard]] bool is_quantized() const { return cuda::is_quantized(*recipe); }
    [[nodiscard]] tile::PackedShape packed_shape() const {
        return {.segments = segments,
                .queries = total_q(),
                .keys = total_k(),
                .heads_q = heads_q,
                .heads_kv = heads_kv,
                .dim = padded_dim()};
    }
};

// Where things lie, in bytes from the start of the workspace or of packed K and V. In a run the
// latter follow the workspace's own parts.
struct Workspace {
    struct Part {
        std::size_t at = 0, bytes = 0;
        bool is_packed = false;
    };
    Part segments, work;
    Part q, k, v;  // codes, or where packed rows of 16 bit
    Part q_factor, lse_shift, k_scale, v_scale, v_mean, k_mean;  // quantised
    Part v_sample_scale, v_beyond, v_lied;                       // see quantize/config.hpp
    std::size_t own_bytes = 0, packed_bytes = 0;

    static constexpr std::size_t kAlign = 256;

    explicit Workspace(const Call& c) {
        constexpr std::int64_t kFloat = 4;
        const tile::PackedShape shape = c.packed_shape();
        segments = take(worklist::kSegmentBytes * c.segments);
        work = take(4 * worklist::list_words(c.segments));
        if (c.is_quantized()) {
            q = take(shape.q_codes());
            k = take_packed(shape.k_codes());
            v = take_packed(shape.k_codes());
            q_factor = take(kFloat * shape.q_rows());
            lse_shift = take(c.lse != nullptr ? kFloat * shape.q_rows() : 0);
            k_scale = take_packed(kFloat * shape.k_scales());
            v_scale = take_packed(kFloat * shape.channels());
            v_mean = take_packed(kFloat * shape.channels());
            k_mean = take_packed(kFloat * shape.channels());
            v_sample_scale = take(kFloat * shape.channels());
            v_beyond = take(4 * shape.channels());
            v_lied = take(4 * shape.segments * shape.heads_kv);
        } else if (!c.is_direct) {
            q = take(2 * shape.q_rows() * shape.dim);
            k = take(2 * shape.k_codes());
            v = take(2 * shape.k_codes());
        }
    }

    // Of a run.
    [[nodiscard]] std::size_t bytes() const { return own_bytes + packed_bytes; }

private:
    static Part take(std::int64_t count, std::size_t& used, bool is_packed) {
        const auto size = static_cast<std::size_t>(count);
        const Part p{used, size, is_packed};
        used += (size + kAlign - 1) / kAlign * kAlign;
        return p;
    }
    Part take(std::int64_t count) { return take(count, own_bytes, false); }
    Part take_packed(std::int64_t count) { return take(count, packed_bytes, true); }
};

// Gives a run its workspace.
inline void place(Call& c, std::byte* workspace) {
    c.workspace = workspace;
    c.packed = workspace + Workspace(c).own_bytes;
}

}  // namespace quatt::cuda

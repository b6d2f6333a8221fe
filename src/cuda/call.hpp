// One attention call as plain numbers and pointers: what the launch code (nvcc, or the executor)
// gets from the planning code. No CUDA header, no view, no library type, so that both sides compile
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quatt::cuda {

enum class Element : std::int32_t { kBf16, kF16, kF32 };
enum class Recipe : std::int32_t { kBf16, kF16, kFp8 };
enum class Schedule : std::int32_t { kWarpMma, kWgmma };

// Strides in elements; 0 where the extent is 1.
struct Operand {
    void* data;
    Element element;
    std::int64_t batch, token, head, channel;
};

struct Lengths {
    const std::int32_t* data;  // null: absent
    std::int64_t stride;
};

struct Call {
    Operand q, k, v, out;
    float* lse;  // null: not wanted
    std::int64_t lse_batch, lse_head, lse_token;
    Lengths cu_seqlens_q, cu_seqlens_k, kv_lens;
    std::int32_t* status_word;
    std::int64_t segments, tokens_q,
        tokens_k;  // batch items or segments; Sq and Sk, or the capacities of the packed stream
    std::int32_t heads_q, heads_kv, head_dim, head_dim_v;
    bool is_packed, is_causal, zero_tail;
    float softmax_scale;
    Recipe recipe;
    Schedule schedule;
    bool is_direct;         // 16 bit: the kernel reads q, k and v where they are
    bool block_scaled;      // 8 bit: the instruction of sm_120f, also where it must be emulated
    bool has_small_shared;  // an SM of sm_120 has 100 KB of shared memory, one of sm_90 228
    bool overlaps;          // programmatic dependent launch
    std::int32_t blocks;    // of the persistent grids; 0: as many as the GPU has multiprocessors
    std::byte* workspace;

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
    // Tiles of 64 or 128 keys over all segments: each may end in one that is not full.
    [[nodiscard]] std::int64_t key_tiles(std::int64_t keys) const {
        return total_k() / keys + segments;
    }
    // Tiles of 64 rows, likewise.
    [[nodiscard]] std::int64_t query_tiles() const { return total_q() / 64 + segments; }
};

// Where things lie in the workspace, in bytes from its start.
struct Workspace {
    struct Part {
        std::size_t at = 0, bytes = 0;
    };
    Part segments, work;
    Part q8, k8, v8, q_factor, lse_shift, k_scale, v_scale, v_mean, k_mean, partials;  // 8 bit
    Part q16, k16, v16;  // 16 bit, where packed
    std::size_t bytes = 0;

    static constexpr std::size_t kAlign = 256;

    explicit Workspace(const Call& c) {
        const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
        const std::size_t dim = n(c.padded_dim()), hq = n(c.heads_q), hkv = n(c.heads_kv),
                          tiles = n(c.key_tiles(64));
        segments = take(64 * n(c.segments));
        work = take(4 * (4 + 2 * n(c.segments)));
        if (c.recipe == Recipe::kFp8) {
            q8 = take(hq * n(c.query_tiles()) * 64 * dim);
            k8 = take(hkv * tiles * 64 * dim);
            v8 = take(hkv * tiles * 64 * dim);
            q_factor = take(4 * hq * n(c.total_q()));
            lse_shift = take(c.lse != nullptr ? 4 * hq * n(c.total_q()) : 0);
            k_scale = take(16 * hkv * tiles);
            v_scale = take(4 * n(c.segments) * hkv * dim);
            v_mean = take(4 * n(c.segments) * hkv * dim);
            k_mean = take(4 * n(c.segments) * hkv * dim);
            partials = take(4 * hkv * n(c.key_tiles(128)) * 4 * dim);
        } else if (!c.is_direct) {
            q16 = take(2 * hq * n(c.total_q()) * dim);
            k16 = take(2 * hkv * tiles * 64 * dim);
            v16 = take(2 * hkv * tiles * 64 * dim);
        }
    }

private:
    Part take(std::size_t size) {
        const Part p{bytes, size};
        bytes += (size + kAlign - 1) / kAlign * kAlign;
        return p;
    }
};

}  // namespace quatt::cuda

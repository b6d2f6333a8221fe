// Where the host kernels keep operands: pieces of a workspace, and the canonical arrays of all
// heads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/kernel.hpp"
#include "recipe/quantize.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {

// Hands out aligned pieces of a block; with a null block it only counts.
class BumpAllocator {
public:
    explicit BumpAllocator(std::byte* base) : base_(base) {}
    template <class T>
    T* take(std::int64_t count) {
        std::byte* p = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (static_cast<std::size_t>(count) * sizeof(T) + kWorkspaceAlign - 1) /
                 kWorkspaceAlign * kWorkspaceAlign;
        return reinterpret_cast<T*>(p);
    }
    [[nodiscard]] std::size_t used() const { return used_; }

private:
    std::byte* base_;
    std::size_t used_ = 0;
};

// Canonical arrays of all heads of an operand. Rows of a segment that starts at token b, the s-th,
// begin at b / group + s: lengths need not be known to size the arrays, and no two segments meet,
// since ceil(len / group) <= floor((b + len) / group) - floor(b / group) + 1.
class Arena {
public:
    Arena(const quatt_operand_recipe& r, bool mean_term, std::int64_t heads, std::int64_t tokens,
          std::int64_t segments, std::int64_t channels, BumpAllocator& allocator)
        : r_(r),
          mean_term_(mean_term),
          tokens_(tokens),
          channels_(channels),
          segments_(segments),
          unit_(recipe::canonical_shape(r, mean_term, 1, channels)) {
        codes_ = allocator.take<std::byte>(heads * tokens * channels * unit_.code_bytes);
        scales_ =
            allocator.take<float>(heads * scale_rows(tokens, segments) * unit_.channel_groups);
        mean_ = allocator.take<float>(heads * mean_rows(tokens, segments) * channels);
        norm_ = allocator.take<float>(heads * norm_rows(tokens, segments));
        far_ = allocator.take<std::uint64_t>(heads * far_rows(tokens, segments));
        if (mean_term) {
            mean_codes_ = allocator.take<std::byte>(heads * mean_rows(tokens, segments) * channels);
            mean_scales_ =
                allocator.take<float>(heads * mean_rows(tokens, segments) * unit_.channel_groups);
        }
    }

    [[nodiscard]] recipe::CanonicalHead head(std::int64_t head, std::int64_t segment,
                                             std::int64_t begin, std::int64_t length) const {
        const std::int64_t scale_row =
            head * scale_rows(tokens_, segments_) + scale_rows(begin, segment);
        const std::int64_t mean_row =
            head * mean_rows(tokens_, segments_) + mean_rows(begin, segment);
        recipe::CanonicalHead h;
        h.codes = codes_ + (head * tokens_ + begin) * channels_ * unit_.code_bytes;
        h.scales = scales_ + scale_row * unit_.channel_groups;
        h.mean = mean_ + mean_row * channels_;
        h.norm = norm_ + head * norm_rows(tokens_, segments_) + norm_rows(begin, segment);
        h.far = far_ + head * far_rows(tokens_, segments_) + far_rows(begin, segment);
        if (mean_term_) {
            h.mean_codes = mean_codes_ + mean_row * channels_;
            h.mean_scales = mean_scales_ + mean_row * unit_.channel_groups;
        }
        h.tokens = length;
        h.channels = channels_;
        h.shape = recipe::canonical_shape(r_, mean_term_, length, channels_);
        return h;
    }

private:
    // Rows before token `begin` of segment `segment`; with the totals: rows in all.
    [[nodiscard]] std::int64_t scale_rows(std::int64_t begin, std::int64_t segment) const {
        if (r_.scale_format == QUATT_SCALE_NONE) {
            return 0;
        }
        return r_.key_groups != 0     ? 2 * (begin / 32 + segment)
               : r_.group_tokens == 0 ? segment
                                      : begin / r_.group_tokens + segment;
    }
    [[nodiscard]] std::int64_t block_rows(bool per_block, std::int64_t begin,
                                          std::int64_t segment) const {
        return per_block ? begin / r_.block_tokens + segment : segment;
    }
    [[nodiscard]] std::int64_t mean_rows(std::int64_t begin, std::int64_t segment) const {
        return r_.center == QUATT_CENTER_NONE
                   ? 0
                   : block_rows(r_.center == QUATT_CENTER_BLOCK, begin, segment);
    }
    [[nodiscard]] std::int64_t norm_rows(std::int64_t begin, std::int64_t segment) const {
        return r_.normalize == QUATT_NORMALIZE_NONE
                   ? 0
                   : block_rows(r_.normalize == QUATT_NORMALIZE_BLOCK, begin, segment);
    }

    [[nodiscard]] std::int64_t far_rows(std::int64_t begin, std::int64_t segment) const {
        return recipe::keeps_far_tokens(r_) ? begin / 64 + segment : 0;
    }

    const quatt_operand_recipe& r_;
    bool mean_term_;
    std::int64_t tokens_, channels_, segments_;
    recipe::CanonicalShape unit_;
    std::byte* codes_ = nullptr;
    float* scales_ = nullptr;
    float* mean_ = nullptr;
    float* norm_ = nullptr;
    std::uint64_t* far_ = nullptr;
    std::byte* mean_codes_ = nullptr;
    float* mean_scales_ = nullptr;
};

// The canonical arrays of the heads that are in memory at a time; where everything is in the
// workspace, both allocators are the same.
struct Operands {
    Arena q, k, v;
    Operands(const quatt_recipe& r, const Shape& s, std::int64_t heads_q, std::int64_t heads_kv,
             BumpAllocator& of_q, BumpAllocator& of_kv)
        : q(r.q, r.q_mean_term != 0, heads_q, s.total_q(), s.segments, s.head_dim, of_q),
          k(r.k, false, heads_kv, s.total_k(), s.segments, s.head_dim, of_kv),
          v(r.v, false, heads_kv, s.total_k(), s.segments, s.head_dim_v, of_kv) {}
};

}  // namespace quatt::core

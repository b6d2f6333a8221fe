#include "cpu/attend.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/arena.hpp"
#include "formats/bf16.hpp"
#include "formats/f16.hpp"
#include "recipe/lazy_softmax.hpp"

namespace quatt::cpu {
namespace {

using recipe::kLog2E;
using recipe::kNoMax;
using recipe::RowState;

// Rows whose scores are in memory at a time. A tile is fetched and widened once for a block of
// rows, but scores and P are to stay in the first-level cache.
constexpr std::int64_t kPartRows = 64;
static_assert(kPartRows % kTileRows == 0 && kTileRows % kRowStep == 0 &&
              kBlockRows % kPartRows == 0);

struct Scratch {
    core::BumpAllocator allocator;
    std::uint32_t* q;       // [block rows, steps]
    std::uint32_t* q_mean;  // [row step, steps]: the mean row of Q, padding
    float* k;               // [dim, 64]: a widened tile
    float* v;               // [64, dv]: likewise
    float* t;               // [part rows, 64]
    float* t_mean;          // [row step, 64]
    std::uint32_t* p;       // [part rows, 64 / elements]
    float* l;               // [block rows, kSumLanes]
    float* o;               // [block rows, dv]: under the row's running max
    float* promoted;        // [block rows, dv]: under the max of the row's promoted sums

    Scratch(const TileShape& s, std::byte* base)
        : allocator(base),
          q(allocator.take<std::uint32_t>(kBlockRows * s.steps)),
          q_mean(allocator.take<std::uint32_t>(s.row_step * s.steps)),
          k(allocator.take<float>(s.k_floats())),
          v(allocator.take<float>(s.v_floats())),
          t(allocator.take<float>(kPartRows * kTile)),
          t_mean(allocator.take<float>(s.row_step * kTile)),
          p(allocator.take<std::uint32_t>(kPartRows * kTile)),
          l(allocator.take<float>(kBlockRows * kSumLanes)),
          o(allocator.take<float>(kBlockRows * s.dv)),
          promoted(allocator.take<float>(kBlockRows * s.dv)) {}
};

void prefetch(const std::byte* tile, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(tile + i, 0, 2);
    }
}

class AttendedBlock {
public:
    AttendedBlock(const recipe::HeadProblem& p, const BlockOptions& o, const PackedHead& head,
                  std::span<const std::int64_t> rows, std::byte* scratch)
        : p_(p),
          o_(o),
          r_(*o.recipe),
          policy_(recipe::softmax_policy(r_)),
          head_(head),
          first_row_(rows.front()),
          n_(static_cast<std::int64_t>(rows.size())),
          s_(o.shape, scratch) {}

    void run() {
        load_queries();
        const std::int64_t keys = p_.mask.k_len;
        const std::int64_t intervals = (keys + r_.promotion_interval - 1) / r_.promotion_interval;
        // Splits beyond the intervals are empty: any number of them must cost nothing.
        const std::int64_t splits = std::clamp<std::int64_t>(intervals, 1, o_.splits);
        for (std::int64_t split = splits - 1; split >= 0; split--) {
            const std::int64_t begin = split * intervals / splits * r_.promotion_interval;
            const std::int64_t end =
                std::min(keys, (split + 1) * intervals / splits * r_.promotion_interval);
            walk(std::max(begin, first_), std::min(end, last_));
            for (std::int64_t i = 0; i < n_; i++) {
                end_split(i);
            }
        }
        for (std::int64_t i = 0; i < n_; i++) {
            finish_row(p_, r_, head_.k, head_.v, first_row_ + i, at(promoted_m_, i),
                       at(promoted_l_, i), at(promoted_far_, i), s_.promoted + i * o_.shape.dv);
        }
    }

private:
    template <class T>
    static T& at(std::array<T, kBlockRows>& a, std::int64_t i) {
        return a[static_cast<std::size_t>(i)];
    }

    // What is past the rows is 0 or what an earlier part left: its products go nowhere.
    void load_queries() {
        const std::int64_t rows = padded(n_, o_.shape.row_step);
        std::fill(s_.q, s_.q + rows * o_.shape.steps, 0u);
        std::fill(s_.q_mean, s_.q_mean + o_.shape.row_step * o_.shape.steps, 0u);
        std::fill(s_.p, s_.p + kPartRows * kTile, 0u);
        std::fill(s_.l, s_.l + rows * kSumLanes, 0.0f);
        std::fill(s_.o, s_.o + rows * o_.shape.dv, 0.0f);
        std::fill(s_.promoted, s_.promoted + rows * o_.shape.dv, 0.0f);
        first_ = last_whole_ = p_.mask.k_len;
        last_ = first_whole_ = 0;
        for (std::int64_t i = 0; i < n_; i++) {
            const std::int64_t row = first_row_ + i;
            pack_query(r_.q, head_.q, row, o_.shape, s_.q + i * o_.shape.steps);
            at(row_factor_, i) =
                recipe::row_factor(r_.q, head_.q, row) * (p_.softmax_scale * kLog2E);
            at(promoted_m_, i) = at(far_m_, i) = kNoMax;
            const std::int64_t first = p_.mask.first(row), last = p_.mask.last(row);
            first_ = std::min(first_, first);
            last_ = std::max(last_, last);
            first_whole_ = std::max(first_whole_, first);
            last_whole_ = std::min(last_whole_, last);
        }
        // (q + mean) . k = q . k + mean . k. A block of rows lies in one block of means.
        if (r_.q_mean_term != 0) {
            pack_query_mean(r_.q, head_.q, first_row_ / r_.q.block_tokens, o_.shape, s_.q_mean);
        }
    }

    // Which keys of a tile each row sees.
    void find_seen(std::int64_t key) {
        const bool whole = key >= first_whole_ && key + kTile <= last_whole_;
        if (whole && seen_whole_) {
            return;
        }
        seen_whole_ = whole;
        for (std::int64_t i = 0; i < n_; i++) {
            const std::int64_t row = first_row_ + i;
            at(seen_first_, i) =
                static_cast<std::int32_t>(std::clamp(p_.mask.first(row) - key, INT64_C(0), kTile));
            at(seen_last_, i) =
                static_cast<std::int32_t>(std::clamp(p_.mask.last(row) - key, INT64_C(0), kTile));
        }
    }

    // Tiles that meet keys [begin, end), last first. Splits are cut at interval borders, so no tile
    // belongs to two.
    void walk(std::int64_t begin, std::int64_t end) {
        if (begin >= end) {
            return;
        }
        for (std::int64_t tile = (end - 1) / kTile; tile >= begin / kTile; tile--) {
            add_tile(tile);
        }
    }

    void add_tile(std::int64_t tile) {
        const TileShape& shape = o_.shape;
        const std::int64_t key = tile * kTile, interval = key / r_.promotion_interval;
        find_seen(key);
        if (policy_.promotes && interval != interval_) {
            enter(interval);
        }
        const std::uint32_t *k = k_tile(tile), *v = v_tile(tile);
        const std::uint64_t not_finite =
            keys_not_finite(head_.v_tiles + tile * shape.v_bytes(), shape);
        const std::uint64_t far = head_.v.shape.far_words > 0 ? head_.v.far[tile] : 0;
        const auto qk = static_cast<std::size_t>(shape.qk);
        const auto pv = static_cast<std::size_t>(shape.pv);
        SoftmaxTile m{};
        m.policy = &policy_;
        m.interval = interval;
        m.t = s_.t;
        m.p = s_.p;
        m.key_factor = recipe::row_factor(r_.k, head_.k, key);
        if (r_.q_mean_term != 0) {
            o_.kernels->qk_product[qk](s_.q_mean, k, shape.row_step, shape.steps, s_.t_mean);
            m.mean_term = s_.t_mean;
        }
        for (std::int64_t i = 0; i < n_; i += kPartRows) {
            m.rows = std::min(kPartRows, n_ - i);
            const std::int64_t rows = padded(m.rows, shape.row_step);
            m.row_factor = row_factor_.data() + i;
            m.first = seen_first_.data() + i;
            m.last = seen_last_.data() + i;
            m.row = state_.data() + i;
            m.l = s_.l + i * kSumLanes;
            m.factor = factor_.data() + i;
            o_.kernels->qk_product[qk](s_.q + i * shape.steps, k, rows, shape.steps, s_.t);
            prefetch_part(tile - 1, i / kPartRows);
            o_.kernels->softmax_tile[pv](m);
            o_.kernels->pv_product[pv](s_.p, v, rows, shape.dv, m.factor, s_.o + i * shape.dv);
            if (not_finite != 0) [[unlikely]] {
                add_not_finite(key, not_finite, i, m.rows);
            }
            if (far != 0) [[unlikely]] {
                add_far(m, far, i);
            }
        }
    }

    // What tiles of V leave out, to rows [first, first + rows) that see it.
    void add_not_finite(std::int64_t tile_key, std::uint64_t keys, std::int64_t first,
                        std::int64_t rows) {
        std::array<float, recipe::kMaxHeadDim> v;
        for (; keys != 0; keys &= keys - 1) {
            const std::int64_t j = std::countr_zero(keys);
            recipe::decode_row(r_.v, head_.v, tile_key + j, v.data());
            for (std::int64_t d = 0; d < o_.shape.dim_v; d++) {
                const float x = v[static_cast<std::size_t>(d)];
                if (std::isfinite(x)) {
                    continue;
                }
                for (std::int64_t i = 0; i < rows; i++) {
                    if (j >= at(seen_first_, first + i) && j < at(seen_last_, first + i)) {
                        s_.o[(first + i) * o_.shape.dv + d] += p_of(i, j) * x;
                    }
                }
            }
        }
    }

    // The unrounded p of keys far from V's centre, to the far sums of the rows from `first` on,
    // which are kept under maxima of their own: most tiles have no such key.
    void add_far(const SoftmaxTile& m, std::uint64_t keys, std::int64_t first) {
        for (std::int64_t i = 0; i < m.rows; i++) {
            const float max = m.row[i].m;
            const float base = max == kNoMax ? 0.0f : max;  // -inf - -inf would be NaN
            float sum = 0;
            for (std::uint64_t left = keys; left != 0; left &= left - 1) {
                const std::int64_t j = std::countr_zero(left);
                if (j >= m.first[i] && j < m.last[i]) {
                    const float product =
                        m.t[i * kTile + j] + (m.mean_term != nullptr ? m.mean_term[j] : 0.0f);
                    const float t = product * m.key_factor * m.row_factor[i];
                    sum +=
                        recipe::exp2_fast((t - base) + static_cast<float>(policy_.exponent_bias));
                }
            }
            const recipe::Joined joined = recipe::join(at(far_m_, first + i), max);
            at(far_, first + i) = at(far_, first + i) * joined.first + sum * joined.second;
            at(far_m_, first + i) = joined.m;
        }
    }

    // P of row i of a part and key j, from where the product reads it.
    [[nodiscard]] float p_of(std::int64_t i, std::int64_t j) const {
        const std::int64_t n = elements(o_.shape.pv), at = i * kTile + j;
        const std::uint32_t unit = s_.p[at / n] >> (at % n * 16);
        switch (o_.shape.pv) {
            case Product::kBf16:
                return formats::Bf16::decode(static_cast<std::uint16_t>(unit));
            case Product::kF16:
                return formats::F16::decode(static_cast<std::uint16_t>(unit));
            default:
                return formats::bit_cast<float>(unit);
        }
    }

    // Before the first tile of an interval. Rows that have not begun have nothing to promote.
    void enter(std::int64_t interval) {
        interval_ = interval;
        for (std::int64_t i = 0; i < n_; i++) {
            if (at(state_, i).interval != interval && at(seen_first_, i) < at(seen_last_, i)) {
                promote(i);
            }
        }
    }

    // Asks for the tile that comes next, K with the first part and V with the second, so that the
    // products need not wait for main memory or a far cache.
    void prefetch_part(std::int64_t tile, std::int64_t part) const {
        if (tile >= 0 && part == 0) {
            prefetch(head_.k_tiles + tile * o_.shape.k_bytes(), o_.shape.k_bytes());
        }
        if (tile >= 0 && (part == 1 || n_ <= kPartRows)) {
            prefetch(head_.v_tiles + tile * o_.shape.v_bytes(), o_.shape.v_bytes());
        }
    }

    [[nodiscard]] const std::uint32_t* k_tile(std::int64_t tile) const {
        const std::byte* packed = head_.k_tiles + tile * o_.shape.k_bytes();
        return widened(r_.k, packed, o_.shape.k_floats(), s_.k);
    }
    [[nodiscard]] const std::uint32_t* v_tile(std::int64_t tile) const {
        const std::byte* packed = head_.v_tiles + tile * o_.shape.v_bytes();
        return widened(r_.v, packed, o_.shape.v_floats(), s_.v);
    }
    [[nodiscard]] const std::uint32_t* widened(const quatt_operand_recipe& r,
                                               const std::byte* packed, std::int64_t floats,
                                               float* to) const {
        if (floats == 0) {
            return reinterpret_cast<const std::uint32_t*>(packed);
        }
        (kept_as_f16(r) ? o_.kernels->widen_f16 : o_.kernels->widen_bf16)(
            reinterpret_cast<const std::uint16_t*>(packed), floats, to);
        return reinterpret_cast<const std::uint32_t*>(to);
    }

    // O joins the promoted sums.
    void promote(std::int64_t i) {
        const recipe::Joined joined = recipe::join(at(promoted_m_, i), at(state_, i).m);
        float* o = s_.o + i * o_.shape.dv;
        float* promoted = s_.promoted + i * o_.shape.dv;
        for (std::int64_t d = 0; d < o_.shape.dv; d++) {
            promoted[d] = promoted[d] * joined.first + o[d] * joined.second;
            o[d] = 0;
        }
        at(promoted_l_, i) *= joined.first;
        at(promoted_far_, i) *= joined.first;
        at(promoted_m_, i) = joined.m;
    }

    void end_split(std::int64_t i) {
        promote(i);
        float l = 0;
        for (std::int64_t lane = 0; lane < kSumLanes; lane++) {
            l += s_.l[i * kSumLanes + lane];
            s_.l[i * kSumLanes + lane] = 0;
        }
        at(promoted_l_, i) += l * recipe::rescaling(at(state_, i).m, at(promoted_m_, i));
        at(promoted_far_, i) += at(far_, i) * recipe::rescaling(at(far_m_, i), at(promoted_m_, i));
        at(far_, i) = 0;
        at(far_m_, i) = kNoMax;
        at(state_, i) = RowState{};
    }

    const recipe::HeadProblem& p_;
    const BlockOptions& o_;
    const quatt_recipe& r_;
    recipe::SoftmaxPolicy policy_;
    const PackedHead& head_;
    std::int64_t first_row_, n_;
    Scratch s_;
    std::int64_t first_ = 0, last_ = 0;              // keys that some row sees
    std::int64_t first_whole_ = 0, last_whole_ = 0;  // keys that all rows see
    bool seen_whole_ = false;                        // seen_* say so of the last tile
    std::int64_t interval_ = -1;                     // of the last tile
    std::array<float, kBlockRows> row_factor_{}, factor_{}, promoted_m_{}, promoted_l_{};
    std::array<float, kBlockRows> far_{}, far_m_{}, promoted_far_{};  // sums of far keys' p
    std::array<std::int32_t, kBlockRows> seen_first_{}, seen_last_{};
    std::array<RowState, kBlockRows> state_{};
};

}  // namespace

std::size_t block_scratch_bytes(const TileShape& s) {
    return Scratch(s, nullptr).allocator.used();
}

void attend_block(const recipe::HeadProblem& p, const BlockOptions& o, const PackedHead& head,
                  std::span<const std::int64_t> rows, std::span<std::byte> scratch) {
    o.kernels->enter();
    AttendedBlock(p, o, head, rows, scratch.data()).run();
    o.kernels->leave();
}

}  // namespace quatt::cpu

// The recipe step by step. Tiles are walked from the last key to the first; see lazy_softmax.hpp
// for what a row does with a tile.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "recipe/accumulate.hpp"
#include "recipe/attend.hpp"
#include "recipe/simd.hpp"
#include "recipe/softmax_tile.hpp"

namespace quatt::recipe {
namespace {

constexpr std::int64_t kWarpRows = 16;  // rows of a warp tile in the counters
constexpr std::int64_t kPvStep = 64;    // keys summed on their own before they join O

[[nodiscard]] std::int64_t padded(std::int64_t channels) {
    return (channels + kFloats - 1) / kFloats * kFloats;
}

// What a block of rows works on. Channel counts are padded to 16 with zeros.
struct Scratch {
    std::int64_t dim, dim_v, tile;
    float* q;         // [rows, dim]
    float* k;         // [dim, tile]: transposed
    float* v;         // [tile, dim_v]
    float* t;         // [rows, tile]: scores
    float* p;         // [tile]
    float* o;         // [rows, dim_v]: under the row's running max
    float* promoted;  // [rows, dim_v]: under the max of the row's promoted sums

    static std::int64_t floats(std::int64_t d, std::int64_t dv, std::int64_t tile) {
        return kRowBlock * padded(d) + padded(d) * tile + tile * padded(dv) + kRowBlock * tile +
               tile + 2 * kRowBlock * padded(dv);
    }
    Scratch(std::span<std::byte> bytes, std::int64_t d, std::int64_t dv, std::int64_t key_tile)
        : dim(padded(d)),
          dim_v(padded(dv)),
          tile(key_tile),
          q(reinterpret_cast<float*>(bytes.data())),
          k(q + kRowBlock * dim),
          v(k + dim * tile),
          t(v + tile * dim_v),
          p(t + kRowBlock * tile),
          o(p + tile),
          promoted(o + kRowBlock * dim_v) {
        std::fill(q, q + floats(d, dv, tile), 0.0f);
    }
};

struct Row {
    RowState state;
    std::int64_t first = 0, last = 0;  // keys that it sees
    float factor = 1;                  // q scale * norm * softmax_scale * log2 e
    float l = 0, l_far = 0;            // under state.m
    float promoted_m = kNoMax;         // running max that the promoted sums are under
    float promoted_l = 0, promoted_far = 0;
};

// t[j] += q . k[:, j] over all channels, in fp32, 32 keys at a time
QUATT_CLONES void scores_fp32(const float* q, const float* k, std::int64_t dim, std::int64_t tile,
                              float* t) {
    for (std::int64_t j = 0; j < tile; j += 2 * kFloats) {
        Floats a = {}, b = {};
        for (std::int64_t d = 0; d < dim; d++) {
            Floats x, y;
            std::memcpy(&x, k + d * tile + j, sizeof x);
            std::memcpy(&y, k + d * tile + j + kFloats, sizeof y);
            a += q[d] * x;
            b += q[d] * y;
        }
        std::memcpy(t + j, &a, sizeof a);
        std::memcpy(t + j + kFloats, &b, sizeof b);
    }
}

// `padded`: channels that the kernels compute with, the rest zeros. NOTE: a step whose products are
// all 0 cuts the accumulator too (a second one then cuts nothing more).
void scores_hopper(const float* q, const float* k, std::int64_t dim, std::int64_t padded,
                   std::int64_t tile, float* t) {
    const bool has_empty_step = padded - dim >= kHopperStep;
    for (std::int64_t j = 0; j < tile; j++) {
        t[j] = 0;
        for (std::int64_t d = 0; d < dim; d += kHopperStep) {
            t[j] =
                hopper_step(t[j], q + d, 1, k + d * tile + j, tile, std::min(kHopperStep, dim - d));
        }
        if (has_empty_step) {
            t[j] = hopper_step(t[j], nullptr, 0, nullptr, 0, 0);
        }
    }
}

// o += p[a..b) . v[a..b, :], 64 keys summed on their own first
QUATT_CLONES void values_fp32(const float* p, const float* v, std::int64_t a, std::int64_t b,
                              std::int64_t dim_v, float* o) {
    for (std::int64_t d = 0; d < dim_v; d += kFloats) {
        Floats sum;
        std::memcpy(&sum, o + d, sizeof sum);
        for (std::int64_t j0 = a; j0 < b; j0 += kPvStep) {
            Floats part = {};
            for (std::int64_t j = j0; j < std::min(b, j0 + kPvStep); j++) {
                Floats x;
                std::memcpy(&x, v + j * dim_v + d, sizeof x);
                part += p[j] * x;
            }
            sum += part;
        }
        std::memcpy(o + d, &sum, sizeof sum);
    }
}

// All keys of the tile: steps past the row's keys cut as well.
void values_hopper(const float* p, const float* v, std::int64_t tile, std::int64_t dim_v,
                   float* o) {
    for (std::int64_t j = 0; j < tile; j += kHopperStep) {
        for (std::int64_t d = 0; d < dim_v; d++) {
            o[d] = hopper_step(o[d], p + j, 1, v + j * dim_v + d, dim_v, kHopperStep);
        }
    }
}

void scale(float* x, std::int64_t n, float factor) {
    if (factor != 1.0f) {
        for (std::int64_t d = 0; d < n; d++) {
            x[d] *= factor;
        }
    }
}

QUATT_CLONES TileOutcome softmax(const SoftmaxPolicy& policy, RowState& row, std::int64_t interval,
                                 const float* t, std::int64_t n, float* p) {
    return softmax_tile(policy, row, interval, t, n, p);
}

class EmulatedBlock {
public:
    EmulatedBlock(const HeadProblem& p, const EmulateOptions& o, const CanonicalHead& q,
                  const CanonicalHead& k, const CanonicalHead& v,
                  std::span<const std::int64_t> rows, std::span<std::byte> scratch,
                  quatt_counters& counters)
        : p_(p),
          o_(o),
          r_(*o.recipe),
          policy_(softmax_policy(r_)),
          q_(q),
          k_(k),
          v_(v),
          indices_(rows),
          s_(scratch, q.channels, v.channels, o.key_tile),
          counters_(counters),
          short_qk_(r_.accumulator == QUATT_ACCUMULATOR_HOPPER &&
                    r_.q.format == QUATT_FORMAT_E4M3 && r_.k.format == QUATT_FORMAT_E4M3),
          short_pv_(r_.accumulator == QUATT_ACCUMULATOR_HOPPER &&
                    r_.overflow_format == QUATT_FORMAT_E4M3 && r_.v.format == QUATT_FORMAT_E4M3) {}

    void run() {
        load_queries();
        const std::int64_t intervals =
            (p_.mask.k_len + r_.promotion_interval - 1) / r_.promotion_interval;
        // Splits beyond the intervals are empty: any number of them must cost nothing.
        const std::int64_t splits = std::clamp<std::int64_t>(intervals, 1, o_.splits);
        for (std::int64_t split = splits - 1; split >= 0; split--) {
            const std::int64_t begin = split * intervals / splits * r_.promotion_interval;
            const std::int64_t end =
                std::min(p_.mask.k_len, (split + 1) * intervals / splits * r_.promotion_interval);
            walk(std::max(begin, first_), std::min(end, last_));
            for (std::int64_t i = 0; i < n(); i++) {
                end_split(i);
            }
        }
        for (std::int64_t i = 0; i < n(); i++) {
            finish_row(p_, r_, k_, v_, index(i), row(i).promoted_m, row(i).promoted_l,
                       row(i).promoted_far, s_.promoted + i * s_.dim_v);
        }
    }

private:
    [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(indices_.size()); }
    [[nodiscard]] std::int64_t index(std::int64_t i) const {
        return indices_[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] Row& row(std::int64_t i) { return rows_[static_cast<std::size_t>(i)]; }

    void load_queries() {
        first_ = p_.mask.k_len;
        last_ = 0;
        std::array<float, kMaxHeadDim> mean;
        for (std::int64_t i = 0; i < n(); i++) {
            Row& x = row(i);
            float* q = s_.q + i * s_.dim;
            decode_row(r_.q, q_, index(i), q);
            if (r_.q_mean_term != 0) {  // (q + mean) . k = q . k + mean . k
                decode_mean_row(r_.q, q_, index(i) / r_.q.block_tokens, mean.data());
                for (std::int64_t d = 0; d < q_.channels; d++) {
                    q[d] += mean[static_cast<std::size_t>(d)];
                }
            }
            x.factor = row_factor(r_.q, q_, index(i)) * (p_.softmax_scale * kLog2E);
            x.first = p_.mask.first(index(i));
            x.last = p_.mask.last(index(i));
            first_ = std::min(first_, x.first);
            last_ = std::max(last_, x.last);
        }
    }

    // Tiles that meet keys [begin, end), last first. Splits are cut at interval borders, so no tile
    // belongs to two.
    void walk(std::int64_t begin, std::int64_t end) {
        for (std::int64_t tile = (end - 1) / s_.tile * s_.tile;
             begin < end && tile + s_.tile > begin; tile -= s_.tile) {
            load_keys(tile);
            for (std::int64_t i0 = 0; i0 < n(); i0 += kWarpRows) {
                bool met = false, overflow = false, refreshed = false;
                for (std::int64_t i = i0; i < std::min(n(), i0 + kWarpRows); i++) {
                    const std::int64_t a = std::max(tile, row(i).first) - tile;
                    const std::int64_t b = std::min(tile + s_.tile, row(i).last) - tile;
                    if (a < b) {
                        const TileUpdate x = meet_one(i, tile, a, b);
                        met = true;
                        overflow |= x.overflowed;
                        refreshed |= x.refreshed;
                        counters_.drops += x.dropped;
                    }
                }
                counters_.warp_tiles += met;
                counters_.overflow_warp_tiles += overflow;
                counters_.refresh_warp_tiles += refreshed;
            }
            if (tile == 0) {
                break;
            }
        }
    }

    void load_keys(std::int64_t tile) {
        std::array<float, kMaxHeadDim> key;
        for (std::int64_t j = 0; j < s_.tile; j++) {
            const bool real = tile + j < k_.tokens;
            if (real) {
                decode_row(r_.k, k_, tile + j, key.data());
                decode_row(r_.v, v_, tile + j, s_.v + j * s_.dim_v);
            } else {
                std::fill(s_.v + j * s_.dim_v, s_.v + (j + 1) * s_.dim_v, 0.0f);
            }
            key_factor_[static_cast<std::size_t>(j)] = real ? row_factor(r_.k, k_, tile + j) : 1.0f;
            for (std::int64_t d = 0; d < k_.channels; d++) {
                s_.k[d * s_.tile + j] = real ? key[static_cast<std::size_t>(d)] : 0.0f;
            }
        }
    }

    // Row i meets keys [a, b) of the tile.
    TileUpdate meet_one(std::int64_t i, std::int64_t tile, std::int64_t a, std::int64_t b) {
        Row& x = row(i);
        float* t = s_.t + i * s_.tile;
        if (short_qk_) {
            const std::int64_t padded = (std::max(s_.dim, s_.dim_v) + 63) / 64 * 64;
            scores_hopper(s_.q + i * s_.dim, s_.k, s_.dim, padded, s_.tile, t);
        } else {
            scores_fp32(s_.q + i * s_.dim, s_.k, s_.dim, s_.tile, t);
        }
        for (std::int64_t j = 0; j < s_.tile; j++) {
            const float score = t[j] * key_factor_[static_cast<std::size_t>(j)] * x.factor;
            t[j] = j >= a && j < b ? score : -std::numeric_limits<float>::infinity();
        }
        const std::int64_t interval = tile / policy_.promotion_interval;
        if (policy_.promotes && interval != x.state.interval) {
            promote(i);
        }
        const auto [update, sum] = softmax(policy_, x.state, interval, t, s_.tile, s_.p);
        float* o = s_.o + i * s_.dim_v;
        scale(o, s_.dim_v, update.rescale);
        x.l = x.l * update.rescale + sum;
        x.l_far = x.l_far * update.rescale + far_sum(t, tile, x.state.m);
        if (short_pv_) {
            values_hopper(s_.p, s_.v, s_.tile, s_.dim_v, o);
        } else {
            values_fp32(s_.p, s_.v, a, b, s_.dim_v, o);
        }
        return update;
    }

    // Of the unrounded p of the tile's keys that are far from V's centre.
    [[nodiscard]] float far_sum(const float* t, std::int64_t tile, float m) const {
        const float base = m == kNoMax ? 0.0f : m;  // -inf - -inf would be NaN
        float sum = 0;
        for (std::int64_t j = 0; v_.shape.far_words > 0 && j < std::min(s_.tile, v_.tokens - tile);
             j++) {
            if (is_far_token(v_, tile + j)) {
                sum += exp2_fast((t[j] - base) + static_cast<float>(policy_.exponent_bias));
            }
        }
        return sum;
    }

    // O joins the promoted sums.
    void promote(std::int64_t i) {
        Row& x = row(i);
        const Joined joined = join(x.promoted_m, x.state.m);
        float* o = s_.o + i * s_.dim_v;
        float* promoted = s_.promoted + i * s_.dim_v;
        for (std::int64_t d = 0; d < s_.dim_v; d++) {
            promoted[d] = promoted[d] * joined.first + o[d] * joined.second;
            o[d] = 0;
        }
        x.promoted_l *= joined.first;
        x.promoted_far *= joined.first;
        x.promoted_m = joined.m;
    }

    void end_split(std::int64_t i) {
        Row& x = row(i);
        promote(i);
        x.promoted_l += x.l * rescaling(x.state.m, x.promoted_m);
        x.promoted_far += x.l_far * rescaling(x.state.m, x.promoted_m);
        x.l = x.l_far = 0;
        x.state = RowState{};
    }

    const HeadProblem& p_;
    const EmulateOptions& o_;
    const quatt_recipe& r_;
    SoftmaxPolicy policy_;
    const CanonicalHead& q_;
    const CanonicalHead& k_;
    const CanonicalHead& v_;
    std::span<const std::int64_t> indices_;
    Scratch s_;
    quatt_counters& counters_;
    bool short_qk_, short_pv_;
    std::int64_t first_ = 0, last_ = 0;
    std::array<Row, kRowBlock> rows_{};
    std::array<float, kMaxKeyTile> key_factor_{};
};

}  // namespace

std::size_t emulate_scratch_bytes(std::int64_t head_dim, std::int64_t head_dim_v,
                                  std::int64_t key_tile) {
    return static_cast<std::size_t>(Scratch::floats(head_dim, head_dim_v, key_tile)) *
           sizeof(float);
}

void emulate_rows(const HeadProblem& p, const EmulateOptions& o, const CanonicalHead& q,
                  const CanonicalHead& k, const CanonicalHead& v,
                  std::span<const std::int64_t> rows, std::span<std::byte> scratch,
                  quatt_counters& counters) {
    EmulatedBlock(p, o, q, k, v, rows, scratch, counters).run();
}

}  // namespace quatt::recipe

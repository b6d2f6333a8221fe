// One head computed twice: by emulate_rows, and by the recipe's text in fp64 on the same quantised
// operands.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "recipe/attend.hpp"
#include "support.hpp"

namespace quatt::support {

// [tokens, channels] of one head, and how it attends.
struct HeadInputs {
    std::int64_t q_len = 0, k_len = 0, dim = 0, dim_v = 0;
    std::vector<float> q, k, v;
    float softmax_scale = 1;
    bool causal = false;
    std::int64_t left = -1, right = -1;
    bool has_sink = false;
    float sink = 0;
    std::int64_t key_tile = 64, splits = 1;

    [[nodiscard]] recipe::Mask mask() const { return {q_len, k_len, causal, left, right}; }
    [[nodiscard]] bool sees(std::int64_t i, std::int64_t j) const {
        return oracle::sees(i, j, q_len, k_len, causal, left, right);
    }
};

[[nodiscard]] inline HeadInputs normal_head(Random& random, std::int64_t q_len, std::int64_t k_len,
                                            std::int64_t dim, std::int64_t dim_v) {
    HeadInputs x;
    x.q_len = q_len;
    x.k_len = k_len;
    x.dim = dim;
    x.dim_v = dim_v;
    x.q = random.normals(q_len * dim);
    x.k = random.normals(k_len * dim);
    x.v = random.normals(k_len * dim_v);
    x.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    return x;
}

struct HeadRows {
    std::vector<float> out;  // [rows, dim_v]
    std::vector<float> lse;  // [rows]
    quatt_counters counters{};
};

// What fp64 makes of a row, and how far fp32 may be from it.
struct Expected {
    std::vector<double> out, out_slack, size;  // size: sum of P |V| / l, of V without its mean
    std::vector<double> of_far;                // |c| l_far / l: what far tokens change
    double lse = 0, lse_slack = 0;
    quatt_counters counters{};  // of this row alone
    bool doubtful = false;      // a decision of lazy softmax hangs on rounding
};

class Head {
public:
    Head(const quatt_recipe& r, const HeadInputs& x)
        : r_(r),
          x_(x),
          q_(r.q, r.q_mean_term != 0, view_of(x_.q, x.q_len, x.dim)),
          k_(r.k, false, view_of(x_.k, x.k_len, x.dim)),
          v_(r.v, false, view_of(x_.v, x.k_len, x.dim_v)) {}

    [[nodiscard]] HeadRows emulate(const std::vector<std::int64_t>& rows) const {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        HeadRows result;
        std::vector<float> out(static_cast<std::size_t>(x_.q_len * x_.dim_v), nan),
            lse(static_cast<std::size_t>(x_.q_len), nan);
        recipe::HeadProblem p;
        p.mask = x_.mask();
        p.softmax_scale = x_.softmax_scale;
        p.has_sink = x_.has_sink;
        p.sink = x_.sink;
        p.q = view_of(x_.q, x_.q_len, x_.dim);
        p.k = view_of(x_.k, x_.k_len, x_.dim);
        p.v = view_of(x_.v, x_.k_len, x_.dim_v);
        p.to.out = reinterpret_cast<std::byte*>(out.data());
        p.to.dtype = QUATT_F32;
        p.to.token_stride = p.to.channels = x_.dim_v;
        p.to.channel_stride = 1;
        p.to.lse = lse.data();
        p.to.lse_stride = 1;
        std::vector<std::byte> scratch(
            recipe::emulate_scratch_bytes(x_.dim, x_.dim_v, x_.key_tile));
        const recipe::EmulateOptions options{&r_, x_.key_tile, x_.splits};
        for (std::size_t first = 0; first < rows.size(); first += recipe::kRowBlock) {
            const std::size_t n = std::min<std::size_t>(recipe::kRowBlock, rows.size() - first);
            recipe::emulate_rows(p, options, q_.head, k_.head, v_.head, {rows.data() + first, n},
                                 scratch, result.counters);
        }
        for (const std::int64_t i : rows) {
            result.out.insert(result.out.end(),
                              out.begin() + static_cast<std::ptrdiff_t>(i * x_.dim_v),
                              out.begin() + static_cast<std::ptrdiff_t>((i + 1) * x_.dim_v));
            result.lse.push_back(lse[static_cast<std::size_t>(i)]);
        }
        return result;
    }

    // Exact softmax of the quantised operands: what is left of a recipe where P is not rounded.
    [[nodiscard]] oracle::RowResult exact(std::int64_t i) const {
        const Scores t = scores(i);
        std::vector<double> s(t.value.size()), v(s.size() * static_cast<std::size_t>(x_.dim_v));
        const double lost = lost_to_smoothing(i);
        for (std::size_t j = 0; j < s.size(); j++) {
            const auto key = static_cast<std::int64_t>(j);
            s[j] = x_.sees(i, key) ? t.value[j] * std::log(2.0) + lost : -oracle::kInf;
            for (std::int64_t d = 0; d < x_.dim_v; d++) {
                v[j * static_cast<std::size_t>(x_.dim_v) + static_cast<std::size_t>(d)] =
                    v_.value(key, d);
            }
        }
        return oracle::attend(s, v, x_.dim_v,
                              x_.has_sink ? static_cast<double>(x_.sink) : -oracle::kInf);
    }

    // The recipe by its text: tiles from the last key to the first, lazy softmax, codes of P, PV,
    // promotion, splits, sink, the mean of V and the keys that are far from it.
    [[nodiscard]] Expected by_the_law(std::int64_t i) const {
        const auto dv = static_cast<std::size_t>(x_.dim_v);
        const Scores t = scores(i);
        const std::int64_t intervals =
            (x_.k_len + r_.promotion_interval - 1) / r_.promotion_interval;
        // fp32 rounds P a few times, sums 64 keys and then tiles.
        const double relative = 2 * t.slack * std::log(2.0) + 1e-5;
        // Sums of p v, of p |v|, and of what may round otherwise.
        std::vector<double> total(dv, 0.0), size(dv, 0.0), loose(dv, 0.0);
        double l = 0, l_far = 0, reference = -oracle::kInf;
        Expected e;
        for (std::int64_t split = x_.splits - 1; split >= 0; split--) {
            const std::int64_t begin = split * intervals / x_.splits * r_.promotion_interval,
                               end = std::min(x_.k_len, (split + 1) * intervals / x_.splits *
                                                            r_.promotion_interval);
            oracle::LazyRow rule(r_, t.slack + 2e-6);
            std::vector<double> o(dv, 0.0), o_size(dv, 0.0), o_loose(dv, 0.0), promoted(dv, 0.0);
            double sum = 0, far = 0;
            std::int64_t interval = -1;
            for (std::int64_t tile =
                     (end + x_.key_tile - 1) / x_.key_tile * x_.key_tile - x_.key_tile;
                 tile >= begin && begin < end; tile -= x_.key_tile) {
                std::vector<double> scores_of_tile(static_cast<std::size_t>(x_.key_tile),
                                                   -oracle::kInf);
                bool some = false;
                for (std::int64_t j = tile; j < std::min(end, tile + x_.key_tile); j++) {
                    if (x_.sees(i, j)) {
                        scores_of_tile[static_cast<std::size_t>(j - tile)] =
                            t.value[static_cast<std::size_t>(j)];
                        some = true;
                    }
                }
                if (!some) {
                    continue;
                }
                if (r_.promotes != 0 && tile / r_.promotion_interval != interval) {
                    for (std::size_t d = 0; d < dv; d++) {
                        promoted[d] += o[d];
                        o[d] = 0;
                    }
                }
                interval = tile / r_.promotion_interval;
                const oracle::LazyTile x = rule.take_tile(interval, scores_of_tile);
                e.doubtful |= x.doubtful;
                e.counters.warp_tiles++;
                e.counters.overflow_warp_tiles += x.overflow ? 1 : 0;
                e.counters.refresh_warp_tiles += x.refreshed ? 1 : 0;
                e.counters.drops += x.fell ? 1 : 0;
                sum = sum * x.factor + x.sum;
                far = far * x.factor + far_sum(tile, x);
                for (std::size_t d = 0; d < dv; d++) {
                    o[d] *= x.factor;
                    o_size[d] *= x.factor;
                    o_loose[d] *= x.factor;
                    promoted[d] *= x.factor;
                }
                add_values(tile, x, t.slack, o, o_size, o_loose);
            }
            const double top = std::max(reference, rule.m),
                         keep = reference == top ? 1 : std::exp2(reference - top),
                         add = rule.m == top ? 1 : std::exp2(rule.m - top);
            l = l * keep + sum * add;
            l_far = l_far * keep + far * add;
            for (std::size_t d = 0; d < dv; d++) {
                total[d] = total[d] * keep + (promoted[d] + o[d]) * add;
                size[d] = size[d] * keep + o_size[d] * add;
                loose[d] = loose[d] * keep + o_loose[d] * add;
            }
            reference = top;
        }
        finish(i, relative, t.slack, reference, l, l_far, total, size, loose, e);
        return e;
    }

    [[nodiscard]] const QuantisedHead& q() const { return q_; }
    [[nodiscard]] const QuantisedHead& k() const { return k_; }
    [[nodiscard]] const QuantisedHead& v() const { return v_; }

private:
    struct Scores {
        std::vector<double> value;  // log2 units, smoothing of K not undone
        double slack = 0;           // how far fp32 may be off
    };

    [[nodiscard]] bool hopper_scores() const {
        return r_.accumulator == QUATT_ACCUMULATOR_HOPPER && r_.q.format == QUATT_FORMAT_E4M3 &&
               r_.k.format == QUATT_FORMAT_E4M3;
    }
    [[nodiscard]] bool hopper_values() const {
        return r_.accumulator == QUATT_ACCUMULATOR_HOPPER && r_.p_format == QUATT_FORMAT_E4M3 &&
               r_.v.format == QUATT_FORMAT_E4M3;
    }

    [[nodiscard]] Scores scores(std::int64_t i) const {
        Scores t;
        const double scale = static_cast<double>(x_.softmax_scale) / std::log(2.0);
        for (std::int64_t j = 0; j < x_.k_len; j++) {
            double sum = 0, size = 0;
            std::vector<oracle::CodePair> codes;
            for (std::int64_t d = 0; d < x_.dim; d++) {
                const double mean = r_.q_mean_term != 0 ? q_.coded_mean(i, d) * q_.norm(i) : 0;
                const double term = hopper_scores() ? q_.code(i, d) * k_.code(j, d)
                                                    : (q_.centred(i, d) + mean) * k_.centred(j, d);
                sum += term;
                size += std::fabs(term);
                if (!hopper_scores()) {
                    continue;
                }
                codes.push_back({q_.code(i, d), k_.code(j, d)});
                if (codes.size() == 32 || d == x_.dim - 1) {
                    hopper_ = oracle::hopper_sum(d < 32 ? 0 : hopper_, codes);
                    codes.clear();
                }
            }
            // Channels are padded to a multiple of 64; a step of zeros cuts the sum once more.
            if (std::max(x_.dim, x_.dim_v) > (x_.dim + 31) / 32 * 32 ||
                (x_.dim + 31) / 32 % 2 == 1) {
                hopper_ = oracle::hopper_sum(hopper_, {});
            }
            const double factor = hopper_scores() ? q_.scale(i, 0) * k_.scale(j, 0) : 1;
            t.value.push_back((hopper_scores() ? hopper_ : sum) * factor * scale);
            // dim + 4 roundings of the sum and its factors at most; the hopper model is exact up to
            // the factors.
            t.slack = std::max(t.slack, (hopper_scores() ? 4 : static_cast<double>(x_.dim) + 4) *
                                            0x1p-24 * size * factor * scale);
        }
        return t;
    }

    // What smoothing K took from every score of the row, natural units: with the unquantised q.
    [[nodiscard]] double lost_to_smoothing(std::int64_t i) const {
        double sum = 0;
        for (std::int64_t d = 0; d < x_.dim && x_.k_len > 0; d++) {
            sum +=
                static_cast<double>(x_.q[static_cast<std::size_t>(i * x_.dim + d)]) * k_.mean(0, d);
        }
        return sum * static_cast<double>(x_.softmax_scale);
    }

    void add_values(std::int64_t tile, const oracle::LazyTile& x, double slack,
                    std::vector<double>& o, std::vector<double>& size,
                    std::vector<double>& loose) const {
        for (std::size_t d = 0; d < o.size(); d++) {
            std::vector<oracle::CodePair> codes;
            for (std::size_t j = 0; j < x.p.size(); j++) {
                const std::int64_t key = tile + static_cast<std::int64_t>(j);
                // Codes of V: its fp32 scales and norm come in at the end.
                const double v = key < x_.k_len
                                     ? v_.code(key, static_cast<std::int64_t>(d)) *
                                           (r_.v.scale_format == QUATT_SCALE_UE4M3
                                                ? v_.scale(key, static_cast<std::int64_t>(d))
                                                : 1)
                                     : 0;
                const double term = x.p[j] == 0 ? 0 : x.p[j] * v;
                size[d] += std::fabs(term);
                loose[d] += std::fabs(v) * may_round_otherwise(x, j, slack);
                if (!hopper_values()) {
                    o[d] += term;
                    continue;
                }
                codes.push_back({x.p[j], v});
                if (codes.size() == 32) {
                    // Also where all keys of the step are masked: it cuts the sum once more.
                    double largest = std::fabs(o[d]);
                    for (const oracle::CodePair& pair : codes) {
                        largest = std::max(largest, std::fabs(pair.a * pair.b));
                    }
                    o[d] = oracle::hopper_sum(o[d], codes);
                    // A sum that is a little off may be cut to the next unit.
                    loose[d] += loose[d] > 0 ? 2 * 0x1p-13 * largest : 0;
                    codes.clear();
                }
            }
        }
    }

    // By how much the code of key j may differ, where its P lies so near to a border that fp32 may
    // fall on the other side.
    [[nodiscard]] double may_round_otherwise(const oracle::LazyTile& x, std::size_t j,
                                             double slack) const {
        const double near = 2 * (slack * std::log(2.0) + 1e-6);
        const auto gap = [&](const oracle::Grid& g, double y, double unit) {
            return oracle::from_border(g, y) * oracle::spacing(g, y) <= near * y
                       ? oracle::spacing(g, y) * unit
                       : 0;
        };
        switch (r_.p_format) {
            case QUATT_FORMAT_BF16:
                return gap(oracle::kBf16, x.exact[j], 1);
            case QUATT_FORMAT_F16:
                return gap(oracle::kF16, x.exact[j], 1);
            case QUATT_FORMAT_E4M3:
                return gap(oracle::kE4m3, x.exact[j], 1);
            case QUATT_FORMAT_E2M1: {
                double amax = 0;
                for (std::size_t n = 0; n < 16; n++) {
                    amax = std::max(amax, x.exact[j / 32 * 32 + n / 4 * 8 + j % 8 / 4 * 4 + n % 4]);
                }
                const double s = oracle::nearest(oracle::kE4m3, amax / 6);
                return s == 0 ? 0 : gap(oracle::kE2m1, x.exact[j] / s, s);
            }
            default:
                return 0;
        }
    }

    // Of the unrounded P of keys that are far from V's centre.
    [[nodiscard]] double far_sum(std::int64_t tile, const oracle::LazyTile& x) const {
        double sum = 0;
        for (std::size_t j = 0; j < x.exact.size(); j++) {
            const std::int64_t key = tile + static_cast<std::int64_t>(j);
            sum += key < x_.k_len && v_.is_far(key) ? x.exact[j] : 0;
        }
        return sum;
    }

    // out = O s / l + c (l - l_far - l_sink) / l
    void finish(std::int64_t i, double relative, double slack, double reference, double l,
                double l_far, const std::vector<double>& total, const std::vector<double>& size,
                const std::vector<double>& loose, Expected& e) const {
        e.out.assign(total.size(), 0.0);
        e.out_slack.assign(total.size(), 0.0);
        e.size.assign(total.size(), 0.0);
        e.of_far.assign(total.size(), 0.0);
        if (l == 0) {
            e.lse = x_.has_sink ? static_cast<double>(x_.sink) : -oracle::kInf;
            return;
        }
        const double lost = lost_to_smoothing(i);
        double keys = l, centred = l - l_far, keep = 1, m = reference;
        if (x_.has_sink) {
            const double s = (static_cast<double>(x_.sink) - lost) / std::log(2.0);
            m = std::max(reference, std::ceil(s));
            keep = std::exp2(reference - m);
            keys = l * keep;
            centred *= keep;
            l = keys + std::exp2(s - m + r_.exponent_bias);
        }
        for (std::size_t d = 0; d < total.size(); d++) {
            const auto channel = static_cast<std::int64_t>(d);
            const double factor =
                v_.norm(0) * (r_.v.scale_format == QUATT_SCALE_F32 ? v_.scale(0, channel) : 1) *
                keep / l;
            const double mean = v_.mean(0, channel) * keys / l;
            e.out[d] = total[d] * factor + v_.mean(0, channel) * centred / l;
            e.size[d] = size[d] * factor;
            e.of_far[d] = std::fabs(v_.mean(0, channel)) * (keys - centred) / l;
            e.out_slack[d] = size[d] * factor * relative + loose[d] * factor +
                             std::fabs(mean) * relative + 1e-36;
        }
        e.lse = (m - r_.exponent_bias + std::log2(l)) * std::log(2.0) + lost;
        // fp32 holds m, log2 l and what smoothing took; the last is a sum of dim products.
        double size_lost = 0;
        for (std::int64_t d = 0; d < x_.dim; d++) {
            size_lost +=
                std::fabs(static_cast<double>(x_.q[static_cast<std::size_t>(i * x_.dim + d)]) *
                          k_.mean(0, d)) *
                static_cast<double>(x_.softmax_scale);
        }
        e.lse_slack = slack + 1e-5 + 4 * 0x1p-24 * (std::fabs(m) + 20) +
                      static_cast<double>(x_.dim + 4) * 0x1p-24 * size_lost;
    }

    quatt_recipe r_;
    HeadInputs x_;
    QuantisedHead q_, k_, v_;
    mutable double hopper_ = 0;
};

}  // namespace quatt::support

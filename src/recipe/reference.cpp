// Exact attention: fp64 throughout, online over tiles of 64 keys.
#include <array>
#include <cmath>
#include <limits>

#include "recipe/attend.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {
namespace {

constexpr std::int64_t kTile = 64;
constexpr double kLightLog2 = 11;  // keys 2^-11 below the largest of their tile are E4M3 subnormals
                                   // at w = 6 (docs/recipes.md)
constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

struct RowState {
    double max = kMinusInf, sum = 0, light = 0;
};

// s[j] = q . k[:, j] for one tile, k transposed: [head_dim, 64]
QUATT_CLONES void scores(const double* q, const double* k, std::int64_t head_dim, double* s) {
    constexpr std::int64_t kWide = 8, kParts = kTile / kWide;
    Doubles acc[kParts] = {};
    for (std::int64_t d = 0; d < head_dim; d++) {
        for (std::int64_t i = 0; i < kParts; i++) {
            Doubles x;
            std::memcpy(&x, k + d * kTile + i * kWide, sizeof x);
            acc[i] += q[d] * x;
        }
    }
    std::memcpy(s, acc, sizeof acc);
}

QUATT_CLONES void add_row(double weight, const double* v, std::int64_t n, double* o) {
    for (std::int64_t d = 0; d < n; d++) {
        o[d] += weight * v[d];
    }
}

}  // namespace

std::size_t reference_scratch_bytes(std::int64_t head_dim, std::int64_t head_dim_v) {
    const std::int64_t doubles =
        kRowBlock * head_dim + kTile * head_dim + kTile * head_dim_v + kRowBlock * head_dim_v;
    return static_cast<std::size_t>(doubles) * sizeof(double);
}

void reference_rows(const HeadProblem& p, std::span<const std::int64_t> rows,
                    std::span<std::byte> scratch) {
    const std::int64_t dim = p.q.channels, dim_v = p.v.channels;
    const auto n_rows = static_cast<std::int64_t>(rows.size());
    auto* q = reinterpret_cast<double*>(scratch.data());  // [rows, dim]
    double* k = q + kRowBlock * dim;                      // [dim, 64]
    double* v = k + kTile * dim;                          // [64, dim_v]
    double* o = v + kTile * dim_v;                        // [rows, dim_v]
    std::fill(o, o + kRowBlock * dim_v, 0.0);
    std::array<RowState, kRowBlock> state{};

    std::int64_t first = p.mask.k_len, last = 0;
    for (std::int64_t r = 0; r < n_rows; r++) {
        load_row(p.q, rows[static_cast<std::size_t>(r)], q + r * dim);
        first = std::min(first, p.mask.first(rows[static_cast<std::size_t>(r)]));
        last = std::max(last, p.mask.last(rows[static_cast<std::size_t>(r)]));
    }

    std::array<double, kMaxHeadDim> key;
    for (std::int64_t tile = first / kTile * kTile; tile < last; tile += kTile) {
        std::fill(k, k + kTile * dim, 0.0);
        for (std::int64_t j = tile; j < std::min(last, tile + kTile); j++) {
            load_row(p.k, j, key.data());
            for (std::int64_t d = 0; d < dim; d++) {
                k[d * kTile + j - tile] = key[static_cast<std::size_t>(d)];
            }
            load_row(p.v, j, v + (j - tile) * dim_v);
        }
        for (std::int64_t r = 0; r < n_rows; r++) {
            const std::int64_t i = rows[static_cast<std::size_t>(r)];
            const std::int64_t a = std::max(tile, p.mask.first(i)) - tile,
                               b = std::min(tile + kTile, p.mask.last(i)) - tile;
            if (a >= b) {
                continue;
            }
            alignas(64) double s[kTile];
            scores(q + r * dim, k, dim, s);
            double top = kMinusInf;
            for (std::int64_t j = a; j < b; j++) {
                s[j] *= static_cast<double>(p.softmax_scale);
                top =
                    std::isnan(s[j]) || s[j] > top ? s[j] : top;  // NaN stays: it makes the row NaN
            }
            RowState& st = state[static_cast<std::size_t>(r)];
            if (top == kMinusInf) {
                continue;
            }
            if (!(top <= st.max)) {
                const double f = st.max == kMinusInf ? 0.0 : std::exp(st.max - top);
                st.sum *= f;
                st.light *= f;
                for (std::int64_t d = 0; d < dim_v; d++) {
                    o[r * dim_v + d] *= f;
                }
                st.max = top;
            }
            const double light_below = top - kLightLog2 * std::log(2.0);
            for (std::int64_t j = a; j < b; j++) {
                const double weight = std::exp(s[j] - st.max);
                st.sum += weight;
                st.light += s[j] <= light_below ? weight : 0.0;
                if (s[j] != kMinusInf) {
                    add_row(weight, v + j * dim_v, dim_v, o + r * dim_v);
                }
            }
        }
    }

    std::array<float, kMaxHeadDim> result;
    for (std::int64_t r = 0; r < n_rows; r++) {
        const std::int64_t i = rows[static_cast<std::size_t>(r)];
        const RowState& st = state[static_cast<std::size_t>(r)];
        const bool no_key = st.max == kMinusInf;
        // The sink joins the denominator; everything is relative to the larger of both logits.
        const double sink = p.has_sink ? static_cast<double>(p.sink) : kMinusInf;
        const double top = no_key || sink > st.max ? sink : st.max;
        const double scale = no_key ? 0.0 : std::exp(st.max - top);
        const double sum = st.sum * scale + (sink == kMinusInf ? 0.0 : std::exp(sink - top));
        for (std::int64_t d = 0; d < dim_v; d++) {
            result[static_cast<std::size_t>(d)] =
                no_key ? 0.0f : static_cast<float>(o[r * dim_v + d] * scale / sum);
        }
        store_row(p.to, i, result.data(),
                  static_cast<float>(top == kMinusInf ? top : top + std::log(sum)));
        if (p.to.light_mass != nullptr) {
            p.to.light_mass[i * p.to.light_stride] =
                no_key ? 0.0f : static_cast<float>(st.light * scale / sum);
        }
    }
}

}  // namespace quatt::recipe

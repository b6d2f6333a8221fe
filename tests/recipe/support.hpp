// Random data, heads quantised by the library with the memory that they need, and calls through the
// public API.
#pragma once
#include <gtest/gtest.h>

#include <quatt/attention.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "recipe/attend.hpp"
#include "recipe/check_recipe.hpp"
#include "recipe/quantize.hpp"
#include "recipe/recipes.hpp"

namespace quatt::support {

// Factor on the number of random cases, 0 to 1: below 1 in the sanitizer runs.
[[nodiscard]] inline double test_scale() {
    const char* text = std::getenv("QUATT_TEST_SCALE");
    return text == nullptr ? 1.0 : std::clamp(std::strtod(text, nullptr), 0.0, 1.0);
}
[[nodiscard]] inline int cases(int n) {
    return std::max(1, static_cast<int>(std::lround(n * test_scale())));
}

// A published figure is a mean over a stated sample; a part of the sample says nothing about it,
// and the same code runs elsewhere.
#define QUATT_NEEDS_WHOLE_SAMPLE()                                                      \
    if (quatt::support::test_scale() < 1) {                                             \
        GTEST_SKIP() << "a statistic of the whole sample; QUATT_TEST_SCALE is below 1"; \
    }                                                                                   \
    static_assert(true)

// Rounded to bf16, as captured tensors are. On the bits: data is made by the million here. x is
// finite and within range.
[[nodiscard]] inline float bf16(double x) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    return std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
}

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    double normal() { return normal_(engine_); }
    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(engine_);
    }
    std::int64_t integer(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
    }  // both included
    template <class T>
    const T& of(const std::vector<T>& all) {
        return all[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(all.size()) - 1))];
    }
    // N(0,1), rounded to bf16 as captured tensors are.
    std::vector<float> normals(std::int64_t n) {
        std::vector<float> x(static_cast<std::size_t>(n));
        for (float& y : x) {
            y = bf16(normal());
        }
        return x;
    }

private:
    std::mt19937_64 engine_;
    std::normal_distribution<double> normal_;
};

// ------------------------------------------------------------------------ one head, by internals

[[nodiscard]] inline recipe::HeadView view_of(const std::vector<float>& x, std::int64_t tokens,
                                              std::int64_t channels) {
    return {.data = reinterpret_cast<const std::byte*>(x.data()),
            .dtype = QUATT_F32,
            .tokens = tokens,
            .channels = channels,
            .token_stride = channels,
            .channel_stride = 1};
}

// Codes, scales, means and norms of one head, in memory of exactly the size that canonical_shape()
// states, between guards.
class QuantisedHead {
public:
    QuantisedHead(const quatt_operand_recipe& r, bool mean_term, const recipe::HeadView& x)
        : r_(r) {
        const recipe::CanonicalShape s =
            recipe::canonical_shape(r, mean_term, x.tokens, x.channels);
        head.shape = s;
        head.tokens = x.tokens;
        head.channels = x.channels;
        head.codes = make(codes_, x.tokens * x.channels * s.code_bytes);
        head.scales = make(scales_, s.token_groups * s.channel_groups);
        head.mean = make(mean_, s.mean_blocks * x.channels);
        head.far = make(far_, s.far_words);
        head.norm = make(norm_, s.norm_blocks);
        head.mean_codes = make(mean_codes_, s.mean_row_codes ? s.mean_blocks * x.channels : 0);
        head.mean_scales =
            make(mean_scales_, s.mean_row_codes ? s.mean_blocks * s.channel_groups : 0);
        recipe::quantize(r, x, head);
    }
    QuantisedHead(const QuantisedHead&) = delete;
    QuantisedHead& operator=(const QuantisedHead&) = delete;

    [[nodiscard]] bool guards_are_whole() const {
        return whole(codes_) && whole(scales_) && whole(mean_) && whole(far_) && whole(norm_) &&
               whole(mean_codes_) && whole(mean_scales_);
    }
    // Code (token j, channel d) as the number it stands for.
    [[nodiscard]] double code(std::int64_t j, std::int64_t d) const {
        return decode(head.codes, j * head.channels + d);
    }
    // Index in `scales` of an element, from the text: what shares a scale.
    [[nodiscard]] std::int64_t group(std::int64_t j, std::int64_t d) const {
        const std::int64_t token = r_.key_groups != 0     ? 2 * (j / 32) + (j % 8 >= 4 ? 1 : 0)
                                   : r_.group_tokens == 0 ? 0
                                                          : j / r_.group_tokens;
        return token * head.shape.channel_groups +
               (r_.group_channels == 0 ? 0 : d / r_.group_channels);
    }
    [[nodiscard]] double scale(std::int64_t j, std::int64_t d) const {
        return r_.scale_format == QUATT_SCALE_NONE ? 1.0
                                                   : static_cast<double>(head.scales[group(j, d)]);
    }
    [[nodiscard]] std::int64_t block(std::int64_t j, bool per_block) const {
        return per_block ? j / r_.block_tokens : 0;
    }
    [[nodiscard]] double norm(std::int64_t j) const {
        return r_.normalize == QUATT_NORMALIZE_NONE
                   ? 1.0
                   : static_cast<double>(
                         head.norm[block(j, r_.normalize == QUATT_NORMALIZE_BLOCK)]);
    }
    [[nodiscard]] double mean(std::int64_t j, std::int64_t d) const {
        return r_.center == QUATT_CENTER_NONE
                   ? 0.0
                   : static_cast<double>(
                         head.mean[block(j, r_.center == QUATT_CENTER_BLOCK) * head.channels + d]);
    }
    // Token j of V is coded as it is, without the centre.
    [[nodiscard]] bool is_far(std::int64_t j) const {
        return head.shape.far_words != 0 && (head.far[j / 64] >> (j % 64) & 1U) != 0;
    }
    // The mean row of token j as its own codes have it (q_mean_term), without norm.
    [[nodiscard]] double coded_mean(std::int64_t j, std::int64_t d) const {
        const std::int64_t b = block(j, true);
        return decode(head.mean_codes, b * head.channels + d) *
               static_cast<double>(head.mean_scales[b * head.shape.channel_groups + d / 16]);
    }
    // What products are made of: x less its mean (but for a far token), after quantisation.
    [[nodiscard]] double centred(std::int64_t j, std::int64_t d) const {
        return norm(j) * scale(j, d) * code(j, d);
    }
    [[nodiscard]] double value(std::int64_t j, std::int64_t d) const {
        return (is_far(j) ? 0 : mean(j, d)) + centred(j, d);
    }

    recipe::CanonicalHead head;

private:
    static constexpr std::size_t kGuard = 32;
    // Floats of 0xFF are NaN: what is not written shows.
    static constexpr std::uint8_t kGuardByte = 0xA5, kFillByte = 0xFF;

    template <class T>
    struct Piece {
        std::vector<T> memory;
        std::size_t size = 0;
    };
    template <class T>
    T* make(Piece<T>& piece, std::int64_t n) {
        piece.size = static_cast<std::size_t>(n);
        piece.memory.resize(piece.size + 2 * kGuard);
        std::memset(static_cast<void*>(piece.memory.data()), kGuardByte,
                    piece.memory.size() * sizeof(T));
        T* data = piece.memory.data() + kGuard;
        std::memset(static_cast<void*>(data), kFillByte, piece.size * sizeof(T));
        return data;
    }
    template <class T>
    [[nodiscard]] static bool whole(const Piece<T>& piece) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.memory.data());
        const std::size_t n = piece.memory.size() * sizeof(T), g = kGuard * sizeof(T);
        const auto guard = [](std::uint8_t b) { return b == kGuardByte; };
        return std::all_of(bytes, bytes + g, guard) && std::all_of(bytes + n - g, bytes + n, guard);
    }
    [[nodiscard]] double decode(const std::byte* codes, std::int64_t i) const {
        std::uint16_t wide = 0;
        float f = 0;
        switch (r_.format) {
            case QUATT_FORMAT_F32:
                std::memcpy(&f, codes + 4 * i, 4);
                return static_cast<double>(f);
            case QUATT_FORMAT_BF16:
                std::memcpy(&wide, codes + 2 * i, 2);
                return oracle::decode_bf16(wide);
            case QUATT_FORMAT_F16:
                std::memcpy(&wide, codes + 2 * i, 2);
                return oracle::decode_f16(wide);
            case QUATT_FORMAT_E4M3:
                return oracle::decode_e4m3(static_cast<std::uint8_t>(codes[i]));
            case QUATT_FORMAT_INT8:
                return static_cast<double>(static_cast<std::int8_t>(codes[i]));
            default:
                return oracle::decode_e2m1(static_cast<std::uint8_t>(codes[i]));
        }
    }

    quatt_operand_recipe r_;
    Piece<std::byte> codes_, mean_codes_;
    Piece<float> scales_, mean_, norm_, mean_scales_;
    Piece<std::uint64_t> far_;
};

// --------------------------------------------------------------------- whole problems, by the API

// [tokens, heads, channels], row-major, of one segment.
struct Case {
    std::int64_t q_len = 0, k_len = 0, heads = 1, dim = 0, dim_v = 0;
    std::vector<float> q, k, v;
    std::vector<std::int64_t> rows;  // of the segment; empty: all

    [[nodiscard]] std::size_t row_count() const {
        return rows.empty() ? static_cast<std::size_t>(q_len) : rows.size();
    }
    [[nodiscard]] std::int64_t row(std::size_t i) const {
        return rows.empty() ? static_cast<std::int64_t>(i) : rows[i];
    }
};

// N(0,1) of equal lengths; `rows` evenly spread ones are computed, the last included.
[[nodiscard]] inline Case gaussian(std::uint64_t seed, std::int64_t tokens, std::int64_t heads,
                                   std::int64_t dim, std::int64_t rows) {
    Random random(seed);
    Case c;
    c.q_len = c.k_len = tokens;
    c.heads = heads;
    c.dim = c.dim_v = dim;
    c.q = random.normals(tokens * heads * dim);
    c.k = random.normals(tokens * heads * dim);
    c.v = random.normals(tokens * heads * dim);
    for (std::int64_t i = 0; i < rows; i++) {
        c.rows.push_back(tokens - 1 - (rows - 1 - i) * tokens / rows);
    }
    return c;
}

struct Options {
    int key_tile = 64, splits = 1;
    bool causal = false;
    std::int64_t left = -1, right = -1;
    double softmax_scale = 0;  // 0: 1/sqrt(dim)
    const std::vector<float>* sink = nullptr;
    DType out = DType::f32;
};

struct Output {
    std::vector<float> out;  // [rows, heads, dim_v]
    std::vector<float> lse;  // [heads, rows]
    quatt_counters counters{};
};

[[nodiscard]] inline Output run(const Case& c, const char* device, const quatt_recipe& r,
                                const Options& o = {}) {
    const std::size_t n = static_cast<std::size_t>(c.q_len * c.heads * c.dim_v);
    const bool emulated = std::strcmp(device, "emulate") == 0;
    // NaN stays where nothing is written.
    std::vector<float> out(n, std::numeric_limits<float>::quiet_NaN()),
        lse(static_cast<std::size_t>(c.q_len * c.heads), out.empty() ? 0 : out[0]);
    std::vector<std::uint16_t> narrow(o.out == DType::f32 ? 0 : n, 0x7FFF);
    Output result;
    Problem p(Recipe(r), Tensor(c.q.data(), DType::f32, {c.q_len, c.heads, c.dim}),
              Tensor(c.k.data(), DType::f32, {c.k_len, c.heads, c.dim}),
              Tensor(c.v.data(), DType::f32, {c.k_len, c.heads, c.dim_v}),
              Tensor(o.out == DType::f32 ? static_cast<const void*>(out.data()) : narrow.data(),
                     o.out, {c.q_len, c.heads, c.dim_v}));
    p.tensors.lse = Tensor(lse.data(), DType::f32, {c.heads, c.q_len});
    p.rows = c.rows.data();
    p.row_count = static_cast<std::int64_t>(c.rows.size());
    p.key_tile = emulated ? o.key_tile : 0;
    p.splits = emulated ? o.splits : 0;
    p.causal = o.causal ? 1 : 0;
    p.window_left = o.left;
    p.window_right = o.right;
    if (o.softmax_scale != 0) {
        p.softmax_scale = static_cast<float>(o.softmax_scale);
    }
    if (o.sink != nullptr) {
        p.tensors.sink = Tensor(o.sink->data(), DType::f32, {c.heads});
    }
    p.tensors.counters = emulated ? &result.counters : nullptr;
    attention(p, device);
    if (!narrow.empty()) {
        for (std::size_t i = 0; i < n; i++) {
            out[i] = static_cast<float>(o.out == DType::bf16 ? oracle::decode_bf16(narrow[i])
                                                             : oracle::decode_f16(narrow[i]));
        }
    }
    const auto width = static_cast<std::size_t>(c.heads * c.dim_v);
    for (std::size_t i = 0; i < c.row_count(); i++) {
        const std::size_t at = static_cast<std::size_t>(c.row(i)) * width;
        result.out.insert(result.out.end(), out.begin() + static_cast<std::ptrdiff_t>(at),
                          out.begin() + static_cast<std::ptrdiff_t>(at + width));
    }
    for (std::int64_t h = 0; h < c.heads; h++) {
        for (std::size_t i = 0; i < c.row_count(); i++) {
            result.lse.push_back(lse[static_cast<std::size_t>(h * c.q_len + c.row(i))]);
        }
    }
    return result;
}

// Relative L2 error over the rows of a head, mean over heads. `remove`: subtracted from every
// number first (the mean of V).
[[nodiscard]] inline double rel_l2(const Case& c, const Output& a, const Output& exact,
                                   double remove = 0) {
    double sum = 0;
    for (std::int64_t h = 0; h < c.heads; h++) {
        double error = 0, norm = 0;
        for (std::size_t r = 0; r < c.row_count(); r++) {
            for (std::int64_t d = 0; d < c.dim_v; d++) {
                const std::size_t i = r * static_cast<std::size_t>(c.heads * c.dim_v) +
                                      static_cast<std::size_t>(h * c.dim_v + d);
                const double x = static_cast<double>(a.out[i]),
                             y = static_cast<double>(exact.out[i]);
                error += (x - y) * (x - y);
                norm += (y - remove) * (y - remove);
            }
        }
        sum += std::sqrt(error / norm);
    }
    return sum / static_cast<double>(c.heads);
}

// NaN where any difference is.
[[nodiscard]] inline double max_lse_error(const Output& a, const Output& exact) {
    double worst = 0;
    for (std::size_t i = 0; i < a.lse.size(); i++) {
        const double e =
            a.lse[i] == exact.lse[i]
                ? 0
                : std::fabs(static_cast<double>(a.lse[i]) - static_cast<double>(exact.lse[i]));
        worst = std::isnan(e) || e > worst ? e : worst;
    }
    return worst;
}

[[nodiscard]] inline bool all_finite(const std::vector<float>& x) {
    return std::all_of(x.begin(), x.end(), [](float y) { return std::isfinite(y); });
}

}  // namespace quatt::support

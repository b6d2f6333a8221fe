// A ragged problem in memory of any layout, the kernels of src/cuda/quantize run on it by the
// executor, and what the canonical quantiser makes of the same data.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/quantize/pack.cuh"
#include "cuda/quantize/sample.cuh"
#include "recipe/quantize.hpp"
#include "recipe/recipes.hpp"
#include "simt/launch.hpp"

namespace quatt::test {

using formats::Bf16;
using formats::E4m3;
using formats::F16;

// ---------------------------------------------------------------- the problem

enum class Layout {
    kFused,     // packed, q, k and v beside each other in one buffer
    kDense,     // [B, S, H, D], shorter segments by kv_lens
    kHeadsOut,  // packed, [H, T, D]
    kNarrow,    // packed, channels 3 elements apart, rows not aligned
};
inline const char* name(Layout l) {
    constexpr const char* kNames[] = {"fused", "dense", "heads out", "narrow"};
    return kNames[static_cast<int>(l)];
}

struct Shape {
    std::int64_t q_heads = 2, kv_heads = 1, channels = 64;
    Layout layout = Layout::kFused;
    bool is_f16 = false;
    std::vector<std::int64_t> q_lens = {}, k_lens = {};
};

inline std::string to_string(const Shape& s) {
    std::string text = std::string(name(s.layout)) + (s.is_f16 ? " f16" : " bf16") + " Hq " +
                       std::to_string(s.q_heads) + " Hkv " + std::to_string(s.kv_heads) + " D " +
                       std::to_string(s.channels) + " q";
    for (const auto n : s.q_lens)
        text += " " + std::to_string(n);
    text += " k";
    for (const auto n : s.k_lens)
        text += " " + std::to_string(n);
    return text;
}

// 16-bit numbers in memory that is NaN wherever the tensor is not.
struct Operand {
    std::vector<std::uint16_t>* memory = nullptr;
    std::int64_t base = 0, batch = 0;
    tile::Strides strides{};

    [[nodiscard]] std::uint16_t& at(std::int64_t offset, std::int64_t token, std::int64_t head,
                                    std::int64_t channel) const {
        return memory->at(static_cast<std::size_t>(base + offset + token * strides.token +
                                                   head * strides.head +
                                                   channel * strides.channel));
    }
    [[nodiscard]] quantize::Input input() const {
        return {{memory->data() + base, static_cast<std::int64_t>(memory->size()) - base}, strides};
    }
    [[nodiscard]] bool is_aligned16(std::int64_t channels) const {
        return quantize::is_aligned16(reinterpret_cast<std::uintptr_t>(memory->data() + base),
                                      batch, strides, channels);
    }
};

class Problem {
public:
    // `make(operand, segment, token, head, channel)` is the value; operand 0 q, 1 k, 2 v.
    template <class Make>
    Problem(const Shape& s, Make make) : shape(s), segments(s.q_lens.size()) {
        const auto total = [](const std::vector<std::int64_t>& lens) {
            std::int64_t sum = 0;
            for (const auto n : lens)
                sum += n;
            return sum;
        };
        const bool is_dense = s.layout == Layout::kDense;
        const auto most = [](const std::vector<std::int64_t>& lens) {
            return *std::max_element(lens.begin(), lens.end());
        };
        const std::int64_t tail = 5, d = s.channels;  // tokens past the last segment
        const auto batches = static_cast<std::int64_t>(segments.size());
        const std::int64_t sq = most(s.q_lens), sk = most(s.k_lens) + 3;  // of a dense item
        q_tokens = is_dense ? batches * sq : total(s.q_lens) + tail;
        k_tokens = is_dense ? batches * sk : total(s.k_lens) + tail;
        const std::int64_t heads[3] = {s.q_heads, s.kv_heads, s.kv_heads};
        std::int64_t fused_head = 0;
        for (int i = 0; i < 3; i++) {
            Operand& x = operands[i];
            const std::int64_t tokens = i == 0 ? q_tokens : k_tokens;
            std::vector<std::uint16_t>& own = memory[s.layout == Layout::kFused ? 0 : i];
            x.memory = &own;
            if (s.layout == Layout::kFused) {
                const std::int64_t all = s.q_heads + 2 * s.kv_heads;
                x.base = fused_head * d;
                x.strides = {all * d, d, 1};
                fused_head += heads[i];
                own.resize(static_cast<std::size_t>(std::max(q_tokens, k_tokens) * all * d));
            } else if (is_dense) {
                x.strides = {heads[i] * d, d, 1};
                x.batch = (i == 0 ? sq : sk) * heads[i] * d;
                own.resize(static_cast<std::size_t>(tokens * heads[i] * d));
            } else if (s.layout == Layout::kHeadsOut) {
                x.strides = {d, (tokens + 1) * d, 1};
                own.resize(static_cast<std::size_t>(heads[i] * (tokens + 1) * d));
            } else {
                x.base = 1;
                x.strides = {heads[i] * (3 * d + 1), 3 * d + 1, 3};
                own.resize(static_cast<std::size_t>(1 + tokens * x.strides.token));
            }
        }
        for (auto& m : memory)
            std::fill(m.begin(), m.end(), std::uint16_t{0xFFFF});

        std::int64_t q = 0, k = 0;
        for (std::size_t i = 0; i < segments.size(); i++) {
            const auto item = static_cast<std::int64_t>(i);
            if (is_dense) q = item * sq, k = item * sk;
            worklist::SegmentEntry& g = segments[i];
            g = {};
            const auto offset = [&](const Operand& x, std::int64_t token) {
                return is_dense ? item * x.batch : token * x.strides.token;
            };
            g.q = offset(operands[0], q);
            g.k = offset(operands[1], k);
            g.v = offset(operands[2], k);
            g.q_len = static_cast<std::int32_t>(s.q_lens[i]);
            g.k_len = static_cast<std::int32_t>(s.k_lens[i]);
            g.q_row = static_cast<std::int32_t>(q);
            g.k_tile = static_cast<std::int32_t>(k / 64 + item);
            q += s.q_lens[i];
            k += s.k_lens[i];
            for (int o = 0; o < 3; o++)
                for (std::int64_t t = 0; t < (o == 0 ? g.q_len : g.k_len); t++)
                    for (std::int64_t h = 0; h < heads[o]; h++)
                        for (std::int64_t c = 0; c < d; c++)
                            operands[o].at(offset_of(o, i), t, h, c) =
                                encode(static_cast<float>(make(o, item, t, h, c)));
        }
        build_table();
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    void build_table() {
        table.clear();
        for (const worklist::SegmentEntry& g : segments) {
            const auto pieces = std::bit_cast<worklist::SegmentPieces>(g);
            table.insert(table.end(), pieces.piece, pieces.piece + 4);
        }
    }
    // As the plan has segments from `first` on whose lengths make no sense.
    void invalidate(std::size_t first) {
        for (std::size_t s = first; s < segments.size(); s++) {
            worklist::SegmentEntry& g = segments[s];
            g.q_len = g.k_len = 0;
            g.q_row = static_cast<std::int32_t>(q_tokens);
            g.k_tile = static_cast<std::int32_t>(k_tokens / 64 + static_cast<std::int64_t>(s));
        }
        build_table();
    }

    [[nodiscard]] std::uint16_t encode(float x) const {
        return shape.is_f16 ? F16::encode(x) : Bf16::encode(x);
    }
    [[nodiscard]] float decode(std::uint16_t c) const {
        return shape.is_f16 ? F16::decode(c) : Bf16::decode(c);
    }
    [[nodiscard]] std::int64_t offset_of(int operand, std::size_t segment) const {
        const worklist::SegmentEntry& g = segments[segment];
        return operand == 0 ? g.q : operand == 1 ? g.k : g.v;
    }
    [[nodiscard]] std::int64_t tokens_of(int operand, std::size_t segment) const {
        return operand == 0 ? segments[segment].q_len : segments[segment].k_len;
    }
    [[nodiscard]] float value(int operand, std::size_t segment, std::int64_t token,
                              std::int64_t head, std::int64_t channel) const {
        return decode(operands[operand].at(offset_of(operand, segment), token, head, channel));
    }
    [[nodiscard]] recipe::HeadView view(int operand, std::size_t segment, std::int64_t head) const {
        const Operand& x = operands[operand];
        const std::int64_t first = x.base + offset_of(operand, segment) + head * x.strides.head;
        return {.data = reinterpret_cast<const std::byte*>(x.memory->data() + first),
                .dtype = shape.is_f16 ? QUATT_F16 : QUATT_BF16,
                .tokens = tokens_of(operand, segment),
                .channels = shape.channels,
                .token_stride = x.strides.token,
                .channel_stride = x.strides.channel};
    }
    [[nodiscard]] bool is_aligned16() const {
        return operands[0].is_aligned16(shape.channels) &&
               operands[1].is_aligned16(shape.channels) && operands[2].is_aligned16(shape.channels);
    }
    [[nodiscard]] std::int64_t dim() const { return shape.channels <= 64 ? 64 : 128; }

    Shape shape;
    std::vector<worklist::SegmentEntry> segments;
    std::vector<ptx::U32x4> table;
    std::vector<std::uint16_t> memory[3];
    Operand operands[3];
    std::int64_t q_tokens = 0, k_tokens = 0;
};

// N(0,1), with a mean that differs from channel to channel and segment to segment.
class Normals {
public:
    explicit Normals(unsigned seed, float spread = 1) : engine_(seed), spread_(spread) {}
    float operator()(int operand, std::int64_t segment, std::int64_t, std::int64_t head,
                     std::int64_t channel) {
        const auto shift =
            static_cast<float>((operand * 7 + segment * 3 + head * 5 + channel) % 9 - 4);
        return spread_ * (normal_(engine_) + shift / 2);
    }

private:
    std::mt19937 engine_;
    std::normal_distribution<float> normal_;
    float spread_;
};

// ---------------------------------------------------------------- the kernels

// Exactly the extents that config.hpp states, of bytes 0xFF.
struct Packed {
    std::int64_t dim, k_tiles, q_rows, q_tiles;
    std::vector<float> k_mean, v_mean, v_scale, q_factor, lse_shift, k_scale, v_sample_scale;
    std::vector<std::uint32_t> v_beyond, v_lied;
    std::vector<std::uint8_t> q8, k8, v8;

    explicit Packed(const Problem& p)
        : dim(p.dim()),
          k_tiles(tile::tiles_of(p.k_tokens, static_cast<std::int64_t>(p.segments.size()), 64)),
          q_rows(p.q_tokens),
          q_tiles(tile::tiles_of(p.q_tokens, static_cast<std::int64_t>(p.segments.size()), 64)) {
        const auto poison = [](auto& v, std::int64_t n) {
            v.resize(static_cast<std::size_t>(n));
            std::memset(static_cast<void*>(v.data()), 0xFF, v.size() * sizeof v[0]);
        };
        const std::int64_t hkv = p.shape.kv_heads, hq = p.shape.q_heads;
        const auto n = static_cast<std::int64_t>(p.segments.size());
        poison(k_mean, n * hkv * dim);
        poison(v_mean, n * hkv * dim);
        poison(v_scale, n * hkv * dim);
        poison(v_sample_scale, n * hkv * dim);
        poison(v_beyond, n * hkv * dim);
        poison(v_lied, n * hkv);
        poison(q_factor, hq * q_rows);
        poison(lse_shift, hq * q_rows);
        poison(k_scale, hkv * k_tiles * 4);
        poison(q8, hq * q_tiles * 64 * dim);
        poison(k8, hkv * k_tiles * 64 * dim);
        poison(v8, hkv * k_tiles * 64 * dim);
    }
    // Same bits of all that attention reads.
    [[nodiscard]] bool operator==(const Packed& o) const {
        const auto same = [](const auto& a, const auto& b) {
            return a.size() == b.size() &&
                   std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
        };
        return same(k_mean, o.k_mean) && same(v_mean, o.v_mean) && same(v_scale, o.v_scale) &&
               same(q_factor, o.q_factor) && same(lse_shift, o.lse_shift) &&
               same(k_scale, o.k_scale) && same(q8, o.q8) && same(k8, o.k8) && same(v8, o.v8);
    }
};

template <class T>
[[nodiscard]] ptx::Global<T> all(std::vector<T>& v) {
    return {v.data(), static_cast<std::int64_t>(v.size())};
}
template <class T>
[[nodiscard]] ptx::Global<const T> all_const(const std::vector<T>& v) {
    return {v.data(), static_cast<std::int64_t>(v.size())};
}

struct RunOptions {
    bool wide = true, lse_shift = true;
    float softmax_scale = 0.09f;
    simt::Options simt = {};
    std::int64_t multiprocessors = 3;
};

template <class Kernel>
void launch(const char* name, const quantize::LaunchShape& l, const simt::Options& o,
            Kernel kernel) {
    if (l.blocks == 0) return;
    const simt::Result result = simt::launch(
        {name, {static_cast<std::uint32_t>(l.blocks)}, {l.threads}, l.shared_bytes}, o, kernel);
    EXPECT_TRUE(result.ok()) << result.summary();
}

template <class Format, std::uint32_t Dim, bool Aligned16>
void run_stages(const Problem& p, Packed& w, const RunOptions& o) {
    const auto count = static_cast<std::uint32_t>(p.segments.size());
    const auto hq = static_cast<std::uint32_t>(p.shape.q_heads);
    const auto hkv = static_cast<std::uint32_t>(p.shape.kv_heads);
    const auto d = static_cast<std::uint32_t>(p.shape.channels);
    const auto table = all_const(p.table);
    const quantize::SampleParams sample{.segments = table,
                                        .builds_list = false,
                                        .build = {},
                                        .kv_heads = hkv,
                                        .channels = d,
                                        .channels_v = d,
                                        .k = p.operands[1].input(),
                                        .v = p.operands[2].input(),
                                        .k_mean = all(w.k_mean),
                                        .v_mean = all(w.v_mean),
                                        .v_scale = all(w.v_scale),
                                        .v_sample_scale = all(w.v_sample_scale),
                                        .v_beyond = all(w.v_beyond),
                                        .v_lied = all(w.v_lied)};
    launch("sample", quantize::sample_launch<Dim>(count, hkv), o.simt,
           [&] { quantize::sample<Format, Dim, Aligned16>(sample); });
    quantize::PackParams pack{};
    pack.q_blocks = static_cast<std::uint32_t>(quantize::query_blocks<Dim>(w.q_tiles, hq));
    pack.q = {.segments = table,
              .segment_count = count,
              .q_heads = hq,
              .heads_per_group = hq / hkv,
              .channels = d,
              .q = p.operands[0].input(),
              .softmax_scale = o.softmax_scale,
              .has_lse_shift = o.lse_shift,
              .q_rows = w.q_rows,
              .q_tiles = w.q_tiles,
              .q8 = all(w.q8),
              .q_factor = all(w.q_factor),
              .k_mean = o.lse_shift ? all_const(w.k_mean) : ptx::Global<const float>{},
              .lse_shift = o.lse_shift ? all(w.lse_shift) : ptx::Global<float>{}};
    pack.k = {.segments = table,
              .segment_count = count,
              .kv_heads = hkv,
              .channels = d,
              .k = p.operands[1].input(),
              .k_tiles = w.k_tiles,
              .k_mean = all_const(w.k_mean),
              .k8 = all(w.k8),
              .k_scale = all(w.k_scale)};
    pack.v = {.segments = table,
              .segment_count = count,
              .kv_heads = hkv,
              .channels = d,
              .v = p.operands[2].input(),
              .k_tiles = w.k_tiles,
              .v_mean = all_const(w.v_mean),
              .v_sample_scale = all_const(w.v_sample_scale),
              .v_beyond = all(w.v_beyond),
              .v_lied = all(w.v_lied),
              .far_keys = {reinterpret_cast<std::uint16_t*>(w.k_scale.data()),
                           2 * static_cast<std::int64_t>(w.k_scale.size())},
              .v_scale = all(w.v_scale),
              .v8 = all(w.v8)};
    launch("pack", quantize::pack_launch<Dim>(w.q_tiles, hq, w.k_tiles, hkv), o.simt,
           [&] { quantize::pack<Format, Dim, Aligned16>(pack); });
    launch("repack", quantize::repack_launch<Dim>(o.multiprocessors), o.simt,
           [&] { quantize::repack<Format, Dim, Aligned16>(pack.v); });
}

[[nodiscard]] inline Packed run(const Problem& p, const RunOptions& o = {}) {
    Packed w(p);
    const std::vector<std::uint16_t> before[3] = {p.memory[0], p.memory[1], p.memory[2]};
    const bool wide = o.wide && p.is_aligned16();
    const auto with = [&]<class Format>(Format) {
        if (w.dim == 64)
            wide ? run_stages<Format, 64, true>(p, w, o) : run_stages<Format, 64, false>(p, w, o);
        else
            wide ? run_stages<Format, 128, true>(p, w, o) : run_stages<Format, 128, false>(p, w, o);
    };
    p.shape.is_f16 ? with(F16{}) : with(Bf16{});
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(p.memory[i], before[i]) << "an input was written";
    return w;
}

// ---------------------------------------------------------------- the canonical quantiser

struct Canonical {
    recipe::CanonicalHead head;
    std::vector<std::byte> codes;
    std::vector<float> scales, mean;
    std::vector<std::uint64_t> far;

    Canonical(const quatt_operand_recipe& r, const recipe::HeadView& x) {
        head.shape = recipe::canonical_shape(r, false, x.tokens, x.channels);
        head.tokens = x.tokens;
        head.channels = x.channels;
        codes.resize(static_cast<std::size_t>(x.tokens * x.channels));
        scales.resize(
            static_cast<std::size_t>(head.shape.token_groups * head.shape.channel_groups));
        mean.resize(static_cast<std::size_t>(head.shape.mean_blocks * x.channels));
        far.resize(static_cast<std::size_t>(head.shape.far_words));
        head.far = far.data();
        head.codes = codes.data();
        head.scales = scales.data();
        head.mean = mean.data();
        recipe::quantize(r, x, head);
    }
    [[nodiscard]] std::uint8_t code(std::int64_t token, std::int64_t channel) const {
        return static_cast<std::uint8_t>(
            codes[static_cast<std::size_t>(token * head.channels + channel)]);
    }
    [[nodiscard]] float scale(std::int64_t i) const { return scales[static_cast<std::size_t>(i)]; }
};

// ---------------------------------------------------------------- packed places, in other words

// Byte of K (key, channel), or of Q (row, channel), in its tile.
[[nodiscard]] inline std::int64_t k_place(std::int64_t dim, std::int64_t key,
                                          std::int64_t channel) {
    const std::int64_t flip = dim == 128 ? key % 8 : key / 2 % 4;
    return key * dim + ((channel / 16) ^ flip) * 16 + channel % 16;
}

// Byte of V (key, channel) in its tile.
[[nodiscard]] inline std::int64_t v_place(std::int64_t key, std::int64_t channel) {
    constexpr int kOrder[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    const std::int64_t place = std::find(kOrder, kOrder + 16, key % 16) - kOrder;
    return channel * 64 + ((key / 16) ^ (channel / 2 % 4)) * 16 + place;
}

// All that the kernels must have written, and bytes 0xFF where they must not write.
class Expected {
public:
    Expected(const Problem& p, const Packed& got, const RunOptions& o) : want(p), p_(p), got_(got) {
        const quatt_recipe& r = *recipe::find_recipe("fp8");
        for (std::size_t s = 0; s < p.segments.size(); s++) {
            for (std::int64_t h = 0; h < p.shape.q_heads; h++) {
                query_head(r, o, s, h);
            }
            for (std::int64_t h = 0; h < p.shape.kv_heads; h++) {
                key_head(r, s, h);
            }
        }
    }

    void compare() const {
        EXPECT_EQ(count_differences(want.k_mean, got_.k_mean), 0) << "k_mean";
        EXPECT_EQ(count_differences(want.v_mean, got_.v_mean), 0) << "v_mean";
        EXPECT_EQ(count_differences(want.v_scale, got_.v_scale), 0) << "v_scale";
        EXPECT_EQ(count_differences(want.q_factor, got_.q_factor), 0) << "q_factor";
        EXPECT_EQ(count_differences(want.k_scale, got_.k_scale), 0) << "k_scale";
        EXPECT_EQ(count_differences(want.q8, got_.q8), 0) << "q8";
        EXPECT_EQ(count_differences(want.k8, got_.k8), 0) << "k8";
        EXPECT_EQ(count_differences(want.v8, got_.v8), 0) << "v8";
    }

    Packed want;

private:
    template <class T>
    [[nodiscard]] static std::int64_t count_differences(const std::vector<T>& a,
                                                        const std::vector<T>& b) {
        std::int64_t n = 0;
        for (std::size_t i = 0; i < a.size(); i++) {
            if constexpr (std::is_same_v<T, float>) {
                // What was not written keeps its bytes; a NaN that was written has others.
                const auto x = std::bit_cast<std::uint32_t>(a[i]);
                const auto y = std::bit_cast<std::uint32_t>(b[i]);
                const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]) &&
                                      (x == 0xFFFFFFFFu) == (y == 0xFFFFFFFFu);
                n += x != y && !both_nan;
            } else {
                n += a[i] != b[i];
            }
        }
        return n;
    }
    template <class T>
    [[nodiscard]] static T& at(std::vector<T>& v, std::int64_t i) {
        return v.at(static_cast<std::size_t>(i));
    }
    template <class T>
    [[nodiscard]] static const T& at(const std::vector<T>& v, std::int64_t i) {
        return v.at(static_cast<std::size_t>(i));
    }

    void query_head(const quatt_recipe& r, const RunOptions& o, std::size_t s, std::int64_t h) {
        const Canonical q(r.q, p_.view(0, s, h));
        const std::int64_t dim = want.dim, d = p_.shape.channels;
        const std::int64_t kv = h / (p_.shape.q_heads / p_.shape.kv_heads);
        const std::int64_t tiles = (p_.segments[s].q_len + 63) / 64;
        const std::int64_t first_tile =
            h * want.q_tiles + p_.segments[s].q_row / 64 + static_cast<std::int64_t>(s);
        std::fill_n(want.q8.begin() + first_tile * 64 * dim, tiles * 64 * dim, std::uint8_t{0});
        for (std::int64_t j = 0; j < p_.segments[s].q_len; j++) {
            const std::int64_t row = h * want.q_rows + p_.segments[s].q_row + j;
            for (std::int64_t c = 0; c < dim; c++)
                at(want.q8, (first_tile + j / 64) * 64 * dim + k_place(dim, j % 64, c)) =
                    c < d                    ? q.code(j, c)
                    : std::isnan(q.scale(j)) ? 0x7F
                                             : 0;
            at(want.q_factor, row) =
                recipe::row_factor(r.q, q.head, j) * (o.softmax_scale * 1.4426950408889634f);
            if (!o.lse_shift) {
                EXPECT_EQ(std::bit_cast<std::uint32_t>(at(got_.lse_shift, row)), 0xFFFFFFFFu);
                continue;
            }
            double dot = 0, size = 0;
            for (std::int64_t c = 0; c < d; c++) {
                const auto mean = static_cast<double>(
                    at(got_.k_mean,
                       (static_cast<std::int64_t>(s) * p_.shape.kv_heads + kv) * dim + c));
                const double x = static_cast<double>(p_.value(0, s, j, h, c)) * mean;
                dot += x;
                size += std::fabs(x);
            }
            const double shift = static_cast<double>(at(got_.lse_shift, row));
            const double scale = static_cast<double>(o.softmax_scale);
            constexpr double kMost = std::numeric_limits<float>::max();
            if (std::isfinite(size) && size > kMost) continue;  // fp32 has no such sums
            if (std::isfinite(size)) {
                // 12 roundings of partial sums at most, and the products with the scale.
                EXPECT_LE(std::fabs(shift - scale * dot), 13 * 0x1p-24 * scale * size + 1e-37);
            } else {
                EXPECT_FALSE(std::isfinite(shift));
            }
        }
    }

    void key_head(const quatt_recipe& r, std::size_t s, std::int64_t h) {
        const std::int64_t dim = want.dim, d = p_.shape.channels, n = p_.segments[s].k_len;
        const std::int64_t row = (static_cast<std::int64_t>(s) * p_.shape.kv_heads + h) * dim;
        const Canonical k(r.k, p_.view(1, s, h)), v(r.v, p_.view(2, s, h));
        for (std::int64_t c = 0; c < dim; c++) {
            const auto u = static_cast<std::size_t>(c);
            const bool is_real = c < d && n > 0;
            at(want.k_mean, row + c) = is_real ? k.mean[u] : 0;
            at(want.v_mean, row + c) = is_real ? v.mean[u] : 0;
            at(want.v_scale, row + c) = is_real ? v.scale(c) : 0x1p-126f;
        }
        for (std::int64_t t = 0; t < (n + 63) / 64; t++) {
            const std::int64_t tile = h * want.k_tiles + p_.segments[s].k_tile + t;
            at(want.k_scale, 4 * tile) = k.scale(t);
            const std::uint64_t far = v.far[static_cast<std::size_t>(t)];
            at(want.k_scale, 4 * tile + 1) = std::bit_cast<float>(static_cast<std::uint32_t>(far));
            at(want.k_scale, 4 * tile + 2) =
                std::bit_cast<float>(static_cast<std::uint32_t>(far >> 32));
            at(want.k_scale, 4 * tile + 3) = 0;
            for (std::int64_t key = 0; key < 64; key++)
                for (std::int64_t c = 0; c < dim; c++) {
                    const std::int64_t j = 64 * t + key;
                    const std::uint8_t padding = std::isnan(k.scale(t)) && j < n ? 0x7F : 0;
                    const bool is_real = j < n && c < d;
                    at(want.k8, tile * 64 * dim + k_place(dim, key, c)) =
                        is_real ? k.code(j, c) : padding;
                    at(want.v8, tile * 64 * dim + v_place(key, c)) = is_real ? v.code(j, c) : 0;
                }
        }
    }

    const Problem& p_;
    const Packed& got_;
};

}  // namespace quatt::test

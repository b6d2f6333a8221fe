// What the tests of the public interface share: tensors in which every byte beside the elements is
// watched, problems made from a short description, and plain attention in fp64 that knows nothing
// of the library's code.
#pragma once
#include <gtest/gtest.h>
#include <quatt/attention.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <new>
#include <numeric>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace quatt::test {

using Extents = std::vector<std::int64_t>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// NOTE: sanitizers change what memory, time and allocation look like; a few tests ask.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// `cases` random cases, times QUATT_TEST_SCALE; at least one.
[[nodiscard]] inline int scaled(int cases) {
    const char* s = std::getenv("QUATT_TEST_SCALE");
    const double factor = s == nullptr ? 1.0 : std::atof(s);
    return std::max(1, static_cast<int>(cases * factor));
}

// Is number n of a fixed list of cases run? All are at a scale of 1, one in ten at .1, but never
// fewer than one in `most`.
[[nodiscard]] inline bool thinned(int n, int most = 1000) {
    return n % std::clamp(100 / scaled(100), 1, most) == 0;
}

[[nodiscard]] inline bool long_mode() {
    const char* s = std::getenv("QUATT_TEST_LONG");
    return s != nullptr && std::strcmp(s, "1") == 0;
}

// The same numbers everywhere, which the distributions of the C++ library do not promise.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {  // splitmix64
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    double uniform(double lo, double hi) { return lo + (hi - lo) * uniform(); }
    std::int64_t in(std::int64_t lo, std::int64_t hi) {  // both included
        return lo + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(hi - lo + 1));
    }
    bool chance(double p) { return uniform() < p; }
    double normal() {  // Box-Muller
        const double r = std::sqrt(-2 * std::log(1 - uniform()));
        return r * std::cos(6.283185307179586 * uniform());
    }
    template <class T>
    T pick(std::initializer_list<T> from) {
        return from.begin()[in(0, static_cast<std::int64_t>(from.size()) - 1)];
    }

private:
    std::uint64_t state_;
};

// ---------------------------------------------------------------------------------------------
// Elements: decoders written from the formats' definitions.

[[nodiscard]] inline double decode(quatt_dtype dtype, std::uint32_t code) {
    if (dtype == QUATT_F32) {
        return static_cast<double>(std::bit_cast<float>(code));
    }
    const int exponent_bits = dtype == QUATT_BF16 ? 8 : dtype == QUATT_F16 ? 5 : 4;
    const int fraction_bits = dtype == QUATT_BF16 ? 7 : dtype == QUATT_F16 ? 10 : 3;
    const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    const int exponent = static_cast<int>(code >> fraction_bits) & top;
    const int fraction = static_cast<int>(code) & ((1 << fraction_bits) - 1);
    const double sign = code >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
    if (exponent == top && dtype != QUATT_E4M3) {
        return fraction == 0 ? sign * kInf : std::nan("");
    }
    if (exponent == top && fraction == 7) {  // E4M3 has no infinity
        return std::nan("");
    }
    const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
}

// Half a unit in the last place of an output near x: what rounding the result may add to any error.
[[nodiscard]] inline double rounding(quatt_dtype dtype, double x) {
    switch (dtype) {
        case QUATT_BF16:
            return std::fabs(x) * 0x1p-8;
        case QUATT_F16:
            return std::fabs(x) * 0x1p-11 + 0x1p-25;
        default:
            return std::fabs(x) * 0x1p-24 + 0x1p-149;
    }
}

[[nodiscard]] inline std::int64_t used_stride(const quatt_tensor& t, int axis) {
    return t.extent[axis] > 1 ? t.stride[axis] : 0;
}

[[nodiscard]] inline std::int64_t offset(const quatt_tensor& t, const Extents& index) {
    std::int64_t at = 0;
    for (int i = 0; i < t.rank; i++) {
        at += index[static_cast<std::size_t>(i)] * used_stride(t, i);
    }
    return at;
}

[[nodiscard]] inline std::uint32_t code_at(const quatt_tensor& t, std::int64_t at) {
    const std::size_t size = quatt_dtype_bytes(t.dtype);
    std::uint32_t code = 0;  // NOTE: little-endian, as every machine this is built for
    std::memcpy(&code, static_cast<const std::byte*>(t.data) + at * static_cast<std::int64_t>(size),
                size);
    return code;
}

[[nodiscard]] inline double value_at(const quatt_tensor& t, const Extents& index) {
    return decode(t.dtype, code_at(t, offset(t, index)));
}

// Calls f(index) for every index of a box, row-major.
template <class F>
void for_each_index(const Extents& extents, F&& f) {
    if (std::find(extents.begin(), extents.end(), 0) != extents.end()) {
        return;
    }
    // NOTE: behind the return. GCC 12 takes freeing it there for the freeing of something else.
    Extents index(extents.size(), 0);
    for (;;) {
        f(std::as_const(index));
        std::size_t axis = extents.size();
        while (axis > 0 && ++index[axis - 1] == extents[axis - 1]) {
            index[--axis] = 0;
        }
        if (axis == 0) {
            return;
        }
    }
}

[[nodiscard]] inline Extents extents_of(const quatt_tensor& t) {
    return {t.extent, t.extent + t.rank};
}

// Bit patterns of all elements, row-major: what "same bits" compares.
[[nodiscard]] inline std::vector<std::uint32_t> codes_of(const quatt_tensor& t) {
    std::vector<std::uint32_t> codes;
    for_each_index(extents_of(t),
                   [&](const Extents& i) { codes.push_back(code_at(t, offset(t, i))); });
    return codes;
}

[[nodiscard]] inline Extents contiguous_strides(const Extents& extents) {
    Extents strides(extents.size(), 1);
    for (std::size_t i = extents.size(); i-- > 1;) {
        strides[i - 1] = strides[i] * std::max<std::int64_t>(extents[i], 1);
    }
    return strides;
}

// Part of a tensor: [from, from + count) of one axis.
[[nodiscard]] inline quatt_tensor narrowed(quatt_tensor t, int axis, std::int64_t from,
                                           std::int64_t count) {
    if (t.dtype != QUATT_NONE) {
        t.data =
            static_cast<std::byte*>(t.data) +
            from * used_stride(t, axis) * static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
        t.extent[axis] = count;
    }
    return t;
}

// The same tensor with one axis of extent 1 removed.
[[nodiscard]] inline quatt_tensor without_axis(quatt_tensor t, int axis) {
    for (int i = axis; i + 1 < t.rank; i++) {
        t.extent[i] = t.extent[i + 1];
        t.stride[i] = t.stride[i + 1];
    }
    t.rank -= t.dtype != QUATT_NONE ? 1 : 0;
    return t;
}

// ---------------------------------------------------------------------------------------------
// Memory of a tensor.

template <class T>
struct CacheLineAllocator {
    using value_type = T;
    CacheLineAllocator() = default;
    template <class U>
    CacheLineAllocator(const CacheLineAllocator<U>&) {}
    T* allocate(std::size_t n) {
        return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
    }
    void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
    bool operator==(const CacheLineAllocator&) const = default;
};
using Bytes = std::vector<std::byte, CacheLineAllocator<std::byte>>;

// 0xFF is NaN in every float format, and no int32 that a length may be: what leaks in shows, and
// what is written beside the elements shows too.
inline constexpr std::byte kCanary{0xFF};
inline constexpr std::size_t kGuardBytes = 256;

// A strided tensor inside a bigger block. Copies have memory of their own.
class Buffer {
public:
    Buffer() = default;  // absent

    // Strides are in elements, contiguous where none are given; `misalign_bytes` moves the base off
    // its 64-byte boundary.
    Buffer(quatt_dtype dtype, Extents extents, Extents strides = {}, std::size_t misalign_bytes = 0)
        : tensor_{} {
        if (strides.empty()) {
            strides = contiguous_strides(extents);
        }
        tensor_.dtype = dtype;
        tensor_.rank = static_cast<std::int32_t>(extents.size());
        const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(dtype));
        std::int64_t lo = 0, hi = 0;
        for (std::size_t i = 0; i < extents.size(); i++) {
            tensor_.extent[i] = extents[i];
            tensor_.stride[i] = strides[i];
            const std::int64_t reach = extents[i] > 1 ? (extents[i] - 1) * strides[i] : 0;
            (reach < 0 ? lo : hi) += reach;
        }
        const auto before = static_cast<std::size_t>(-lo * size) + kGuardBytes;
        base_ = (before + 63) / 64 * 64 + misalign_bytes;
        bytes_.assign(base_ + static_cast<std::size_t>((hi + 1) * size) + kGuardBytes, kCanary);
    }

    [[nodiscard]] bool present() const { return tensor_.dtype != QUATT_NONE; }
    [[nodiscard]] quatt_tensor view() {
        quatt_tensor t = tensor_;
        if (present()) {
            t.data = bytes_.data() + base_;
        }
        return t;
    }
    [[nodiscard]] quatt_tensor view() const { return const_cast<Buffer*>(this)->view(); }
    operator quatt_tensor() { return view(); }

    [[nodiscard]] Bytes& bytes() { return bytes_; }
    [[nodiscard]] const Bytes& bytes() const { return bytes_; }
    [[nodiscard]] std::vector<std::uint32_t> codes() const { return codes_of(view()); }

    // Elements row-major; converted to the dtype.
    void set(const std::vector<float>& values) {
        const quatt_tensor t = view();
        const std::size_t size = quatt_dtype_bytes(t.dtype);
        std::vector<std::byte> codes(values.size() * size);
        ASSERT_EQ(quatt_convert(codes.data(), t.dtype, values.data(), QUATT_F32,
                                static_cast<std::int64_t>(values.size())),
                  QUATT_OK)
            << quatt_last_error();
        const std::byte* from = codes.data();
        for_each_index(extents_of(t), [&](const Extents& i) {
            std::memcpy(element(t, i), from, size);
            from += size;
        });
    }
    void set_integers(const std::vector<std::int32_t>& values) {
        const quatt_tensor t = view();
        std::size_t n = 0;
        for_each_index(extents_of(t), [&](const Extents& i) {
            std::memcpy(element(t, i), &values[n++], sizeof(std::int32_t));
        });
    }
    void set_one(const Extents& index, float value) {
        const quatt_tensor t = view();
        (void)quatt_convert(element(t, index), t.dtype, &value, QUATT_F32, 1);
    }
    void set_code(const Extents& index, std::uint32_t code) {
        const quatt_tensor t = view();
        std::memcpy(element(t, index), &code, quatt_dtype_bytes(t.dtype));
    }
    void set_normal(Random& random, double mean = 0, double deviation = 1) {
        std::vector<float> values(static_cast<std::size_t>(size()));
        for (float& x : values) {
            x = static_cast<float>(mean + deviation * random.normal());
        }
        set(values);
    }
    [[nodiscard]] std::int64_t size() const {
        std::int64_t n = 1;
        for (int i = 0; i < tensor_.rank; i++) {
            n *= tensor_.extent[i];
        }
        return n;
    }

    // Writes `value` everywhere but into the elements.
    void surround(float value) {
        const std::vector<bool> mine = element_bytes();
        const quatt_tensor t = view();
        std::uint32_t code = 0;
        (void)quatt_convert(&code, t.dtype, &value, QUATT_F32, 1);
        const std::size_t size = quatt_dtype_bytes(t.dtype);
        for (std::size_t i = base_ % size; i + size <= bytes_.size(); i += size) {
            if (!mine[i]) {
                std::memcpy(bytes_.data() + i, &code, size);
            }
        }
    }

    // Nothing but elements was written.
    [[nodiscard]] bool surroundings_intact() const {
        const std::vector<bool> mine = element_bytes();
        for (std::size_t i = 0; i < bytes_.size(); i++) {
            if (!mine[i] && bytes_[i] != kCanary) {
                return false;
            }
        }
        return true;
    }

    void reset() { std::fill(bytes_.begin(), bytes_.end(), kCanary); }

private:
    [[nodiscard]] static std::byte* element(const quatt_tensor& t, const Extents& index) {
        return static_cast<std::byte*>(t.data) +
               offset(t, index) * static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    }
    [[nodiscard]] std::vector<bool> element_bytes() const {
        std::vector<bool> mine(bytes_.size(), false);
        const quatt_tensor t = view();
        const std::size_t size = quatt_dtype_bytes(t.dtype);
        for_each_index(extents_of(t), [&](const Extents& i) {
            const auto at = static_cast<std::size_t>(
                static_cast<std::int64_t>(base_) + offset(t, i) * static_cast<std::int64_t>(size));
            for (std::size_t b = 0; b < size; b++) {
                mine[at + b] = true;
            }
        });
        return mine;
    }

    quatt_tensor tensor_{};
    std::size_t base_ = 0;
    Bytes bytes_;
};

// ---------------------------------------------------------------------------------------------
// Plain attention in fp64, from the text of quatt.h. Rows count as (token of the stream, or of the
// batch laid end to end, query head).

struct Expected {
    std::int64_t tokens = 0, heads = 0, channels = 0;
    std::vector<double> out;        // [tokens, heads, channels]
    std::vector<double> noise;      // likewise: what the error of an element is in proportion to
    std::vector<double> lse;        // [tokens, heads]
    std::vector<double> lse_noise;  // [tokens, heads]
    std::vector<double> light;      // [tokens, heads]
    std::vector<bool> written;      // [tokens, heads]
};

namespace detail {
[[nodiscard]] inline quatt_tensor head_of(const quatt_tensor& t, bool packed, std::int64_t item,
                                          std::int64_t first, std::int64_t count,
                                          std::int64_t head) {
    quatt_tensor x = packed ? t : without_axis(narrowed(t, 0, item, 1), 0);
    x = narrowed(x, 0, packed ? first : 0, count);
    return without_axis(narrowed(x, 1, head, 1), 1);
}

[[nodiscard]] inline std::vector<double> matrix(const quatt_tensor& t, double factor) {
    std::vector<double> m;
    m.reserve(static_cast<std::size_t>(t.extent[0] * t.extent[1]));
    for (std::int64_t i = 0; i < t.extent[0]; i++) {
        for (std::int64_t d = 0; d < t.extent[1]; d++) {
            m.push_back(factor *
                        decode(t.dtype, code_at(t, i * used_stride(t, 0) + d * used_stride(t, 1))));
        }
    }
    return m;
}

[[nodiscard]] inline std::int64_t integer_at(const quatt_tensor& t, std::int64_t i) {
    return static_cast<std::int32_t>(code_at(t, offset(t, {i})));
}

[[nodiscard]] inline double descale_at(const quatt_tensor& t, std::int64_t item,
                                       std::int64_t kv_head) {
    if (t.dtype == QUATT_NONE) {
        return 1;
    }
    return t.rank == 0   ? value_at(t, {})
           : t.rank == 1 ? value_at(t, {t.extent[0] == 1 ? 0 : kv_head})
                         : value_at(t, {item, kv_head});
}

[[nodiscard]] inline bool sees(const quatt_problem& p, std::int64_t i, std::int64_t j,
                               std::int64_t q_len, std::int64_t k_len) {
    const std::int64_t at = i + k_len - q_len;  // bottom-right aligned
    return !(p.causal != 0 && j > at) && !(p.window_left >= 0 && at - j > p.window_left) &&
           !(p.window_right >= 0 && j - at > p.window_right);
}
}  // namespace detail

// `only`: rows of each item (or of the stream) to compute, ascending, for long problems; none: all
// that the problem asks for.
[[nodiscard]] inline Expected expect(const quatt_problem& p, const Extents& only = {}) {
    const quatt_tensors& t = p.tensors;
    const bool packed = t.q.rank == 3;
    const int axis = t.q.rank - 3;
    const std::int64_t capacity = t.q.extent[axis], heads = t.q.extent[axis + 1];
    const std::int64_t dim = t.q.extent[axis + 2], kv_heads = t.k.extent[axis + 1];
    const std::int64_t dim_v = t.v.extent[axis + 2];
    const bool cut = packed && t.cu_seqlens_q.dtype != QUATT_NONE;
    const quatt_tensor& cu_k = t.cu_seqlens_k.dtype != QUATT_NONE ? t.cu_seqlens_k : t.cu_seqlens_q;
    const std::int64_t items = !packed ? t.q.extent[0] : cut ? t.cu_seqlens_q.extent[0] - 1 : 1;

    Expected e;
    e.tokens = packed ? capacity : items * capacity;
    e.heads = heads;
    e.channels = dim_v;
    const auto rows = static_cast<std::size_t>(e.tokens * heads);
    e.out.assign(rows * static_cast<std::size_t>(dim_v), 0.0);
    e.noise.assign(e.out.size(), 0.0);
    e.lse.assign(rows, -kInf);
    e.lse_noise.assign(rows, 0.0);
    e.light.assign(rows, 0.0);
    e.written.assign(rows, false);

    for (std::int64_t b = 0; b < items; b++) {
        const std::int64_t q_begin = cut ? detail::integer_at(t.cu_seqlens_q, b) : 0;
        const std::int64_t k_begin = cut ? detail::integer_at(cu_k, b) : 0;
        const std::int64_t q_len =
            cut ? detail::integer_at(t.cu_seqlens_q, b + 1) - q_begin : capacity;
        std::int64_t k_len = cut ? detail::integer_at(cu_k, b + 1) - k_begin : t.k.extent[axis];
        if (t.kv_lens.dtype != QUATT_NONE) {
            k_len = detail::integer_at(t.kv_lens, b);
        }
        for (std::int64_t h = 0; h < heads; h++) {
            const std::int64_t kv = h / (heads / kv_heads);
            const auto q = detail::matrix(detail::head_of(t.q, packed, b, q_begin, q_len, h),
                                          detail::descale_at(t.q_descale, b, kv));
            const auto k = detail::matrix(detail::head_of(t.k, packed, b, k_begin, k_len, kv),
                                          detail::descale_at(t.k_descale, b, kv));
            const auto v = detail::matrix(detail::head_of(t.v, packed, b, k_begin, k_len, kv),
                                          detail::descale_at(t.v_descale, b, kv));
            const double sink = t.sink.dtype != QUATT_NONE ? value_at(t.sink, {h}) : -kInf;
            std::vector<double> s(static_cast<std::size_t>(k_len)), a(s.size());
            for (std::int64_t i = 0; i < q_len; i++) {
                const std::int64_t number = packed ? q_begin + i : i;  // as `rows` counts
                if ((p.row_count > 0 &&
                     !std::binary_search(p.rows, p.rows + p.row_count, number)) ||
                    (!only.empty() && !std::binary_search(only.begin(), only.end(), number))) {
                    continue;
                }
                const std::int64_t token = packed ? q_begin + i : b * capacity + i;
                const auto row = static_cast<std::size_t>(token * heads + h);
                e.written[row] = true;
                double top = sink;
                bool any = false;
                for (std::int64_t j = 0; j < k_len; j++) {
                    const auto u = static_cast<std::size_t>(j);
                    s[u] = -kInf;
                    if (!detail::sees(p, i, j, q_len, k_len)) {
                        continue;
                    }
                    double dot = 0, squares = 0;
                    for (std::int64_t d = 0; d < dim; d++) {
                        const double x = q[static_cast<std::size_t>(i * dim + d)] *
                                         k[static_cast<std::size_t>(j * dim + d)];
                        dot += x;
                        squares += x * x;
                    }
                    const auto scale = static_cast<double>(p.softmax_scale);
                    s[u] = scale * dot;
                    a[u] = scale * scale * squares;
                    top = std::max(top, s[u]);
                    any = true;
                }
                if (!any) {
                    e.lse[row] = sink;
                    continue;
                }
                double sum = std::exp(sink - top);
                for (const double x : s) {
                    sum += std::exp(x - top);
                }
                e.lse[row] = top + std::log(sum);
                double* out = &e.out[row * static_cast<std::size_t>(dim_v)];
                double* noise = &e.noise[row * static_cast<std::size_t>(dim_v)];
                double tile_top = -kInf, score_noise = 0;
                for (std::size_t j = 0; j < s.size(); j++) {
                    if (j % 64 ==
                        0) {  // keys 2^-11 below the largest of their aligned 64 are light
                        tile_top = *std::max_element(
                            s.begin() + static_cast<std::ptrdiff_t>(j),
                            s.begin() + static_cast<std::ptrdiff_t>(std::min(s.size(), j + 64)));
                    }
                    if (s[j] == -kInf) {
                        continue;
                    }
                    const double weight = std::exp(s[j] - top) / sum;
                    e.light[row] += s[j] <= tile_top - 11 * std::log(2.0) ? weight : 0;
                    score_noise += weight * weight * a[j];
                    for (std::int64_t d = 0; d < dim_v; d++) {
                        out[d] +=
                            weight *
                            v[j * static_cast<std::size_t>(dim_v) + static_cast<std::size_t>(d)];
                    }
                }
                e.lse_noise[row] = std::sqrt(score_noise);
                // To first order an error of P or V moves the result by weight * v, one of the
                // score by weight * (v - out).
                for (std::size_t j = 0; j < s.size(); j++) {
                    if (s[j] == -kInf) {
                        continue;
                    }
                    const double weight = std::exp(s[j] - top) / sum;
                    for (std::int64_t d = 0; d < dim_v; d++) {
                        const double x =
                            v[j * static_cast<std::size_t>(dim_v) + static_cast<std::size_t>(d)];
                        noise[d] += weight * weight * (x * x + (x - out[d]) * (x - out[d]) * a[j]);
                    }
                }
                for (std::int64_t d = 0; d < dim_v; d++) {
                    noise[d] = std::sqrt(noise[d]);
                }
            }
        }
    }
    if (cut && p.zero_tail != 0) {
        const std::int64_t used = detail::integer_at(t.cu_seqlens_q, items);
        for (std::int64_t row = used * heads; row < capacity * heads; row++) {
            e.written[static_cast<std::size_t>(row)] = true;
        }
    }
    return e;
}

// How far a result may be from fp64.
struct Tolerance {
    double ratio = 0;      // RMS error over RMS noise
    double lse = 0;        // constant part
    double lse_noise = 0;  // factor on the noise of the row's scores
};

// `out`, and `lse` and `light_mass` where present, against fp64; rows that nobody asked for must
// still hold canaries (unless `e` has chosen rows of its own).
[[nodiscard]] inline testing::AssertionResult close_to(const quatt_problem& p, const Expected& e,
                                                       const Tolerance& allowed,
                                                       bool others_untouched = true) {
    const quatt_tensors& t = p.tensors;
    const bool packed = t.q.rank == 3;
    const std::int64_t capacity = t.q.extent[t.q.rank - 3];
    double error = 0, noise = 0;
    for (std::int64_t token = 0; token < e.tokens; token++) {
        for (std::int64_t h = 0; h < e.heads; h++) {
            const auto row = static_cast<std::size_t>(token * e.heads + h);
            const std::int64_t item = packed ? 0 : token / capacity,
                               i = packed ? token : token % capacity;
            for (std::int64_t d = 0; d < e.channels; d++) {
                const Extents at = packed ? Extents{i, h, d} : Extents{item, i, h, d};
                const std::uint32_t code = code_at(t.out, offset(t.out, at));
                if (!e.written[row] && !others_untouched) {
                    continue;
                }
                if (!e.written[row]) {
                    const std::uint32_t canary =
                        quatt_dtype_bytes(t.out.dtype) == 4 ? 0xFFFFFFFFu : 0xFFFFu;
                    if (code != canary) {
                        return testing::AssertionFailure()
                               << "out of row " << token << ", head " << h
                               << " was written, which nobody asked for";
                    }
                    continue;
                }
                const std::size_t x =
                    row * static_cast<std::size_t>(e.channels) + static_cast<std::size_t>(d);
                const double got = decode(t.out.dtype, code), want = e.out[x];
                if (!std::isfinite(got)) {
                    return testing::AssertionFailure()
                           << "out of row " << token << ", head " << h << ", channel " << d
                           << " is " << got << " instead of " << want;
                }
                const double wrong =
                    std::max(0.0, std::fabs(got - want) - rounding(t.out.dtype, want));
                error += wrong * wrong;
                noise += e.noise[x] * e.noise[x];
            }
            const Extents at = packed ? Extents{h, i} : Extents{item, h, i};
            if (t.lse.dtype != QUATT_NONE && (e.written[row] || others_untouched)) {
                const double got = value_at(t.lse, at), want = e.lse[row];
                const double bound =
                    allowed.lse + allowed.lse_noise * e.lse_noise[row] + rounding(QUATT_F32, want);
                const bool untouched = code_at(t.lse, offset(t.lse, at)) == 0xFFFFFFFFu;
                if (e.written[row] ? !(got == want || std::fabs(got - want) <= bound)
                                   : !untouched) {
                    return testing::AssertionFailure()
                           << "lse of row " << token << ", head " << h << " is " << got
                           << " instead of " << want << " +- " << bound
                           << (e.written[row] ? "" : " (nobody asked for it)");
                }
            }
            if (t.light_mass.dtype != QUATT_NONE && e.written[row] &&
                !(std::fabs(value_at(t.light_mass, at) - e.light[row]) <= 1e-6)) {
                return testing::AssertionFailure()
                       << "light_mass of row " << token << ", head " << h << " is "
                       << value_at(t.light_mass, at) << " instead of " << e.light[row];
            }
        }
    }
    const double bound = allowed.ratio * std::sqrt(noise) + 1e-30;
    if (std::sqrt(error) > bound) {
        return testing::AssertionFailure()
               << "rms error of out is " << std::sqrt(error / noise)
               << " of the expected noise; allowed is " << allowed.ratio;
    }
    return testing::AssertionSuccess();
}

// ---------------------------------------------------------------------------------------------
// Ways to compute a problem.

// Nothing is rounded but sums: shows what a mask or a scale does, to 1e-5.
[[nodiscard]] inline Recipe exact_recipe() {
    Recipe r("bf16");
    std::strncpy(r.name, "exact", sizeof r.name - 1);
    r.q.format = r.k.format = r.v.format = QUATT_FORMAT_F32;
    r.p_format = QUATT_FORMAT_F32;
    r.overflow_format = QUATT_FORMAT_E4M3;
    r.exponent_bias = 6;
    r.refreshes = 1;
    r.expected_rel_l2 = 1e-6f;
    r.expected_lse_error = 1e-6f;
    return r;
}

struct Way {
    const char* device;
    const char* recipe;
    const char* kernel = nullptr;  // null: the device's choice

    [[nodiscard]] Recipe value() const {
        return std::strcmp(recipe, "exact") == 0 ? exact_recipe() : Recipe(recipe);
    }
    [[nodiscard]] bool is(const char* name) const { return std::strcmp(device, name) == 0; }
    friend std::ostream& operator<<(std::ostream& out, const Way& w) {
        return out << w.device << '_' << w.recipe;
    }
};

inline std::string name_of(const testing::TestParamInfo<Way>& info) {
    return std::string(info.param.device) + "_" + info.param.recipe;
}

[[nodiscard]] inline std::vector<Way> all_ways() {
    std::vector<Way> ways = {{"reference", "bf16"}, {"emulate", "exact"}};
    for (std::int32_t i = 0; i < quatt_recipe_count(); i++) {
        ways.push_back({"cpu", quatt_recipe_name(i)});
        ways.push_back({"emulate", quatt_recipe_name(i)});
    }
    return ways;
}

// expected_rel_l2 is the error on N(0,1) data over the norm of the result. The noise there is
// sqrt(2) times that norm, so that the ratio is .7 expected_rel_l2 on long rows of wide heads. Few
// keys or channels make single rounding errors visible, and a format's largest error is sqrt(3)
// times its rms error or a little more; bf16 and f16 also round inputs of other dtypes, which the
// published number does not hold: another sqrt(2).
[[nodiscard]] inline Tolerance tolerance_of(const Way& way) {
    if (way.is("reference")) {
        return {1e-6, 1e-6, 1e-7};
    }
    const Recipe r = way.value();
    const auto l2 = static_cast<double>(r.expected_rel_l2);
    if (std::strcmp(way.recipe, "exact") == 0) {
        return {1e-5, 1e-5, 1e-5};
    }
    return {2 * l2, static_cast<double>(r.expected_lse_error), 5 * l2};
}

// ---------------------------------------------------------------------------------------------
// A problem with its memory, from a short description.

// A device's own kernel: `cpu` has one for each instruction-set level, cpu_*, before the portable
// one.
[[nodiscard]] inline bool is_kernel_of(const char* kernel, const char* device) {
    const std::size_t n = std::strlen(device);
    return std::strncmp(kernel, device, n) == 0 &&
           (kernel[n] == 0 || (std::strcmp(device, "cpu") == 0 && kernel[n] == '_'));
}

using Strider = std::function<Extents(const Extents&)>;

struct Spec {
    bool packed = false;
    std::int64_t batch = 1;  // dense
    std::int64_t tokens_q = 0,
                 tokens_k = 0;  // dense Sq and Sk; packed: capacity, 0 = the sum of the lengths
    std::vector<std::int32_t> q_lens,
        k_lens;  // packed segments; none: one segment without cu_seqlens. k: empty = as q
    std::vector<std::int32_t> kv_lens;                            // empty = not given
    std::int64_t heads_q = 2, heads_kv = 1, dim = 32, dim_v = 0;  // dim_v 0 = dim
    quatt_dtype q = QUATT_BF16, k = QUATT_BF16, v = QUATT_BF16, out = QUATT_F32;
    bool causal = false;
    std::int64_t left = -1, right = -1;
    double scale = 1;  // times 1/sqrt(dim)
    bool lse = true;
    std::vector<float> sink;  // empty = not given, else a logit a head
    int descale_rank = -1;    // of all operands that are e4m3: -1 = not given, 0, 1 or 2
    bool zero_tail = false;
    double q_mean = 0, k_mean = 0, v_mean = 0;
    std::uint64_t seed = 1;
    Strider input_strides, output_strides;  // null = contiguous
    std::size_t misalign_bytes = 0;         // of q, k, v and out

    friend std::ostream& operator<<(std::ostream& o, const Spec& s) {
        const auto list = [&](const char* name, const std::vector<std::int32_t>& values) {
            if (!values.empty()) {
                o << ' ' << name << " [";
                for (const std::int32_t x : values) {
                    o << ' ' << x;
                }
                o << " ]";
            }
        };
        o << (s.packed ? "packed" : "dense") << " B=" << s.batch << " Sq=" << s.tokens_q
          << " Sk=" << s.tokens_k;
        list("q_lens", s.q_lens);
        list("k_lens", s.k_lens);
        list("kv_lens", s.kv_lens);
        o << " H=" << s.heads_q << '/' << s.heads_kv << " D=" << s.dim << '/' << s.dim_v << ' '
          << quatt_dtype_name(s.q) << ' ' << quatt_dtype_name(s.k) << ' ' << quatt_dtype_name(s.v)
          << " -> " << quatt_dtype_name(s.out) << (s.causal ? " causal" : "") << " window "
          << s.left << ',' << s.right << " scale " << s.scale << (s.sink.empty() ? "" : " sink")
          << " descale " << s.descale_rank << (s.zero_tail ? " zero_tail" : "") << " means "
          << s.q_mean << ' ' << s.k_mean << ' ' << s.v_mean;
        return o << " seed " << s.seed;
    }
};

class Case {
public:
    explicit Case(Spec given) : spec(std::move(given)) {
        Spec& s = spec;
        s.dim_v = s.dim_v == 0 ? s.dim : s.dim_v;
        const bool cut = s.packed && !s.q_lens.empty();
        const std::vector<std::int32_t>& keys = s.k_lens.empty() ? s.q_lens : s.k_lens;
        if (cut) {
            s.batch = static_cast<std::int64_t>(s.q_lens.size());
            s.tokens_q = std::max<std::int64_t>(
                s.tokens_q, std::accumulate(s.q_lens.begin(), s.q_lens.end(), 0));
            s.tokens_k =
                std::max<std::int64_t>(s.tokens_k, std::accumulate(keys.begin(), keys.end(), 0));
        }
        const auto shape = [&](std::int64_t tokens, std::int64_t heads, std::int64_t channels) {
            return s.packed ? Extents{tokens, heads, channels}
                            : Extents{s.batch, tokens, heads, channels};
        };
        const auto input = [&](quatt_dtype dtype, const Extents& e) {
            return Buffer(dtype, e, s.input_strides ? s.input_strides(e) : Extents{},
                          s.misalign_bytes);
        };
        Random random(s.seed);
        q = input(s.q, shape(s.tokens_q, s.heads_q, s.dim));
        k = input(s.k, shape(s.tokens_k, s.heads_kv, s.dim));
        v = input(s.v, shape(s.tokens_k, s.heads_kv, s.dim_v));
        q.set_normal(random, s.q_mean, 1);
        k.set_normal(random, s.k_mean, 1);
        v.set_normal(random, s.v_mean, 1);
        const Extents o = shape(s.tokens_q, s.heads_q, s.dim_v);
        out =
            Buffer(s.out, o, s.output_strides ? s.output_strides(o) : Extents{}, s.misalign_bytes);
        if (s.lse) {
            lse = row_buffer();
        }
        if (cut) {
            cu_q = running_sums(s.q_lens);
            if (!s.k_lens.empty()) {
                cu_k = running_sums(s.k_lens);
            }
        }
        if (!s.kv_lens.empty()) {
            kv_lens = Buffer(QUATT_I32, {s.batch}, {2});
            kv_lens.set_integers(s.kv_lens);
        }
        if (!s.sink.empty()) {
            sink = Buffer(QUATT_F32, {s.heads_q}, {3});
            sink.set(s.sink);
        }
        // All different, and above 1: a wrong one shows.
        float next = 1.0625f;
        for (const auto& [tensor, to] :
             {std::pair{&q, &q_descale}, {&k, &k_descale}, {&v, &v_descale}}) {
            if (s.descale_rank < 0 || tensor->view().dtype != QUATT_E4M3) {
                continue;
            }
            *to = s.descale_rank == 0 ? Buffer(QUATT_F32, Extents{})
                  : s.descale_rank == 1
                      ? Buffer(QUATT_F32, {s.heads_kv}, {5})
                      : Buffer(QUATT_F32, {s.batch, s.heads_kv}, {1, s.batch + 1});
            std::vector<float> values(static_cast<std::size_t>(to->size()));
            for (float& x : values) {
                x = next;
                next += 0.125f;
            }
            to->set(values);
        }
    }

    [[nodiscard]] Problem problem(const Way& way = {"cpu", "bf16"}) {
        Problem p(way.value(), q.view(), k.view(), v.view(), out.view());
        p.softmax_scale *= static_cast<float>(spec.scale);
        p.tensors.lse = lse.view();
        p.tensors.cu_seqlens_q = cu_q.view();
        p.tensors.cu_seqlens_k = cu_k.view();
        p.tensors.kv_lens = kv_lens.view();
        p.tensors.q_descale = q_descale.view();
        p.tensors.k_descale = k_descale.view();
        p.tensors.v_descale = v_descale.view();
        p.tensors.sink = sink.view();
        p.kernel = way.kernel;
        p.causal = spec.causal ? 1 : 0;
        p.window_left = spec.left;
        p.window_right = spec.right;
        p.zero_tail = spec.zero_tail ? 1 : 0;
        p.threads = 1;  // starting a thread costs more than most of these problems
        return p;
    }

    // A buffer shaped as lse.
    [[nodiscard]] Buffer row_buffer() const {
        const Extents e = spec.packed ? Extents{spec.heads_q, spec.tokens_q}
                                      : Extents{spec.batch, spec.heads_q, spec.tokens_q};
        Extents strides = contiguous_strides(e);
        for (std::int64_t& s : strides) {
            s *= 3;
        }
        return {QUATT_F32, e, strides};
    }

    void reset_outputs() {
        out.reset();
        lse.reset();
    }

    [[nodiscard]] std::vector<const Buffer*> inputs() const {
        return {&q, &k, &v, &cu_q, &cu_k, &kv_lens, &q_descale, &k_descale, &v_descale, &sink};
    }

    Spec spec;
    Buffer q, k, v, out, lse, cu_q, cu_k, kv_lens, q_descale, k_descale, v_descale, sink;

private:
    [[nodiscard]] static Buffer running_sums(const std::vector<std::int32_t>& lens) {
        std::vector<std::int32_t> cu = {0};
        for (const std::int32_t n : lens) {
            cu.push_back(cu.back() + n);
        }
        Buffer b(QUATT_I32, {static_cast<std::int64_t>(cu.size())}, {2});
        b.set_integers(cu);
        return b;
    }
};

// A workspace of exactly the bytes that a plan asks for, watched on both sides; filled with NaN.
class Workspace {
public:
    explicit Workspace(std::size_t size_bytes)
        : size_(size_bytes), bytes_(size_bytes + 2 * kGuardBytes, kCanary) {}

    [[nodiscard]] std::span<std::byte> span() { return {bytes_.data() + kGuardBytes, size_}; }
    [[nodiscard]] bool guards_intact() const {
        const auto intact = [](std::byte b) { return b == kCanary; };
        return std::all_of(bytes_.begin(), bytes_.begin() + kGuardBytes, intact) &&
               std::all_of(bytes_.end() - kGuardBytes, bytes_.end(), intact);
    }

private:
    std::size_t size_;
    Bytes bytes_;
};

// Plan and run with a workspace of exactly the size that the plan asks for.
[[nodiscard]] inline Status run(const Problem& p, const Device& device) {
    Result<Plan> plan = Plan::create(p, device);
    if (!plan.ok()) {
        return plan.status();
    }
    Workspace workspace(plan->workspace_bytes());
    Status s = plan->run(p.tensors, workspace.span());
    EXPECT_TRUE(workspace.guards_intact()) << "written beside the workspace\n" << p;
    return s;
}

// Runs c and holds everything against it that holds for every run: inputs keep their bytes, all of
// the results is written and nothing beside them, and they are as accurate as the recipe says.
[[nodiscard]] inline testing::AssertionResult runs_well(Case& c, const Way& way, const Problem& p,
                                                        const Expected& expected) {
    std::vector<Bytes> before;
    for (const Buffer* b : c.inputs()) {
        before.push_back(b->bytes());
    }
    c.reset_outputs();
    if (const Status s = run(p, way.device); !s.ok()) {
        return testing::AssertionFailure() << s.message();
    }
    for (std::size_t i = 0; i < before.size(); i++) {
        if (c.inputs()[i]->bytes() != before[i]) {
            return testing::AssertionFailure() << "input " << i << " was written";
        }
    }
    if (!c.out.surroundings_intact() || (c.lse.present() && !c.lse.surroundings_intact())) {
        return testing::AssertionFailure() << "written beside out or lse";
    }
    return close_to(p, expected, tolerance_of(way));
}

[[nodiscard]] inline testing::AssertionResult runs_well(const Spec& spec, const Way& way) {
    Case c(spec);
    const Problem p = c.problem(way);
    const testing::AssertionResult result = runs_well(c, way, p, expect(p));
    std::ostringstream what;
    what << "\n  on " << way << ": " << c.spec;
    return result ? result : testing::AssertionFailure() << result.message() << what.str();
}

// Bits of all results of a run.
struct Bits {
    std::vector<std::uint32_t> out, lse;
    bool operator==(const Bits&) const = default;
};

[[nodiscard]] inline Bits bits_of(Case& c, const Way& way,
                                  const std::function<void(Problem&)>& change = {}) {
    Problem p = c.problem(way);
    if (change) {
        change(p);
    }
    c.reset_outputs();
    const Status s = run(p, way.device);
    EXPECT_TRUE(s.ok()) << s.message() << "\n  on " << way << ": " << c.spec;
    return {c.out.codes(), c.lse.present() ? c.lse.codes() : std::vector<std::uint32_t>()};
}

}  // namespace quatt::test

// What design and docs/recipes.md say, once more: plain, slow and in fp64, written from the text
// and not from the library. Nothing here calls the code under test.
#pragma once
#include <quatt/quatt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace quatt::oracle {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// ------------------------------------------------------------------------------------- formats

// A binary floating-point format: fraction bits, exponent of the smallest normal, largest number.
struct Grid {
    int fraction_bits;
    int low;
    double max;
    bool saturates;
};
inline constexpr Grid kF32{23, -126, 0x1.FFFFFEp127, false};
inline constexpr Grid kBf16{7, -126, 0x1.FEp127, false};
inline constexpr Grid kF16{10, -14, 65504, false};
inline constexpr Grid kE4m3{3, -6, 448, true};
inline constexpr Grid kE2m1{1, 0, 6, true};

// Distance between the numbers of the format around x.
[[nodiscard]] inline double spacing(const Grid& g, double x) {
    const int exponent =
        x == 0 ? g.low : std::max(std::ilogb(std::min(std::fabs(x), g.max)), g.low);
    return std::ldexp(1.0, exponent - g.fraction_bits);
}

// Round to nearest, ties to even: an even multiple of the spacing is an even code.
[[nodiscard]] inline double nearest(const Grid& g, double x) {
    if (std::isnan(x)) {
        return x;
    }
    if (std::isinf(x)) {
        return g.saturates ? std::copysign(g.max, x) : x;
    }
    const double s = spacing(g, x), y = std::nearbyint(x / s) * s;
    return std::fabs(y) <= g.max ? y : std::copysign(g.saturates ? g.max : kInf, y);
}

// How far x is from the border between two roundings, in units of the spacing: 0 on the border, .5
// on a number of the format.
[[nodiscard]] inline double from_border(const Grid& g, double x) {
    if (!(std::fabs(x) < g.max)) {
        return .5;
    }
    const double u = std::fabs(x) / spacing(g, x);
    return std::fabs(u - std::floor(u) - .5);
}

[[nodiscard]] inline double int8_nearest(double x) {
    return std::clamp(std::nearbyint(x), -127.0, 127.0);
}

[[nodiscard]] inline double decode_float(unsigned code, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned fraction = code & ((1U << fraction_bits) - 1);
    const int exponent = static_cast<int>(code >> fraction_bits & ((1U << exponent_bits) - 1));
    const double sign = (code >> (exponent_bits + fraction_bits) & 1U) != 0 ? -1 : 1;
    const double f = std::ldexp(fraction, -fraction_bits);
    return sign * (exponent == 0 ? std::ldexp(f, 1 - bias) : std::ldexp(1 + f, exponent - bias));
}
[[nodiscard]] inline double decode_e4m3(std::uint8_t c) {
    return (c & 0x7F) == 0x7F ? kNaN : decode_float(c, 4, 3);
}
[[nodiscard]] inline double decode_e2m1(std::uint8_t c) {
    return decode_float(c & 0xFU, 2, 1);
}
[[nodiscard]] inline double decode_bf16(std::uint16_t c) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(c) << 16));
}
[[nodiscard]] inline double decode_f16(std::uint16_t c) {
    if ((c & 0x7C00U) == 0x7C00U) {
        return (c & 0x3FFU) != 0 ? kNaN : (c & 0x8000U) != 0 ? -kInf : kInf;
    }
    return decode_float(c, 5, 10);
}

// ------------------------------------------------------------------------------ attention, exact

// Keys of [0, k_len) that row i sees, straight from the definition; in numbers that no window
// overflows.
[[nodiscard]] inline bool sees(std::int64_t i, std::int64_t j, std::int64_t q_len,
                               std::int64_t k_len, bool causal, std::int64_t left,
                               std::int64_t right) {
    const auto p = static_cast<long double>(i + k_len - q_len);
    const auto l = static_cast<long double>(left), r = static_cast<long double>(right),
               key = static_cast<long double>(j);
    return (!causal || key <= p) && (left < 0 || key >= p - l) && (right < 0 || key <= p + r);
}

struct RowResult {
    std::vector<double> out;
    double lse = -kInf;  // natural
    double light = 0;    // mass of keys 2^-11 or more below the largest of their aligned 64
};

// Softmax of natural-log scores, -inf where masked, and its product with v [keys, dim_v].
[[nodiscard]] inline RowResult attend(std::span<const double> s, std::span<const double> v,
                                      std::int64_t dim_v, double sink = -kInf) {
    RowResult r;
    r.out.assign(static_cast<std::size_t>(dim_v), 0.0);
    double top = -kInf;
    for (const double x : s) {
        top = std::isnan(x) || x > top ? x : top;
    }
    if (top == -kInf) {
        r.lse = sink;
        return r;
    }
    const double base = std::isnan(top) ? top : std::max(top, sink);
    double sum = sink == -kInf ? 0 : std::exp(sink - base);
    for (std::size_t j = 0; j < s.size(); j++) {
        if (s[j] == -kInf) {
            continue;
        }
        const double p = std::exp(s[j] - base);
        sum += p;
        for (std::size_t d = 0; d < r.out.size(); d++) {
            r.out[d] += p * v[j * r.out.size() + d];
        }
        double largest = -kInf;
        for (std::size_t i = j / 64 * 64; i < std::min(s.size(), j / 64 * 64 + 64); i++) {
            largest = std::max(largest, s[i]);
        }
        r.light += s[j] <= largest - 11 * std::log(2.0) ? p : 0;
    }
    for (double& x : r.out) {
        x /= sum;
    }
    r.light /= sum;
    r.lse = base + std::log(sum);
    return r;
}

// --------------------------------------------------------------------- Hopper's FP8 accumulator

struct CodePair {
    double a, b;  // values of E4M3 codes
};

// c + sum of a b, in integers: everything in units of 2^(top - 13), cut toward zero, and the sum
// cut again to its own 14 leading bits. top: the largest exponent, where a product has the sum of
// its codes' exponents, and a subnormal code -6.
[[nodiscard]] inline double hopper_sum(double c, std::span<const CodePair> pairs) {
    int top = c == 0 ? std::numeric_limits<int>::min() : std::ilogb(c);
    const auto exponent = [](double code) { return std::max(std::ilogb(code), -6); };
    for (const CodePair& x : pairs) {
        if (x.a != 0 && x.b != 0) {
            top = std::max(top, exponent(x.a) + exponent(x.b));
        }
    }
    if (top == std::numeric_limits<int>::min()) {
        return 0;
    }
    // The conversion cuts.
    const auto units = [&](double x) { return static_cast<std::int64_t>(std::ldexp(x, 13 - top)); };
    std::int64_t sum = units(c);
    for (const CodePair& x : pairs) {
        sum += units(x.a * x.b);
    }
    std::int64_t unit = 1;
    while (std::abs(sum / unit) >= 1 << 14) {
        unit *= 2;
    }
    return std::ldexp(static_cast<double>(sum / unit * unit), top - 13);
}

// ---------------------------------------------------------------------------------- lazy softmax

struct LazyTile {
    double factor = 1, sum = 0;
    std::vector<double> t, exact, p;  // scores, 2^(t - m + w), and rounded
    bool overflow = false, refreshed = false, fell = false;
    bool doubtful = false;  // a decision hangs on less than fp32 can tell
};

class LazyRow {
public:
    // slack: how far scores may be off, in log2 units, before the row calls a decision doubtful.
    explicit LazyRow(const quatt_recipe& r, double slack = 2e-6) : r_(r), slack_(slack) {}

    double m = -kInf, highest = -kInf;  // no key yet

    LazyTile take_tile(std::int64_t interval, std::span<const double> t) {
        LazyTile x;
        x.t.assign(t.begin(), t.end());
        double most = -kInf;
        for (const double y : t) {
            most = !std::isnan(y) && y > most ? y : most;
        }
        const double before = m;
        // 1. Look
        if (r_.refreshes != 0 && (interval != interval_ || raised_much_)) {
            x.refreshed = true;
            x.doubtful |= near_integer(most);
            if (std::ceil(most) > m) {
                x.factor *= move(std::ceil(most));
            } else if (most > -kInf && std::ceil(most) <= m - r_.refresh_rise) {
                x.factor *= move(std::max(std::ceil(most), highest - r_.max_drop));
                x.fell = true;
            }
        }
        interval_ = interval;
        // 2. P and overflow
        make(t, x);
        if (x.overflow) {
            x.doubtful |= near_integer(most);
            x.factor *= move(std::max(m, std::ceil(most)));
            const bool doubtful = x.doubtful;
            make(t, x);
            x.doubtful = doubtful;  // the second making decides nothing
            x.overflow = true;
        }
        raised_much_ = m - before >= r_.refresh_rise;
        return x;
    }

    // Takes over what the library decided, after a doubtful tile.
    void follow(double reference, double highest_reference, bool refresh) {
        m = reference;
        highest = highest_reference;
        raised_much_ = refresh;
    }

private:
    [[nodiscard]] bool near_integer(double x) const {
        return std::fabs(x - std::round(x)) < slack_ && x != std::round(x);
    }
    double move(double to) {
        const double factor = to == m ? 1 : std::exp2(m - to);
        m = to;
        highest = std::max(highest, to);
        return factor;
    }
    // Numbers around which the borders of `g` lie within what the slack moves a number: relative
    // slack * ln 2, twice for rounding.
    [[nodiscard]] bool at_border(const Grid& g, double x) const {
        return x != 0 && std::fabs(x) < g.max &&
               from_border(g, x) * spacing(g, x) < 2 * slack_ * std::fabs(x);
    }

    void make(std::span<const double> t, LazyTile& x) {
        x.exact.assign(t.size(), 0);
        x.p.assign(t.size(), 0);
        x.sum = 0;
        for (std::size_t j = 0; j < t.size(); j++) {
            x.exact[j] = t[j] == -kInf ? 0 : std::exp2(t[j] - m + r_.exponent_bias);
            x.sum += x.exact[j];
        }
        x.overflow = false;
        const double top_code = decode_e4m3(static_cast<std::uint8_t>(r_.overflow_code));
        const bool keep = r_.p_format == QUATT_FORMAT_F32;
        switch (r_.overflow_format) {
            case QUATT_FORMAT_BF16:
                x.overflow = !(x.sum < 0x1p64);
                x.doubtful |= std::fabs(x.sum - 0x1p64) < 0x1p64 * 1e-4;
                for (std::size_t j = 0; j < t.size(); j++) {
                    x.p[j] = keep ? x.exact[j] : nearest(kBf16, x.exact[j]);
                }
                break;
            case QUATT_FORMAT_F16:
                for (std::size_t j = 0; j < t.size(); j++) {
                    x.overflow |= !(x.exact[j] < 32760);
                    x.doubtful |= std::fabs(x.exact[j] - 32760) < 32760 * 2 * slack_;
                    x.p[j] = keep ? x.exact[j] : nearest(kF16, x.exact[j]);
                }
                break;
            case QUATT_FORMAT_E4M3:
                for (std::size_t j = 0; j < t.size(); j++) {
                    const double code = nearest(kE4m3, x.exact[j]);
                    x.overflow |= !(code < top_code);
                    x.doubtful |=
                        at_border(kE4m3, x.exact[j]) && code + spacing(kE4m3, code) >= top_code;
                    x.p[j] = keep ? x.exact[j] : code;
                }
                break;
            default:
                make_fp4(t.size(), top_code, keep, x);
        }
    }

    void make_fp4(std::size_t n, double top_code, bool keep, LazyTile& x) const {
        for (std::size_t start = 0; start < n; start += 32) {
            for (std::size_t b = 0; b < 2; b++) {
                std::vector<std::size_t> keys;
                double amax = 0;
                for (std::size_t j = 0; j < 4; j++) {
                    for (std::size_t i = 0; i < 4; i++) {
                        keys.push_back(start + 8 * j + 4 * b + i);
                        const double a = x.exact[keys.back()];
                        amax = std::isnan(a) || std::isnan(amax) ? kNaN : std::max(amax, a);
                    }
                }
                const double scale = nearest(kE4m3, amax / 6);
                x.overflow |= !(scale < top_code);
                x.doubtful |= at_border(kE4m3, amax / 6);
                for (const std::size_t j : keys) {
                    const double y = scale == 0 ? 0 : nearest(kE2m1, x.exact[j] / scale) * scale;
                    x.p[j] = keep ? x.exact[j] : y;
                }
            }
        }
    }

    const quatt_recipe& r_;
    double slack_;
    std::int64_t interval_ = -1;
    bool raised_much_ = false;
};

}  // namespace quatt::oracle

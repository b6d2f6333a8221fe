#include "core/geometry.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

#include "core/tensor_view.hpp"

namespace quatt::core {
namespace {

// Dimensions with more than one element, largest |stride| first.
struct Axes {
    int count = 0;
    std::array<std::int64_t, 4> extent{}, stride{};
};
Axes axes_of(const quatt_tensor& t) {
    Axes a;
    for (int i = 0; i < t.rank; i++) {
        if (t.extent[i] > 1) {
            int at = a.count++;
            const std::int64_t s = std::abs(t.stride[i]);
            for (; at > 0 && a.stride[static_cast<std::size_t>(at - 1)] < s; at--) {
                a.stride[static_cast<std::size_t>(at)] = a.stride[static_cast<std::size_t>(at - 1)];
                a.extent[static_cast<std::size_t>(at)] = a.extent[static_cast<std::size_t>(at - 1)];
            }
            a.stride[static_cast<std::size_t>(at)] = s;
            a.extent[static_cast<std::size_t>(at)] = t.extent[i];
        }
    }
    return a;
}

// Each stride steps over all that the smaller ones reach.
bool nested(const Axes& a) {
    std::int64_t reach = 0;
    for (int i = a.count - 1; i >= 0; i--) {
        const auto u = static_cast<std::size_t>(i);
        if (a.stride[u] <= reach) {
            return false;
        }
        std::int64_t more = 0;  // axes of two tensors together may reach further than either
        if (__builtin_mul_overflow(a.extent[u] - 1, a.stride[u], &more) ||
            __builtin_add_overflow(reach, more, &reach)) {
            return false;
        }
    }
    return true;
}

// Is `distance` = sum of d_i * stride_i with lo_i <= d_i <= hi_i? Strides are nested, so two
// candidates an axis are enough.
bool reachable(std::int64_t distance, const Axes& a, const std::array<std::int64_t, 4>& lo,
               const std::array<std::int64_t, 4>& hi, int axis) {
    if (axis == a.count) {
        return distance == 0;
    }
    const auto u = static_cast<std::size_t>(axis);
    std::int64_t d = distance / a.stride[u] - (distance % a.stride[u] < 0 ? 1 : 0);
    for (int candidate = 0; candidate < 2; candidate++, d++) {
        if (d >= lo[u] && d <= hi[u] &&
            reachable(distance - d * a.stride[u], a, lo, hi, axis + 1)) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool has_elements(const quatt_tensor& t) {
    for (int i = 0; i < t.rank; i++) {
        if (t.extent[i] == 0) {
            return false;
        }
    }
    return true;
}

bool byte_range(const quatt_tensor& t, Range& range) {
    const TensorView view(t);
    // A dtype that nobody knows is reported elsewhere.
    const auto size =
        std::max<std::int64_t>(static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype)), 1);
    std::int64_t lo = 0, hi = 0, elements = 1;
    for (int i = 0; i < t.rank; i++) {
        std::int64_t reach = 0;
        if (__builtin_mul_overflow(elements, std::max<std::int64_t>(t.extent[i], 1), &elements) ||
            __builtin_mul_overflow(std::max<std::int64_t>(t.extent[i], 1) - 1, view.stride(i),
                                   &reach) ||
            __builtin_mul_overflow(reach, size, &reach) ||
            __builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) {
            return false;
        }
    }
    std::int64_t bytes = 0;
    range = {lo, hi};
    return !__builtin_mul_overflow(elements, size, &bytes) &&
           !__builtin_add_overflow(hi, size, &range.hi) &&
           !__builtin_sub_overflow(range.hi, lo, &bytes);  // from end to end, too
}

bool is_addressable(const quatt_tensor& t, const Range& range) {
    const auto at = reinterpret_cast<std::intptr_t>(t.data);
    std::intptr_t end = 0;
    return at >= 0 && at + range.lo >= 0 && !__builtin_add_overflow(at, range.hi, &end);
}

std::int64_t count_elements(const quatt_tensor& t) {
    std::int64_t n = 1;
    for (int i = 0; i < t.rank; i++) {
        n *= std::max<std::int64_t>(t.extent[i], 1);
    }
    return n;
}

bool has_distinct_elements(const quatt_tensor& t) {
    return nested(axes_of(t));
}

bool may_overlap(const quatt_tensor& out, const quatt_tensor& in) {
    if (out.data == nullptr || in.data == nullptr || !has_elements(out) || !has_elements(in)) {
        return false;
    }
    Range a, b;
    if (!byte_range(out, a) || !byte_range(in, b)) {
        return false;  // reported elsewhere
    }
    const auto at = reinterpret_cast<std::intptr_t>(out.data),
               bt = reinterpret_cast<std::intptr_t>(in.data);
    if (at + a.hi <= bt + b.lo || bt + b.hi <= at + a.lo) {
        return false;
    }
    if (out.rank != in.rank || quatt_dtype_bytes(out.dtype) != quatt_dtype_bytes(in.dtype)) {
        return true;
    }
    // Axes on which either has more than one element; both must step alike there.
    quatt_tensor joint = out;
    for (int i = 0; i < out.rank; i++) {
        const bool uses_out = out.extent[i] > 1, uses_in = in.extent[i] > 1;
        if (uses_out && uses_in && out.stride[i] != in.stride[i]) {
            return true;
        }
        joint.stride[i] = uses_out ? out.stride[i] : in.stride[i];
        joint.extent[i] = std::max(out.extent[i], in.extent[i]);
        if (joint.extent[i] > 1 && joint.stride[i] <= 0) {
            return true;
        }
    }
    const Axes axes = axes_of(joint);
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(out.dtype));
    if (!nested(axes) || (at - bt) % size != 0) {
        return true;
    }
    std::array<std::int64_t, 4> lo{}, hi{};
    for (int axis = 0; axis < axes.count; axis++) {
        const auto u = static_cast<std::size_t>(axis);
        for (int i = 0; i < out.rank; i++) {
            if (joint.extent[i] > 1 &&
                joint.stride[i] == axes.stride[u]) {  // nested strides differ from each other
                lo[u] = -(out.extent[i] - 1);
                hi[u] = in.extent[i] - 1;
            }
        }
    }
    // out at index i equals in at index j where (at - bt) / size = sum (j - i) * stride.
    return reachable((at - bt) / size, axes, lo, hi, 0);
}

}  // namespace quatt::core

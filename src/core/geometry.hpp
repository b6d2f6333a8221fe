// Where the elements of a tensor lie: how far they reach, and whether two of them share a byte.
#pragma once
#include <quatt/quatt.h>

#include <cstdint>

namespace quatt::core {

// False: some extent is 0. The rank must be 0 to 4.
[[nodiscard]] bool has_elements(const quatt_tensor& t);

// Bytes [lo, hi) relative to data.
struct Range {
    std::int64_t lo = 0, hi = 0;
};
// False: it does not fit 63 bits. Extents must not be negative.
[[nodiscard]] bool byte_range(const quatt_tensor& t, Range& range);

// Of a tensor whose byte_range is sound; an extent of 0 counts as 1.
[[nodiscard]] std::int64_t count_elements(const quatt_tensor& t);

// Memory of user space: addresses then add and compare as signed numbers.
[[nodiscard]] bool is_addressable(const quatt_tensor& t, const Range& range);

// No two indices meet. (Stranger layouts without overlap exist; they are refused too.)
[[nodiscard]] bool has_distinct_elements(const quatt_tensor& t);

// May an element of `out` share a byte with an element of `in`? Exact for views of one buffer with
// the same strides (a fused QKV buffer), by byte ranges for all others.
[[nodiscard]] bool may_overlap(const quatt_tensor& out, const quatt_tensor& in);

}  // namespace quatt::core

// Loops over the elements of one row, compiled for several instruction sets (simd.hpp): where the
// time of quantising goes.
#pragma once
#include <quatt/quatt.h>

#include <cstddef>
#include <cstdint>

namespace quatt::recipe {

// bf16 or f16 (`wide`) numbers, from codes that need not be aligned.
void decode_wide_row(quatt_format wide, const std::byte* codes, std::int64_t n, float* out);

// Codes of any format but E2M1's scales: one code an element.
void encode_row(quatt_format format, const float* x, std::int64_t n, std::byte* to);

// E4M3 or INT8 codes as the bf16 numbers that they are.
void narrow_codes_as_bf16(quatt_format narrow, const std::byte* codes, std::int64_t n,
                          std::uint16_t* out);

void subtract_row(float* x, const float* y, std::int64_t n);
void scale_row(float* x, float factor, std::int64_t n);
void multiply_row(float* x, const float* factor, std::int64_t n);
void add_row(float* x, const float* y, std::int64_t n);
// The smaller and the larger of both, NaN in y ignored.
void lower_row(float* x, const float* y, std::int64_t n);
void raise_row(float* x, const float* y, std::int64_t n);
// Sum of (x + c)^2, null counting as 0, in the order of is_far's fold (sample.hpp).
[[nodiscard]] float folded_squares(const float* x, const float* c, std::int64_t n);
void add_to_sums(const float* x, std::int64_t n, double* sums);

// Magnitudes are kept as the bits of |x|, ordered as the numbers are, with what is not finite above
// all of them: a maximum would drop NaN.
inline constexpr std::uint32_t kNotFinite = 0x7F800000u;  // this or more
[[nodiscard]] std::uint32_t largest_magnitude(const float* x, std::int64_t n);
void raise_magnitudes(const float* x, std::int64_t n, std::uint32_t* largest);
// Raises those of elements with |x * inverse| beyond the target, or NaN; says whether there was
// one.
[[nodiscard]] bool raise_beyond(const float* x, const float* inverse, float target, std::int64_t n,
                                std::uint32_t* largest);

}  // namespace quatt::recipe

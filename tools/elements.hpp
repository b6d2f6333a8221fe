// Elements of a file's tensors as the library has them: its type for each, and their values.
#pragma once

#include <quatt/quatt.h>

#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "safetensors.hpp"

namespace quatt::tools {

static_assert(std::endian::native == std::endian::little, "safetensors data is little endian");

// F32, F16, BF16 and F8_E4M3: the types of numbers that both have.
[[nodiscard]] std::optional<quatt_dtype> library_dtype(Dtype dtype) noexcept;
// The inverse.
[[nodiscard]] Dtype file_dtype(quatt_dtype dtype);

// The elements of bytes of such a type, by quatt_convert. Throws Error for other types.
[[nodiscard]] std::vector<float> to_floats(Dtype dtype, std::span<const std::byte> bytes);
// The inverse: rounded to the nearest, ties to even. E4M3 saturates at +-448.
[[nodiscard]] std::vector<std::byte> from_floats(Dtype dtype, std::span<const float> values);

}  // namespace quatt::tools

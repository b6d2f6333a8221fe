#include "elements.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace quatt::tools {
namespace {

constexpr std::array<std::pair<Dtype, quatt_dtype>, 4> kTypes = {{{Dtype::kF32, QUATT_F32},
                                                                  {Dtype::kF16, QUATT_F16},
                                                                  {Dtype::kBf16, QUATT_BF16},
                                                                  {Dtype::kF8E4M3, QUATT_E4M3}}};

quatt_dtype convertible(Dtype dtype) {
    if (const auto found = library_dtype(dtype)) {
        return *found;
    }
    throw Error("no conversion between " + std::string(dtype_name(dtype)) +
                " and numbers; allowed are F32, F16, BF16 and F8_E4M3");
}

void convert(void* to, quatt_dtype to_dtype, const void* from, quatt_dtype from_dtype,
             std::size_t count) {
    if (quatt_convert(to, to_dtype, from, from_dtype, static_cast<std::int64_t>(count)) !=
        QUATT_OK) {
        throw Error(quatt_last_error());
    }
}

}  // namespace

std::optional<quatt_dtype> library_dtype(Dtype dtype) noexcept {
    for (const auto& [file, library] : kTypes) {
        if (file == dtype) {
            return library;
        }
    }
    return std::nullopt;
}

Dtype file_dtype(quatt_dtype dtype) {
    for (const auto& [file, library] : kTypes) {
        if (library == dtype) {
            return file;
        }
    }
    throw std::logic_error("no such type in a file");
}

std::vector<float> to_floats(Dtype dtype, std::span<const std::byte> bytes) {
    const quatt_dtype from = convertible(dtype);
    std::vector<float> values(bytes.size() / quatt_dtype_bytes(from));
    convert(values.data(), QUATT_F32, bytes.data(), from, values.size());
    return values;
}

std::vector<std::byte> from_floats(Dtype dtype, std::span<const float> values) {
    const quatt_dtype to = convertible(dtype);
    std::vector<std::byte> bytes(values.size() * quatt_dtype_bytes(to));
    convert(bytes.data(), to, values.data(), QUATT_F32, values.size());
    return bytes;
}

}  // namespace quatt::tools

// Strided tensor views for the C++ API.
#pragma once
#if __cplusplus <= 201703L
#error "quatt/tensor.hpp needs C++20 (-std=c++20); quatt/quatt.h takes C99 and C++11"
#endif

#include <quatt/quatt.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <type_traits>

namespace quatt {

enum class DType : quatt_dtype {
    none = QUATT_NONE,
    f32 = QUATT_F32,
    bf16 = QUATT_BF16,
    f16 = QUATT_F16,
    e4m3 = QUATT_E4M3,
    i32 = QUATT_I32
};

namespace detail {
// C++ types that are a dtype by themselves.
template <class T>
inline constexpr DType dtype_of =
    std::is_same_v<std::remove_const_t<T>, float>          ? DType::f32
    : std::is_same_v<std::remove_const_t<T>, std::int32_t> ? DType::i32
                                                           : DType::none;
template <class T>
inline constexpr bool is_element = dtype_of<T> != DType::none;
}  // namespace detail

// A view of memory that the caller owns, of up to four extents. Strides are in elements.
struct Tensor : quatt_tensor {
    Tensor() : quatt_tensor{} {}
    Tensor(const quatt_tensor& t) : quatt_tensor(t) {}

    // Row-major and contiguous, up to four extents. Data of bf16, f16 and e4m3 have no C++ type
    // here, so the dtype is an argument.
    Tensor(const void* pointer, DType type, std::initializer_list<std::int64_t> shape)
        : quatt_tensor(
              quatt_tensor_contiguous(const_cast<void*>(pointer), static_cast<quatt_dtype>(type),
                                      static_cast<std::int32_t>(shape.size()), shape.begin())) {}

    // With strides of your own, in elements, one for each extent.
    Tensor(const void* pointer, DType type, std::initializer_list<std::int64_t> shape,
           std::initializer_list<std::int64_t> strides)
        : Tensor(pointer, type, shape) {
        std::int32_t i = 0;
        for (const std::int64_t s : strides) {
            if (i < axes()) {
                stride[i++] = s;
            }
        }
    }

    // A span of float or int32 as a tensor of one extent.
    template <class T, std::size_t N>
    requires detail::is_element<T>
    explicit Tensor(std::span<T, N> values)
        : Tensor(values.data(), detail::dtype_of<T>, {static_cast<std::int64_t>(values.size())}) {}

    [[nodiscard]] bool present() const { return dtype != QUATT_NONE; }
    // Axes that there is room for: a rank above 4 is refused, but may be asked about and printed.
    [[nodiscard]] std::int32_t axes() const { return rank < 0 ? 0 : rank > 4 ? 4 : rank; }
    [[nodiscard]] std::int64_t size() const {
        std::int64_t n = 1;
        for (std::int32_t i = 0; i < axes(); i++) {
            n *= extent[i];
        }
        return n;
    }
};

inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
    if (!t.present()) {
        return out << "absent";
    }
    out << quatt_dtype_name(t.dtype) << " [";
    for (std::int32_t i = 0; i < t.axes(); i++) {
        out << (i ? "," : "") << t.extent[i];
    }
    out << "] strides [";
    for (std::int32_t i = 0; i < t.axes(); i++) {
        out << (i ? "," : "") << t.stride[i];
    }
    return out << ']';
}

}  // namespace quatt

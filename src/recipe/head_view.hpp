// One head of one segment (or batch item) of an input: the unit that scales, means and key tiles
// belong to.
#pragma once
#include <quatt/quatt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "recipe/rows.hpp"

namespace quatt::recipe {

// [tokens, channels], strides in elements. value = descale * element.
struct HeadView {
    const std::byte* data = nullptr;
    quatt_dtype dtype = QUATT_NONE;
    std::int64_t tokens = 0;
    std::int64_t channels = 0;
    std::int64_t token_stride = 0;
    std::int64_t channel_stride = 0;
    float descale = 1.0f;  // 1 unless dtype is e4m3
};

namespace detail {
template <class T>
[[nodiscard]] inline T load(const std::byte* p) {
    T v;  // memcpy: views need no more than element alignment, and bytes have no type of their own
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T, class Decode, class Out>
void load_row(const HeadView& v, std::int64_t token, Out* out, Decode decode) {
    const std::byte* p = v.data + token * v.token_stride * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t step = v.channel_stride * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t d = 0; d < v.channels; d++) {
        out[d] = static_cast<Out>(decode(load<T>(p + d * step)));
    }
}
}  // namespace detail

// Reads row `token` as stored numbers times descale. Out is float or double; in float the product
// with descale is rounded.
template <class Out>
void load_row(const HeadView& v, std::int64_t token, Out* out) {
    using namespace formats;
    if constexpr (std::is_same_v<Out, float>) {  // rows without gaps, as most are
        const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(v.dtype));
        const std::byte* p = v.data + token * v.token_stride * size;
        if (v.channel_stride == 1 && v.dtype == QUATT_F32) {
            std::memcpy(out, p, static_cast<std::size_t>(v.channels) * sizeof(float));
            return;
        }
        if (v.channel_stride == 1 && (v.dtype == QUATT_BF16 || v.dtype == QUATT_F16)) {
            decode_wide_row(v.dtype == QUATT_BF16 ? QUATT_FORMAT_BF16 : QUATT_FORMAT_F16, p,
                            v.channels, out);
            return;
        }
    }
    switch (v.dtype) {
        case QUATT_F32:
            detail::load_row<float>(v, token, out, [](float x) { return x; });
            break;
        case QUATT_BF16:
            detail::load_row<std::uint16_t>(v, token, out,
                                            [](std::uint16_t c) { return Bf16::decode(c); });
            break;
        case QUATT_F16:
            detail::load_row<std::uint16_t>(v, token, out,
                                            [](std::uint16_t c) { return F16::decode(c); });
            break;
        case QUATT_E4M3:
            detail::load_row<std::uint8_t>(v, token, out,
                                           [s = static_cast<Out>(v.descale)](std::uint8_t c) {
                                               return static_cast<Out>(E4m3::decode(c)) * s;
                                           });
            break;
        default:
            break;  // validation lets nothing else through
    }
}

}  // namespace quatt::recipe

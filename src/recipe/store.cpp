#include <limits>

#include "formats/bf16.hpp"
#include "formats/f16.hpp"
#include "recipe/attend.hpp"

namespace quatt::recipe {
namespace {

template <class T, class Encode>
void store(const HeadOutput& to, std::int64_t row, const float* values, Encode encode) {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    std::byte* p = to.out + row * to.token_stride * kSize;
    for (std::int64_t d = 0; d < to.channels; d++) {
        const T code = encode(values[d]);
        std::memcpy(p + d * to.channel_stride * kSize, &code, sizeof code);
    }
}

}  // namespace

void store_row(const HeadOutput& to, std::int64_t row, const float* values, float lse) {
    switch (to.dtype) {
        case QUATT_F32:
            store<float>(to, row, values, [](float x) { return x; });
            break;
        case QUATT_BF16:
            store<std::uint16_t>(to, row, values, [](float x) { return formats::Bf16::encode(x); });
            break;
        default:
            store<std::uint16_t>(to, row, values, [](float x) { return formats::F16::encode(x); });
            break;
    }
    if (to.lse != nullptr) {
        to.lse[row * to.lse_stride] = lse;
    }
}

void zero_row(const HeadOutput& to, std::int64_t row) {
    constexpr float kZeros[kMaxHeadDim] = {};
    store_row(to, row, kZeros, -std::numeric_limits<float>::infinity());
    if (to.light_mass != nullptr) {
        to.light_mass[row * to.light_stride] = 0;
    }
}

}  // namespace quatt::recipe

#include <limits>

#include "recipe/attend.hpp"
#include "recipe/rows.hpp"

namespace quatt::recipe {
void store_row(const HeadOutput& to, std::int64_t row, const float* values, float lse) {
    const quatt_format format = to.dtype == QUATT_F32    ? QUATT_FORMAT_F32
                                : to.dtype == QUATT_BF16 ? QUATT_FORMAT_BF16
                                                         : QUATT_FORMAT_F16;
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(to.dtype));
    std::byte* p = to.out + row * to.token_stride * size;
    if (to.channel_stride == 1) {
        encode_row(format, values, to.channels, p);
    } else {
        for (std::int64_t d = 0; d < to.channels; d++) {
            encode_row(format, values + d, 1, p + d * to.channel_stride * size);
        }
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

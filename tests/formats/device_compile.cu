// Compiled, not run: the formats as device code, as host code under nvcc, and in constant
// expressions of both.
#include <cstdint>

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/e5m2.hpp"
#include "formats/f16.hpp"
#include "formats/int8.hpp"
#include "formats/platform.hpp"
#include "formats/tables.hpp"
#include "formats/ue4m3.hpp"
#include "formats/ue8m0.hpp"

namespace {

using namespace quatt::formats;

template <class Format>
QUATT_HD float round_trip(float x) {
    constexpr float kLargest = Format::decode(Format::encode(Format::kMax));
    static_assert(kLargest == Format::kMax);
    return Format::decode(Format::encode(x)) + kLargest;
}

QUATT_HD float use_all(float x) {
    const std::uint8_t pair = E2m1::pack(E2m1::encode(x), E2m1::encode(-x));
    return round_trip<Bf16>(x) + round_trip<F16>(x) + round_trip<E4m3>(x) + round_trip<E5m2>(x) +
           round_trip<E2m1>(x) + round_trip<Ue4m3>(x) + round_trip<Ue8m0>(x) + round_trip<Int8>(x) +
           E2m1::decode(E2m1::unpack(pair, 0)) + E2m1::decode(E2m1::unpack(pair, 1)) +
           bit_cast<float>(bit_cast<std::uint32_t>(x));
}

// x, y: [n]
__global__ void use_all_on_device(const float* x, float* y, std::int64_t n) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < n) y[i] = use_all(x[i]);
}

}  // namespace

float use_all_on_host(float x) {
    return use_all(x) + kDecodeTable<E4m3>[E4m3::encode(x)] + decode_table<Int8>()[0];
}

void launch(const float* x, float* y, std::int64_t n) {
    use_all_on_device<<<1, 32>>>(x, y, n);
}

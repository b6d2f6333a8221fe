// Every format, encoded and decoded on the device and on the host: the results must be the same
// bits.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/e5m2.hpp"
#include "formats/f16.hpp"
#include "formats/int8.hpp"
#include "formats/ue4m3.hpp"
#include "formats/ue8m0.hpp"

namespace {

using namespace quatt::formats;

constexpr int kSkipped = 77;
constexpr unsigned kThreads = 256;

// fp32 bit patterns: every sign, exponent and top 12 fraction bits, with the low bits 0, 1 and
// all 1. A tie of a format with up to 10 fraction bits lies on such a pattern, and so do its
// neighbours; bf16's too.
constexpr std::uint32_t kInputs = 3u << 21;

QUATT_HD float input(std::uint32_t index) {
    const std::uint32_t high = (index / 3) << 11;
    const std::uint32_t low = index % 3 == 0 ? 0u : index % 3 == 1 ? 1u : 0x7FFu;
    return bit_cast<float>(high | low);
}

// The code of an input in the high half, what another code decodes to in the low half. The index
// runs through all codes.
template <class Format>
QUATT_HD std::uint64_t result(std::uint32_t index) {
    using Code = typename Format::Code;
    const auto code = static_cast<std::uint16_t>(Format::encode(input(index)));
    const float value = Format::decode(static_cast<Code>(index));
    return static_cast<std::uint64_t>(code) << 32 | bit_cast<std::uint32_t>(value);
}

template <class Format>
__global__ void results(std::uint64_t* out /* [kInputs] */) {
    const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
    if (index < kInputs) {
        out[index] = result<Format>(index);
    }
}

// False, with a message, where CUDA reports an error or a result differs.
template <class Format>
bool same(const char* name, std::uint64_t* device_out) {
    results<Format><<<(kInputs + kThreads - 1) / kThreads, kThreads>>>(device_out);
    std::vector<std::uint64_t> out(kInputs);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) {
        error = cudaMemcpy(out.data(), device_out, kInputs * sizeof(std::uint64_t),
                           cudaMemcpyDeviceToHost);
    }
    if (error != cudaSuccess) {
        std::printf("%s: %s\n", name, cudaGetErrorString(error));
        return false;
    }
    for (std::uint32_t index = 0; index < kInputs; index++) {
        if (out[index] != result<Format>(index)) {
            std::printf("%s: input %a: device %#llx, host %#llx\n", name,
                        static_cast<double>(input(index)),
                        static_cast<unsigned long long>(out[index]),
                        static_cast<unsigned long long>(result<Format>(index)));
            return false;
        }
    }
    std::printf("%s: %u results are the same\n", name, kInputs);
    return true;
}

// Constant evaluation works under nvcc too.
static_assert(E4m3::encode(448.0f) == 0x7E && E2m1::decode(7) == 6.0f);
static_assert(Bf16::encode(1.0f) == 0x3F80 && F16::encode(1.0f) == 0x3C00);

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("there is no CUDA device: compiled only\n");
        return kSkipped;
    }
    std::uint64_t* device_out = nullptr;
    if (cudaMalloc(&device_out, kInputs * sizeof(std::uint64_t)) != cudaSuccess) {
        std::printf("cudaMalloc failed\n");
        return 1;
    }
    bool good = true;
    good = same<Bf16>("bf16", device_out) && good;
    good = same<F16>("f16", device_out) && good;
    good = same<E4m3>("e4m3", device_out) && good;
    good = same<E5m2>("e5m2", device_out) && good;
    good = same<E2m1>("e2m1", device_out) && good;
    good = same<Ue4m3>("ue4m3", device_out) && good;
    good = same<Ue8m0>("ue8m0", device_out) && good;
    good = same<Int8>("int8", device_out) && good;
    cudaFree(device_out);
    return good ? 0 : 1;
}

// Where `quatt bench` has its tensors, and how it times runs there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "error.hpp"

namespace quatt::tools {

class BenchDevice {
public:
    using Run = std::function<void(void* stream)>;

    BenchDevice() = default;
    virtual ~BenchDevice() = default;
    BenchDevice(const BenchDevice&) = delete;
    BenchDevice& operator=(const BenchDevice&) = delete;

    // The name of the GPU; "" on the host.
    [[nodiscard]] virtual std::string gpu() const { return {}; }
    // Memory of the device, aligned to 256 bytes.
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
    virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
    virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
    // So many runs are timed at once, since a single one is too short.
    [[nodiscard]] virtual std::int64_t runs_at_once(const Run&) { return 1; }
    // ms of one of `runs` that follow each other.
    [[nodiscard]] virtual double time(const Run& run, std::int64_t runs) = 0;
};

[[nodiscard]] std::unique_ptr<BenchDevice> host_bench_device();
// bench_cuda.cpp, where quatt is built with CUDA. Throws Error where there is no such GPU.
[[nodiscard]] std::unique_ptr<BenchDevice> cuda_bench_device(std::int32_t ordinal);

}  // namespace quatt::tools

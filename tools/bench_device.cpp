#include "bench_device.hpp"

#include <algorithm>
#include <chrono>
#include <new>

namespace quatt::tools {
namespace {

constexpr std::align_val_t kAlign{256};

class HostDevice final : public BenchDevice {
public:
    std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        return {static_cast<std::byte*>(::operator new(bytes, kAlign)),
                [](std::byte* p) { ::operator delete(p, kAlign); }};
    }
    void upload(std::byte* to, std::span<const std::byte> from) override {
        std::ranges::copy(from, to);
    }
    void download(std::span<std::byte> to, const std::byte* from) override {
        std::copy_n(from, to.size(), to.data());
    }
    double time(const Run& run, std::int64_t runs) override {
        const auto start = std::chrono::steady_clock::now();
        for (std::int64_t i = 0; i < runs; ++i) {
            run(nullptr);
        }
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - start;
        return taken.count() / static_cast<double>(runs);
    }
};

}  // namespace

std::unique_ptr<BenchDevice> host_bench_device() {
    return std::make_unique<HostDevice>();
}

#if !defined(QUATT_HAVE_CUDA)
std::unique_ptr<BenchDevice> cuda_bench_device(std::int32_t) {
    throw Error("bench on a GPU needs quatt built with CUDA (QUATT_CUDA=ON); this one is not");
}
#endif

}  // namespace quatt::tools

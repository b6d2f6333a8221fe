// quatt bench on a GPU: the library allocates nothing and has no stream, so the tool asks CUDA.
#include <cuda_runtime_api.h>

#include <chrono>
#include <future>

#include "bench_device.hpp"

namespace quatt::tools {
namespace {

constexpr double kLeastMs = 1;  // of one timing
// Of one timing: all their launches must fit the queue of a stream, some 1000, while it waits.
constexpr std::int64_t kMostRuns = 64;
constexpr std::chrono::milliseconds kLongestHold{100};

void check(cudaError_t error, const std::string& call) {
    if (error != cudaSuccess) {
        throw Error(call + ": CUDA error " + std::to_string(error) + ", " +
                    cudaGetErrorString(error));
    }
}

std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Throws where there is no such GPU, in words of this machine and not of CUDA's error numbers.
void require_gpu(std::int32_t ordinal) {
    int driver = 0;
    int runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        throw Error("bench on a GPU needs an NVIDIA driver, and there is none here");
    }
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        throw Error("bench on a GPU needs a driver for CUDA " + cuda_version(runtime) +
                    ", with which quatt was built; the driver here is for CUDA " +
                    cuda_version(driver));
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        throw Error("bench on a GPU needs one; the NVIDIA driver here finds none");
    }
    check(error, "cudaGetDeviceCount");
    if (ordinal >= count) {
        throw Error("GPU " + std::to_string(ordinal) + " is not here; " +
                    (count == 1 ? "there is GPU 0 only"
                                : "there are GPUs 0 to " + std::to_string(count - 1)));
    }
}

// Nothing is left to do where this fails: the error is an earlier call's, which was checked.
template <auto kFree>
struct Freed {
    template <class T>
    void operator()(T* x) const noexcept {
        (void)kFree(x);
    }
};
using Stream = std::unique_ptr<CUstream_st, Freed<cudaStreamDestroy>>;
using Event = std::unique_ptr<CUevent_st, Freed<cudaEventDestroy>>;

Event make_event() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    return Event(event);
}

// While it lives, the stream waits with what is launched on it.
class Hold {
public:
    explicit Hold(cudaStream_t stream) : stream_(stream) {
        const auto wait = [](void* opened) {
            static_cast<std::future<void>*>(opened)->wait_for(kLongestHold);
        };
        check(cudaLaunchHostFunc(stream, wait, &opened_), "cudaLaunchHostFunc");
    }
    // What fails in the stream fails again in the call that reads the events.
    ~Hold() {
        open_.set_value();
        (void)cudaStreamSynchronize(stream_);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

private:
    cudaStream_t stream_;
    std::promise<void> open_;
    std::future<void> opened_ = open_.get_future();
};

class CudaDevice final : public BenchDevice {
public:
    explicit CudaDevice(std::int32_t ordinal) {
        require_gpu(ordinal);
        check(cudaSetDevice(ordinal), "cudaSetDevice(" + std::to_string(ordinal) + ")");
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
        gpu_ = properties.name;
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
        stream_.reset(stream);
        begin_ = make_event();
        end_ = make_event();
    }

    std::string gpu() const override { return gpu_; }

    std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
        return {static_cast<std::byte*>(memory), Freed<cudaFree>()};
    }
    void upload(std::byte* to, std::span<const std::byte> from) override {
        copy(to, from.data(), from.size(), cudaMemcpyHostToDevice);
    }
    void download(std::span<std::byte> to, const std::byte* from) override {
        copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
    }

    std::int64_t runs_at_once(const Run& run) override {
        run(stream_.get());  // CUDA loads the kernels now
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
        std::int64_t runs = 1;
        while (runs < kMostRuns && time(run, runs) * static_cast<double>(runs) < kLeastMs) {
            runs *= 2;
        }
        return runs;
    }

    double time(const Run& run, std::int64_t runs) override {
        {
            const Hold hold(stream_.get());  // so that no launch time of the host counts
            check(cudaEventRecord(begin_.get(), stream_.get()), "cudaEventRecord");
            for (std::int64_t i = 0; i < runs; ++i) {
                run(stream_.get());
            }
            check(cudaEventRecord(end_.get(), stream_.get()), "cudaEventRecord");
        }
        check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
        return double{ms} / static_cast<double>(runs);
    }

private:
    void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
        check(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    }

    std::string gpu_;
    Stream stream_;
    Event begin_, end_;
};

}  // namespace

std::unique_ptr<BenchDevice> cuda_bench_device(std::int32_t ordinal) {
    return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace quatt::tools

// The support table: an ordered list of kernels, each with what it accepts, and the choice among
// them.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/problem.hpp"
#include "core/text.hpp"
#include "core/thread_pool.hpp"

namespace quatt::core {

// How a kernel will do a problem.
struct Choice {
    std::int32_t key_tile = 64;
    // Of the matrix products: with the same one and the same key tile `emulate` gives the same
    // codes.
    std::int32_t accumulator = QUATT_ACCUMULATOR_FP32;
    std::int32_t splits = 1;
    std::int32_t threads = 1;
    std::size_t workspace_bytes = 0;
    quatt_device device{};  // of a GPU kernel: as asked for, completed by the driver
};

inline constexpr std::size_t kWorkspaceAlign = 64;

struct Plan;

struct Kernel {
    const char* name;
    quatt_backend backend;
    bool host;      // runs on the host: workspace and tensors are host memory
    bool fallback;  // may serve another device where the caller allows it
    const char *compute, *recipes, *head_dims, *dtypes, *features;
    void (*refuse)(const quatt_problem& p, const quatt_device& d, Reasons& reasons);
    Choice (*choose)(const quatt_problem& p, const Shape& s, const quatt_device& d);
    Status (*run)(const Plan& plan, const quatt_tensors& tensors, std::span<std::byte> workspace,
                  void* stream);
};

// Immutable after make_plan.
struct Plan {
    quatt_problem problem{};  // its pointers lead to the members below
    std::vector<std::int64_t> rows;
    Shape shape;
    quatt_device device{};  // as asked for
    const Kernel* kernel = nullptr;
    Choice choice;
    bool fallback = false;
    std::shared_ptr<ThreadPool> pool;  // host kernels
};

struct Refusal {
    const Kernel* kernel;
    Reasons reasons;
};

struct Selection {
    Status status;  // not ok: all reasons
    const Kernel* kernel = nullptr;
    bool fallback = false;
    quatt_recipe recipe{};  // the problem's, or the 16-bit one that a fallback computes instead
    Choice choice;
    std::vector<Refusal> refusals;  // of the kernels that were passed over
};

[[nodiscard]] std::span<const Kernel* const> kernels();  // in order of preference
[[nodiscard]] Selection select(const quatt_problem& p, const quatt_device& d);
[[nodiscard]] std::string explain(const quatt_problem& p, const quatt_device& d);
[[nodiscard]] Result<std::unique_ptr<Plan>> make_plan(const quatt_problem& p,
                                                      const quatt_device& d);
[[nodiscard]] std::string describe(const Plan& plan);
[[nodiscard]] Status run(const Plan& plan, const quatt_tensors& tensors, void* workspace,
                         std::size_t workspace_bytes, void* stream);

// Reasons of QUATT_UNSUPPORTED that hold for every kernel of this version: fields that are room for
// later.
void refuse_room(const quatt_problem& p, Reasons& reasons);

// Defined by the backends above this layer; core only knows that they exist.
extern const Kernel kCpuLevelKernels[6];  // on x86-64: one an instruction-set level
extern const Kernel kCpuKernel;
extern const Kernel kReferenceKernel;
extern const Kernel kEmulateKernel;
extern const Kernel kSimtWgmmaKernel, kSimtKernel;  // where the executor is built
extern const Kernel kCudaWgmmaKernel, kCudaKernel, kEmuWgmmaKernel, kEmuKernel;  // where CUDA is

// Whether a pointer leads to memory that only a GPU can read; false for null. Defined beside
// kCudaKernel.
[[nodiscard]] bool is_device_memory(const void* p);

}  // namespace quatt::core

// The support table: an ordered list of kernels, each with what it accepts, and the choice among
// them.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/describe.hpp"
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
    std::size_t packed_bytes = 0;  // K and V in memory of the caller; 0: the row keeps none there
    quatt_device device{};         // of a GPU kernel: as asked for, completed by the driver
};

inline constexpr std::size_t kWorkspaceAlign = 64;

struct Plan;

// One call of a plan.
struct Request {
    Work work;
    const quatt_tensors& tensors;  // with the data that the work touches
    std::span<std::byte> workspace;
    // K and V behind a PackedHeader; not of kRun. kAttend only reads it.
    std::span<std::byte> packed;
    void* stream;
};

// A row of the support table.
struct Kernel {
    const char* name = "";  // unique within its backend
    // What it takes, in words for people.
    const char* compute = "";
    const char* recipes = "";
    const char* head_dims = "";
    const char* dtypes = "";
    const char* features = "";
    // The backend's own description of the row (an instruction-set level, a schedule), so that rows
    // that differ in data share their functions. Only the backend reads it.
    const void* variant = nullptr;
    // Adds every reason why the row cannot take the problem; none: it can.
    void (*refuse)(const Kernel& row, const quatt_problem& p, const quatt_device& d,
                   Reasons& reasons) = nullptr;
    Choice (*choose)(const Kernel& row, const quatt_problem& p, const Shape& s,
                     const quatt_device& d) = nullptr;
    // Does all kinds of work where packed_bytes is not 0, else kRun alone.
    Status (*run)(const Plan& plan, const Request& request) = nullptr;
};

// All that serves one kind of device. The layer that implements it defines it.
struct Backend {
    quatt_backend device = QUATT_BACKEND_CPU;
    bool host = false;      // runs on the host: workspace and tensors are host memory
    bool fallback = false;  // may serve another device where the caller allows it
    std::span<const Kernel> kernels = {};  // in order of preference
    // Where this build has no kernels for the device: how another build gets them.
    const char* build_option = nullptr;
    // Why a kernel of this name, which other devices have, is none here; null: nothing to say.
    const char* (*why_absent)(const char* kernel) = nullptr;
    // Whether only a device of this kind can read the memory at p; false for null.
    bool (*owns_memory)(const void* p) = nullptr;
};

// The support table: backends in order of preference.
using Backends = std::span<const Backend* const>;

// Those of this build. Kinds of devices that it does not serve are there too, without kernels.
[[nodiscard]] Backends backends();

// Immutable after make_plan.
struct Plan {
    quatt_problem problem{};  // its pointers lead to the members below
    std::vector<std::int64_t> rows;
    Shape shape;
    quatt_device device{};  // as asked for
    const Backend* backend = nullptr;
    const Kernel* kernel = nullptr;
    Choice choice;
    bool fallback = false;
    std::shared_ptr<ThreadPool> pool;  // host kernels; null: the problem's parallel_for
};

struct Refusal {
    const Backend* backend;
    const Kernel* kernel;
    Reasons reasons;
};

struct Selection {
    Status status;  // not ok: all reasons
    const Backend* backend = nullptr;
    const Kernel* kernel = nullptr;
    bool fallback = false;
    quatt_recipe recipe{};  // the problem's, or the 16-bit one that a fallback computes instead
    Choice choice;
    std::vector<Refusal> refusals;  // of the kernels that were passed over
};

// Each takes the table to choose from, so that a test can bring rows of its own.
[[nodiscard]] Selection select(const quatt_problem& p, const quatt_device& d,
                               Backends table = backends());
[[nodiscard]] std::string explain(const quatt_problem& p, const quatt_device& d,
                                  Backends table = backends());
[[nodiscard]] Result<std::unique_ptr<Plan>> make_plan(const quatt_problem& p, const quatt_device& d,
                                                      Backends table = backends());
[[nodiscard]] std::string describe(const Plan& plan);
[[nodiscard]] Status run(const Plan& plan, const quatt_tensors& tensors, void* workspace,
                         std::size_t workspace_bytes, void* stream);
[[nodiscard]] Status quantize(const Plan& plan, const quatt_tensors& tensors, void* packed,
                              std::size_t packed_bytes, void* workspace,
                              std::size_t workspace_bytes, void* stream);
[[nodiscard]] Status attend(const Plan& plan, const quatt_tensors& tensors, const void* packed,
                            std::size_t packed_bytes, void* workspace, std::size_t workspace_bytes,
                            void* stream);

// Reasons of QUATT_UNSUPPORTED that hold for every kernel of this version: fields that are room for
// later.
void refuse_reserved_fields(const quatt_problem& p, Reasons& reasons);

}  // namespace quatt::core

// The C++ API (C++20): a thin layer over the C interface. quatt.h says what every field means, with
// shapes and units.
//
// Errors: functions that return Status or Result do not throw; constructors from names, and
// `attention`, throw quatt::Error. `explain` and `operator<<` write the message instead.
#pragma once
#if __cplusplus <= 201703L
#error "quatt/attention.hpp needs C++20 (-std=c++20); quatt/quatt.h takes C99 and C++11"
#endif

#include <quatt/quatt.h>
#include <quatt/recipe.hpp>
#include <quatt/status.hpp>
#include <quatt/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>

namespace quatt {

// A description, not a handle: any GPU can be asked about on any machine.
struct Device : quatt_device {
    Device(const quatt_device& d) : quatt_device(d) {}

    // cpu, reference, emulate, cuda[:N], simt:ARCH, emu:ARCH[:N]; else throws quatt::Error.
    Device(const std::string& name) : quatt_device{} {
        if (const quatt_status s =
                quatt_device_init_sized(this, sizeof(quatt_device), name.c_str());
            s != QUATT_OK) {
            throw Error(Status::from_c(s));
        }
    }
    Device(const char* name) : Device(std::string(name)) {}
};

// Tensors of a call, all absent at first.
struct Tensors : quatt_tensors {
    Tensors() : quatt_tensors{} { struct_size = sizeof(quatt_tensors); }
};

// What is asked for: recipe bf16, no mask, everything else absent, until it is set.
struct Problem : quatt_problem {
    Problem() : quatt_problem{} {
        quatt_problem_init_sized(this, sizeof(quatt_problem), sizeof(quatt_recipe),
                                 sizeof(quatt_tensors));
    }

    // softmax_scale is 1/sqrt(D), D the last extent of q.
    Problem(const Recipe& r, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out)
        : Problem() {
        recipe = r;
        tensors.q = q;
        tensors.k = k;
        tensors.v = v;
        tensors.out = out;
        const std::int64_t d = q.rank > 0 && q.rank <= 4 ? q.extent[q.rank - 1] : 0;
        softmax_scale = d > 0 ? 1.0f / std::sqrt(static_cast<float>(d)) : 0.0f;
    }

    // Host devices: loops run in the caller's pool instead of threads of the library. pool(count,
    // body) calls body(i) once for each i from 0 to count - 1 and returns when all have returned
    // (quatt_parallel_for_fn says more). The pool must live as long as plans use it.
    template <class Pool>
    void set_parallel_for(Pool& pool) {
        parallel_for = [](void* user, std::int64_t count, quatt_body_fn body, void* context) {
            (*static_cast<Pool*>(user))(count, [=](std::int64_t i) { body(context, i); });
        };
        parallel_for_user = const_cast<void*>(static_cast<const void*>(std::addressof(pool)));
    }
};

struct PlanInfo : quatt_plan_info {
    PlanInfo() : quatt_plan_info{} { struct_size = sizeof(quatt_plan_info); }
};

namespace detail {
// Calls a C function that writes text twice: for the size, then for the text.
template <class Call>
std::string text_of(Call&& call) {
    std::size_t needed = 0;
    if (call(nullptr, 0, &needed) != QUATT_OK || needed == 0) {
        return last_error();
    }
    std::string text(needed, '\0');
    if (call(text.data(), text.size(), &needed) != QUATT_OK) {
        return last_error();
    }
    text.resize(needed - 1);
    return text;
}
}  // namespace detail

// Whether the device takes the problem, by which kernel, and with how much workspace; else all
// reasons, one a line.
[[nodiscard]] inline Result<PlanInfo> query(const Problem& problem, const Device& device) {
    PlanInfo info;
    const quatt_status s = quatt_query(&problem, &device, &info);
    return s == QUATT_OK ? Result<PlanInfo>(info) : Result<PlanInfo>(Status::from_c(s));
}

// The decision for each kernel of the support table, as text.
[[nodiscard]] inline std::string explain(const Problem& problem, const Device& device) {
    return detail::text_of([&](char* t, std::size_t n, std::size_t* needed) {
        return quatt_explain(&problem, &device, t, n, needed);
    });
}

inline std::ostream& operator<<(std::ostream& out, const Problem& problem) {
    return out << detail::text_of([&](char* t, std::size_t n, std::size_t* needed) {
               return quatt_problem_describe(&problem, t, n, needed);
           });
}

// Immutable; may be run from several threads at once, each with a workspace of its own.
class Plan {
public:
    [[nodiscard]] static Result<Plan> create(const Problem& problem, const Device& device) {
        quatt_plan* raw = nullptr;
        const quatt_status s = quatt_plan_create(&problem, &device, &raw);
        return s == QUATT_OK ? Result<Plan>(Plan(raw)) : Result<Plan>(Status::from_c(s));
    }

    [[nodiscard]] PlanInfo info() const {
        PlanInfo i;
        (void)quatt_plan_get_info(plan_.get(), &i);
        return i;
    }
    [[nodiscard]] std::size_t workspace_bytes() const { return info().workspace_bytes; }

    // `tensors` in the layouts of the plan's problem. The workspace is memory of the device, as
    // long as workspace_bytes() and aligned as info() say, of one run at a time. On a GPU it
    // returns when all is launched on the CUDA stream, else when it is done.
    [[nodiscard]] Status run(const quatt_tensors& tensors, std::span<std::byte> workspace,
                             void* stream = nullptr) const {
        return Status::from_c(
            quatt_run(plan_.get(), &tensors, workspace.data(), workspace.size(), stream));
    }

    // Of packed K and V; 0: the kernel keeps none with this recipe.
    [[nodiscard]] std::size_t packed_bytes() const { return info().packed_bytes; }

    // run in two halves, with the same bits: K and V are packed once, in memory of the device that
    // is as long as packed_bytes() and aligned as the workspace, and attended to by any plan of the
    // same device, kernel, recipe and extents of k and v. `attend` touches no data of k and v.
    [[nodiscard]] Status quantize(const quatt_tensors& tensors, std::span<std::byte> packed,
                                  std::span<std::byte> workspace, void* stream = nullptr) const {
        return Status::from_c(quatt_quantize(plan_.get(), &tensors, packed.data(), packed.size(),
                                             workspace.data(), workspace.size(), stream));
    }
    [[nodiscard]] Status attend(const quatt_tensors& tensors, std::span<const std::byte> packed,
                                std::span<std::byte> workspace, void* stream = nullptr) const {
        return Status::from_c(quatt_attend(plan_.get(), &tensors, packed.data(), packed.size(),
                                           workspace.data(), workspace.size(), stream));
    }

    friend std::ostream& operator<<(std::ostream& out, const Plan& plan) {
        return out << detail::text_of([&](char* t, std::size_t n, std::size_t* needed) {
                   return quatt_plan_describe(plan.plan_.get(), t, n, needed);
               });
    }

private:
    struct Destroy {
        void operator()(quatt_plan* p) const { quatt_plan_destroy(p); }
    };
    explicit Plan(quatt_plan* raw) : plan_(raw) {}
    std::unique_ptr<quatt_plan, Destroy> plan_;
};

// query, plan, workspace and run in one call, on a host device. Throws quatt::Error.
inline void attention(const Problem& problem, const Device& device = "cpu") {
    if (const quatt_status s = quatt_attention(&problem, &device); s != QUATT_OK) {
        throw Error(Status::from_c(s));
    }
}

}  // namespace quatt

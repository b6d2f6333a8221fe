// The C interface: checks pointers, keeps the last error, lets no exception out.
#include <quatt/quatt.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "core/cpu_count.hpp"
#include "core/device.hpp"
#include "core/float_state.hpp"
#include "core/kernel.hpp"
#include "core/struct_size.hpp"
#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "recipe/recipes.hpp"

struct quatt_plan {
    std::unique_ptr<quatt::core::Plan> plan;
};

namespace {

using namespace quatt;
using core::text;

#define QUATT_TEXT2(x) #x
#define QUATT_TEXT(x) QUATT_TEXT2(x)
constexpr const char* kVersion = QUATT_TEXT(QUATT_VERSION_MAJOR) "." QUATT_TEXT(
    QUATT_VERSION_MINOR) "." QUATT_TEXT(QUATT_VERSION_PATCH);

// A string that cannot fail to hold a message: without memory it points to a constant.
struct LastError {
    std::string text;
    const char* fixed = nullptr;
};
thread_local LastError thread_error;

quatt_status fail(quatt_status code, std::string message) noexcept {
    thread_error.fixed = nullptr;
    thread_error.text = std::move(message);
    return code;
}

// Runs body, which returns a Status; translates what it throws.
template <class Body>
quatt_status guarded(Body&& body) noexcept {
    try {
        Status status = body();
        return status.ok() ? QUATT_OK : fail(status.code(), status.message());
    } catch (const std::bad_alloc&) {
        thread_error.fixed = "out of memory";
        return QUATT_OUT_OF_MEMORY;
    } catch (const std::exception& e) {
        try {
            return fail(QUATT_INTERNAL, text("unexpected: ", e.what()));
        } catch (...) {
            thread_error.fixed = "unexpected error";
            return QUATT_INTERNAL;
        }
    } catch (...) {
        thread_error.fixed = "unexpected error";
        return QUATT_INTERNAL;
    }
}

Status null(const char* name) {
    return {QUATT_INVALID_ARGUMENT, text(name, " is null")};
}

Status copy_text(const std::string& s, char* to, std::size_t capacity, std::size_t* needed) {
    if (to == nullptr && capacity > 0) {
        return null("text");
    }
    if (needed != nullptr) {
        *needed = s.size() + 1;
    }
    if (capacity > 0) {
        const std::size_t n = std::min(capacity - 1, s.size());
        std::memcpy(to, s.data(), n);
        to[n] = 0;
    }
    return {};
}

void copy_name(const std::string& s, char* to, std::size_t capacity) {
    std::fill_n(to, capacity, '\0');
    std::copy_n(s.data(), std::min(capacity - 1, s.size()), to);
}

template <class T>
Status check_output(const T* info) {
    if (info == nullptr) {
        return null("info");
    }
    std::string wrong = core::wrong_output_size("info.struct_size", info->struct_size, sizeof(T));
    return wrong.empty() ? Status() : Status(QUATT_INVALID_ARGUMENT, std::move(wrong));
}

// What an *_init function does: all of the caller's bytes, and no others. `bytes_name`: the
// argument that holds their number.
template <class T>
Status fill_sized(T* to, const char* bytes_name, std::size_t bytes, const T& from) {
    if (std::string wrong = core::wrong_output_size(bytes_name, bytes, sizeof(T)); !wrong.empty()) {
        return {QUATT_INVALID_ARGUMENT, std::move(wrong)};
    }
    *to = from;
    to->struct_size = bytes;
    core::clear_beyond(to, bytes, sizeof(T));
    return {};
}

void fill_info(const core::Backend& b, const core::Kernel& k, const core::Choice& c,
               const quatt_device& asked, bool fallback, quatt_plan_info& info) {
    quatt_device ran = asked;
    ran.backend = b.device;
    core::clear_beyond(&info, info.struct_size, sizeof info);
    copy_name(k.name, info.kernel, sizeof info.kernel);
    copy_name(core::device_name(ran), info.device, sizeof info.device);
    info.workspace_bytes = c.workspace_bytes;
    info.workspace_align = core::kWorkspaceAlign;
    info.key_tile = c.key_tile;
    info.splits = c.splits;
    info.threads = c.threads;
    info.fallback = fallback ? 1 : 0;
    info.packed_bytes = c.packed_bytes;
}

void fill_info(const core::Backend& b, const core::Kernel& k, quatt_kernel_info& info) {
    core::clear_beyond(&info, info.struct_size, sizeof info);
    info.name = k.name;
    info.device = core::backend_name(b.device);
    info.compute = k.compute;
    info.recipes = k.recipes;
    info.head_dims = k.head_dims;
    info.dtypes = k.dtypes;
    info.features = k.features;
}

float load(quatt_dtype dtype, const std::byte* p) {
    std::uint16_t half = 0;
    float wide = 0;
    switch (dtype) {
        case QUATT_F32:
            std::memcpy(&wide, p, sizeof wide);
            return wide;
        case QUATT_E4M3:
            return formats::E4m3::decode(static_cast<std::uint8_t>(*p));
        default:
            std::memcpy(&half, p, sizeof half);
            return dtype == QUATT_BF16 ? formats::Bf16::decode(half) : formats::F16::decode(half);
    }
}

void store(quatt_dtype dtype, std::byte* p, float x) {
    switch (dtype) {
        case QUATT_F32:
            std::memcpy(p, &x, sizeof x);
            break;
        case QUATT_E4M3:
            *p = static_cast<std::byte>(formats::E4m3::encode(x));
            break;
        default: {
            const std::uint16_t half =
                dtype == QUATT_BF16 ? formats::Bf16::encode(x) : formats::F16::encode(x);
            std::memcpy(p, &half, sizeof half);
        }
    }
}

// Memory of the convenience call.
struct AlignedFree {
    void operator()(std::byte* p) const {
        ::operator delete (p, std::align_val_t{core::kWorkspaceAlign});
    }
};

}  // namespace

extern "C" {

const char* quatt_version(void) {
    return kVersion;
}

const char* quatt_status_name(quatt_status status) {
    switch (status) {
        case QUATT_OK:
            return "ok";
        case QUATT_INVALID_ARGUMENT:
            return "invalid argument";
        case QUATT_UNSUPPORTED:
            return "unsupported";
        case QUATT_OUT_OF_MEMORY:
            return "out of memory";
        case QUATT_WORKSPACE_TOO_SMALL:
            return "workspace too small";
        case QUATT_DEVICE_ERROR:
            return "device error";
        case QUATT_INTERNAL:
            return "internal error";
        default:
            return "unknown status";
    }
}

const char* quatt_last_error(void) {
    return thread_error.fixed != nullptr ? thread_error.fixed : thread_error.text.c_str();
}

size_t quatt_copy_last_error(char* text, size_t capacity) {
    const char* const message = quatt_last_error();
    const size_t length = std::strlen(message);
    if (text != nullptr && capacity > 0) {
        const size_t n = std::min(capacity - 1, length);
        std::memcpy(text, message, n);
        text[n] = 0;
    }
    return length + 1;
}

quatt_tensor quatt_tensor_contiguous(void* data, quatt_dtype dtype, int32_t rank,
                                     const int64_t* extent) {
    quatt_tensor t{};
    t.data = data;
    t.dtype = dtype;
    t.rank = rank;
    int64_t stride = 1;
    for (int32_t i = extent != nullptr ? std::min(rank, 4) - 1 : -1; i >= 0; i--) {
        t.extent[i] = extent[i];
        t.stride[i] = stride;
        // An absurd extent is refused by the check of the problem; here it must only not overflow.
        if (__builtin_mul_overflow(stride, std::max<int64_t>(extent[i], 1), &stride)) {
            stride = INT64_MAX;
        }
    }
    return t;
}

size_t quatt_dtype_bytes(quatt_dtype dtype) {
    switch (dtype) {
        case QUATT_F32:
        case QUATT_I32:
            return 4;
        case QUATT_BF16:
        case QUATT_F16:
            return 2;
        case QUATT_E4M3:
            return 1;
        default:
            return 0;
    }
}

const char* quatt_dtype_name(quatt_dtype dtype) {
    switch (dtype) {
        case QUATT_NONE:
            return "none";
        case QUATT_F32:
            return "f32";
        case QUATT_BF16:
            return "bf16";
        case QUATT_F16:
            return "f16";
        case QUATT_E4M3:
            return "e4m3";
        case QUATT_I32:
            return "i32";
        default:
            return "unknown dtype";
    }
}

quatt_status quatt_convert(void* to, quatt_dtype to_dtype, const void* from, quatt_dtype from_dtype,
                           int64_t count) {
    return guarded([&]() -> Status {
        for (const auto& [name, dtype] :
             {std::pair{"to_dtype", to_dtype}, {"from_dtype", from_dtype}}) {
            if (dtype < QUATT_F32 || dtype > QUATT_E4M3) {
                return {QUATT_INVALID_ARGUMENT, text(name, " is ", quatt_dtype_name(dtype),
                                                     "; it must be f32, bf16, f16 or e4m3")};
            }
        }
        if (count < 0) {
            return {QUATT_INVALID_ARGUMENT, text("count is ", count, "; it must be >= 0")};
        }
        if (count > 0 && (to == nullptr || from == nullptr)) {
            return null(to == nullptr ? "to" : "from");
        }
        const core::FloatState own;
        const auto to_size = static_cast<int64_t>(quatt_dtype_bytes(to_dtype)),
                   from_size = static_cast<int64_t>(quatt_dtype_bytes(from_dtype));
        for (int64_t i = 0; i < count; i++) {
            store(to_dtype, static_cast<std::byte*>(to) + i * to_size,
                  load(from_dtype, static_cast<const std::byte*>(from) + i * from_size));
        }
        return {};
    });
}

quatt_status quatt_recipe_init_sized(quatt_recipe* recipe, size_t recipe_bytes, const char* name) {
    return guarded([&]() -> Status {
        if (recipe == nullptr || name == nullptr) {
            return null(recipe == nullptr ? "recipe" : "name");
        }
        const quatt_recipe* found = recipe::find_recipe(name);
        if (found == nullptr) {
            std::string all;
            for (const quatt_recipe& r : recipe::kNamedRecipes) {
                all += (all.empty() ? "" : ", ") + std::string(r.name);
            }
            return {QUATT_INVALID_ARGUMENT,
                    text("recipe is \"", name, "\"; it must be one of ", all)};
        }
        return fill_sized(recipe, "recipe_bytes", recipe_bytes, *found);
    });
}

int32_t quatt_recipe_count(void) {
    return static_cast<int32_t>(recipe::kNamedRecipes.size());
}

const char* quatt_recipe_name(int32_t index) {
    const auto& all = recipe::kNamedRecipes;
    return index >= 0 && static_cast<std::size_t>(index) < all.size()
               ? all[static_cast<std::size_t>(index)].name
               : nullptr;
}

quatt_status quatt_device_init_sized(quatt_device* device, size_t device_bytes, const char* name) {
    return guarded([&]() -> Status {
        if (device == nullptr || name == nullptr) {
            return null(device == nullptr ? "device" : "name");
        }
        const Result<quatt_device> parsed = core::parse_device(name);
        return parsed.ok() ? fill_sized(device, "device_bytes", device_bytes, *parsed)
                           : parsed.status();
    });
}

void quatt_problem_init_sized(quatt_problem* problem, size_t problem_bytes, size_t recipe_bytes,
                              size_t tensors_bytes) {
    if (problem == nullptr || problem_bytes < sizeof problem->struct_size) {
        return;
    }
    problem->struct_size = problem_bytes;
    if (problem_bytes > core::kMaxStructBytes) {
        return;  // no size at all: the first use refuses it
    }
    core::clear_beyond(problem, problem_bytes, sizeof problem->struct_size);
    if (problem_bytes < sizeof *problem) {
        return;
    }
    problem->recipe = recipe::kNamedRecipes[0];
    problem->recipe.struct_size = recipe_bytes;
    problem->tensors.struct_size = tensors_bytes;
    problem->window_left = problem->window_right = -1;
}

quatt_status quatt_query(const quatt_problem* problem, const quatt_device* device,
                         quatt_plan_info* info) {
    return guarded([&]() -> Status {
        if (problem == nullptr || device == nullptr) {
            return null(problem == nullptr ? "problem" : "device");
        }
        if (Status s = check_output(info); !s.ok()) {
            return s;
        }
        const core::Selection s = core::select(*problem, *device);
        if (s.status.ok()) {
            fill_info(*s.backend, *s.kernel, s.choice, *device, s.fallback, *info);
        }
        return s.status;
    });
}

quatt_status quatt_explain(const quatt_problem* problem, const quatt_device* device, char* text,
                           size_t capacity, size_t* needed) {
    return guarded([&]() -> Status {
        if (problem == nullptr || device == nullptr) {
            return null(problem == nullptr ? "problem" : "device");
        }
        return copy_text(core::explain(*problem, *device), text, capacity, needed);
    });
}

quatt_status quatt_problem_describe(const quatt_problem* problem, char* text, size_t capacity,
                                    size_t* needed) {
    return guarded([&]() -> Status {
        if (problem == nullptr) {
            return null("problem");
        }
        if (std::string wrong = core::wrong_input_size("problem", problem, problem->struct_size,
                                                       sizeof *problem, "quatt_problem_init");
            !wrong.empty()) {
            return {QUATT_INVALID_ARGUMENT, std::move(wrong)};
        }
        return copy_text(core::describe(*problem), text, capacity, needed);
    });
}

quatt_status quatt_plan_create(const quatt_problem* problem, const quatt_device* device,
                               quatt_plan** plan) {
    return guarded([&]() -> Status {
        if (problem == nullptr || device == nullptr || plan == nullptr) {
            return null(problem == nullptr ? "problem" : device == nullptr ? "device" : "plan");
        }
        *plan = nullptr;  // also where what follows throws
        Result<std::unique_ptr<core::Plan>> made = core::make_plan(*problem, *device);
        if (made.ok()) {
            *plan = new quatt_plan{std::move(*made)};
        }
        return made.status();
    });
}

void quatt_plan_destroy(quatt_plan* plan) {
    delete plan;
}

quatt_status quatt_plan_get_info(const quatt_plan* plan, quatt_plan_info* info) {
    return guarded([&]() -> Status {
        if (plan == nullptr) {
            return null("plan");
        }
        if (Status s = check_output(info); !s.ok()) {
            return s;
        }
        const core::Plan& p = *plan->plan;
        fill_info(*p.backend, *p.kernel, p.choice, p.device, p.fallback, *info);
        return {};
    });
}

quatt_status quatt_plan_describe(const quatt_plan* plan, char* text, size_t capacity,
                                 size_t* needed) {
    return guarded([&]() -> Status {
        return plan == nullptr ? null("plan")
                               : copy_text(core::describe(*plan->plan), text, capacity, needed);
    });
}

quatt_status quatt_run(const quatt_plan* plan, const quatt_tensors* tensors, void* workspace,
                       size_t workspace_bytes, void* stream) {
    return guarded([&]() -> Status {
        if (plan == nullptr || tensors == nullptr) {
            return null(plan == nullptr ? "plan" : "tensors");
        }
        return core::run(*plan->plan, *tensors, workspace, workspace_bytes, stream);
    });
}

quatt_status quatt_quantize(const quatt_plan* plan, const quatt_tensors* tensors, void* packed,
                            size_t packed_bytes, void* workspace, size_t workspace_bytes,
                            void* stream) {
    return guarded([&]() -> Status {
        if (plan == nullptr || tensors == nullptr) {
            return null(plan == nullptr ? "plan" : "tensors");
        }
        return core::quantize(*plan->plan, *tensors, packed, packed_bytes, workspace,
                              workspace_bytes, stream);
    });
}

quatt_status quatt_attend(const quatt_plan* plan, const quatt_tensors* tensors, const void* packed,
                          size_t packed_bytes, void* workspace, size_t workspace_bytes,
                          void* stream) {
    return guarded([&]() -> Status {
        if (plan == nullptr || tensors == nullptr) {
            return null(plan == nullptr ? "plan" : "tensors");
        }
        return core::attend(*plan->plan, *tensors, packed, packed_bytes, workspace, workspace_bytes,
                            stream);
    });
}

quatt_status quatt_attention(const quatt_problem* problem, const quatt_device* device) {
    return guarded([&]() -> Status {
        if (problem == nullptr || device == nullptr) {
            return null(problem == nullptr ? "problem" : "device");
        }
        const Result<std::unique_ptr<core::Plan>> plan = core::make_plan(*problem, *device);
        if (!plan.ok()) {
            return plan.status();
        }
        if (!(*plan)->backend->host) {
            return {QUATT_UNSUPPORTED, text("device is ", core::device_name(*device),
                                            "; quatt_attention serves host devices, since on a GPU "
                                            "the workspace is the caller's: use a plan")};
        }
        const std::size_t bytes = (*plan)->choice.workspace_bytes;
        const std::unique_ptr<std::byte, AlignedFree> workspace(
            static_cast<std::byte*>(::operator new (std::max<std::size_t>(bytes, 1),
                                                    std::align_val_t{core::kWorkspaceAlign})));
        return core::run(**plan, problem->tensors, workspace.get(), bytes, nullptr);
    });
}

int32_t quatt_kernel_count(void) {
    std::size_t n = 0;
    for (const core::Backend* b : core::backends()) {
        n += b->kernels.size();
    }
    return static_cast<int32_t>(n);
}

quatt_status quatt_kernel_get_info(int32_t index, quatt_kernel_info* info) {
    return guarded([&]() -> Status {
        if (Status s = check_output(info); !s.ok()) {
            return s;
        }
        auto i = static_cast<std::size_t>(index);  // of a negative one: beyond all
        for (const core::Backend* b : core::backends()) {
            if (i < b->kernels.size()) {
                fill_info(*b, b->kernels[i], *info);
                return {};
            }
            i -= b->kernels.size();
        }
        return {QUATT_INVALID_ARGUMENT,
                text("index is ", index, "; it must be 0 to ", quatt_kernel_count() - 1)};
    });
}

const char* quatt_cpu_features(void) {
    return core::cpu_features();
}
int32_t quatt_cpu_count(void) {
    try {
        return core::cpu_count();
    } catch (...) {  // no memory to read the quota with
        return core::affinity_count();
    }
}

}  // extern "C"

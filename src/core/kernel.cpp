#include "core/kernel.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "core/check.hpp"
#include "core/device.hpp"
#include "core/packed_header.hpp"
#include "core/tensor_view.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {
namespace {

// `any_device`: the row may serve devices that are not its own.
Reasons refusal_of(const Backend& b, const Kernel& k, const quatt_problem& p, const quatt_device& d,
                   bool any_device) {
    Reasons reasons;
    if (p.kernel != nullptr && std::strcmp(p.kernel, k.name) != 0) {
        reasons.push_back(text("kernel=", p.kernel, " was asked for"));
    }
    if (!any_device && b.device != d.backend) {
        reasons.push_back(
            text("serves device ", backend_name(b.device), "; ", device_name(d), " was asked for"));
    }
    if (reasons.empty()) {
        k.refuse(k, p, d, reasons);
    }
    return reasons;
}

// Nothing to say of true fp32 sums.
const char* accumulator_text(const Choice& c) {
    return c.accumulator == QUATT_ACCUMULATOR_HOPPER ? ", accumulator hopper" : "";
}

std::string device_text(const quatt_device& d) {
    std::string s = device_name(d);
    if (d.compute_major != 0) {
        s += text(" (compute capability ", d.compute_major, ".", d.compute_minor,
                  d.sm_count > 0 ? text(", ", d.sm_count, " SMs") : "", ")");
    }
    return s;
}

struct Fallback {
    const Backend* backend = nullptr;
    const Kernel* kernel = nullptr;
    quatt_recipe recipe{};
};

// First the same device with the 16-bit recipe of its inputs, then the kernels that serve any
// device with the recipe as it is.
Fallback find_fallback(const quatt_problem& p, const quatt_device& d, Backends table) {
    // Host devices compute every recipe: what they refuse, they refuse for another reason.
    const quatt_recipe* r = d.backend >= QUATT_BACKEND_CUDA
                                ? recipe::find_recipe(quatt_dtype_name(p.tensors.q.dtype))
                                : nullptr;
    quatt_problem wide = p;
    wide.recipe = r != nullptr ? *r : p.recipe;
    for (const bool same_device : {true, false}) {
        const quatt_problem& tried = same_device ? wide : p;
        for (const Backend* b : table) {
            const bool may_serve = same_device ? r != nullptr && b->device == d.backend
                                               : b->fallback && b->device != d.backend;
            for (const Kernel& k : may_serve ? b->kernels : std::span<const Kernel>()) {
                if (refusal_of(*b, k, tried, d, !same_device).empty()) {
                    return {b, &k, tried.recipe};
                }
            }
        }
    }
    return {};
}

const Backend* find_backend(quatt_backend device, Backends table) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const Backend* b) { return b->device == device; });
    return found != table.end() ? *found : nullptr;
}

// The device has no kernel, or none of the name that was asked for.
std::string no_kernel_message(const quatt_problem& p, const quatt_device& d, Backends table) {
    const Backend* b = find_backend(d.backend, table);
    if (b == nullptr || b->kernels.empty()) {
        std::string message = text("no kernel of this build serves ", device_text(d));
        if (b != nullptr && b->build_option != nullptr) {
            message += text("; a build configured with ", b->build_option, " has some");
        }
        return message;
    }
    const char* why =
        p.kernel != nullptr && b->why_absent != nullptr ? b->why_absent(p.kernel) : nullptr;
    return text("kernel \"", p.kernel != nullptr ? p.kernel : "", "\" does not serve ",
                device_text(d), why != nullptr ? ": " : "", why != nullptr ? why : "");
}

// Why the device itself serves nothing: the reasons of its own kernels.
std::string unsupported_message(const quatt_problem& p, const quatt_device& d,
                                const std::vector<Refusal>& refusals, Backends table) {
    Reasons all;
    const std::string device = device_name(d);
    for (const Refusal& r : refusals) {
        const std::string by =
            device == r.kernel->name ? device : text(r.kernel->name, " on ", device);
        for (const std::string& reason : r.reasons) {
            if (r.backend->device == d.backend &&
                (p.kernel == nullptr || std::strcmp(p.kernel, r.kernel->name) == 0)) {
                all.push_back(text(by, ": ", reason));
            }
        }
    }
    if (all.empty()) {
        all.push_back(no_kernel_message(p, d, table));
    }
    return join(all);
}

// Empty where a kernel of the table has the name that is asked for, or where the device is one
// that this build does not serve: its kernels would have names that are not known here.
std::string wrong_name(const quatt_problem& p, const quatt_device& d, Backends table) {
    const Backend* asked = find_backend(d.backend, table);
    if (p.kernel == nullptr || asked == nullptr || asked->kernels.empty()) {
        return {};
    }
    std::vector<std::string> names;  // each once, though it may serve several devices
    for (const Backend* b : table) {
        for (const Kernel& k : b->kernels) {
            if (std::strcmp(k.name, p.kernel) == 0) {
                return {};
            }
            if (std::find(names.begin(), names.end(), k.name) == names.end()) {
                names.emplace_back(k.name);
            }
        }
    }
    std::string all;
    for (const std::string& name : names) {
        all += (all.empty() ? "" : ", ") + name;
    }
    return text("kernel is \"", p.kernel, "\"; it must be one of ", all);
}

}  // namespace

void refuse_reserved_fields(const quatt_problem& p, Reasons& reasons) {
    if (p.tensors.block_table.dtype != QUATT_NONE) {
        reasons.push_back("block_table is given; no kernel of this version reads a paged KV cache");
    }
    if (p.policy_count != 0) {
        reasons.push_back(
            text("policy has ", p.policy_count,
                 " head ranges; no kernel of this version takes a recipe per head range"));
    }
}

Selection select(const quatt_problem& p, const quatt_device& d, Backends table) {
    Selection s;
    Reasons wrong = check_device(d);
    const bool device_is_known = wrong.empty();
    for (std::string& reason : check_problem(p)) {
        wrong.push_back(std::move(reason));
    }
    if (device_is_known && has_known_fields(p)) {
        if (std::string name = wrong_name(p, d, table); !name.empty()) {
            wrong.push_back(std::move(name));
        }
    }
    if (!wrong.empty()) {
        s.status = Status(QUATT_INVALID_ARGUMENT, join(wrong));
        return s;
    }
    for (const Backend* b : table) {
        for (const Kernel& k : b->kernels) {
            Reasons reasons = refusal_of(*b, k, p, d, false);
            if (reasons.empty() && s.kernel == nullptr) {
                s.backend = b;
                s.kernel = &k;
                continue;
            }
            if (reasons.empty()) {
                reasons.push_back(text("comes after ", s.kernel->name));
            }
            s.refusals.push_back({b, &k, std::move(reasons)});
        }
    }
    s.recipe = p.recipe;
    if (s.kernel == nullptr) {
        const std::string why = unsupported_message(p, d, s.refusals, table);
        s.status = Status(QUATT_UNSUPPORTED, why);
        const Fallback fallback = find_fallback(p, d, table);
        if (fallback.kernel != nullptr && p.strict != 0) {
            s.status = Status(QUATT_UNSUPPORTED,
                              text(why, "\nstrict: the fallback to ", fallback.kernel->name,
                                   " with recipe ", fallback.recipe.name, " was not taken"));
        } else if (fallback.kernel != nullptr && p.allow_fallback != 0) {
            s.backend = fallback.backend;
            s.kernel = fallback.kernel;
            s.recipe = fallback.recipe;
            s.fallback = true;
            s.status = Status();
            std::erase_if(s.refusals, [&](const Refusal& r) {
                return r.backend == s.backend && r.kernel == s.kernel;
            });
        }
    }
    if (s.kernel != nullptr) {
        quatt_problem computed = p;
        computed.recipe = s.recipe;
        s.choice = s.kernel->choose(*s.kernel, computed, shape_of(p), d);
    }
    return s;
}

std::string explain(const quatt_problem& p, const quatt_device& d, Backends table) {
    const Selection s = select(p, d, table);
    if (s.status.code() == QUATT_INVALID_ARGUMENT) {
        return text("invalid problem:\n", s.status.message(), "\n");
    }
    std::string all = text(describe(p), "\ndevice ", device_text(d), "\n");
    // Several rows of the table share a name; the device tells them apart.
    const auto title = [](const Backend& b, const Kernel& k) {
        const char* const device = backend_name(b.device);
        const bool own = std::strcmp(k.name, device) == 0;
        return text("  ", k.name, own ? "" : text(" on ", device), ": ");
    };
    for (const Backend* b : table) {
        for (const Kernel& k : b->kernels) {
            all += title(*b, k);
            if (b == s.backend && &k == s.kernel) {
                all +=
                    text("chosen", s.fallback ? text(" as a fallback, recipe ", s.recipe.name) : "",
                         "; key tile ", s.choice.key_tile, accumulator_text(s.choice), ", splits ",
                         s.choice.splits, ", threads ", s.choice.threads, ", workspace ",
                         s.choice.workspace_bytes, " bytes\n");
                continue;
            }
            const auto refusal =
                std::find_if(s.refusals.begin(), s.refusals.end(),
                             [&](const Refusal& r) { return r.backend == b && r.kernel == &k; });
            const char* lead = "no: ";
            for (const std::string& reason : refusal->reasons) {
                all += text(std::exchange(lead, "      "), reason, "\n");
            }
        }
    }
    if (!s.status.ok()) {
        all += text("unsupported:\n", s.status.message(), "\n");
    }
    return all;
}

Result<std::unique_ptr<Plan>> make_plan(const quatt_problem& p, const quatt_device& d,
                                        Backends table) {
    Selection s = select(p, d, table);
    if (!s.status.ok()) {
        return s.status;
    }
    auto plan = std::make_unique<Plan>();
    plan->problem = p;
    plan->problem.struct_size = sizeof plan->problem;  // the copy ends where we know it
    plan->problem.recipe = s.recipe;
    plan->rows.assign(p.rows, p.rows + p.row_count);
    plan->problem.rows = plan->rows.data();
    plan->problem.kernel = nullptr;
    plan->shape = shape_of(p);
    plan->device = d;
    plan->device.struct_size = sizeof plan->device;
    plan->backend = s.backend;
    plan->kernel = s.kernel;
    plan->choice = s.choice;
    plan->fallback = s.fallback;
    if (s.backend->host && p.parallel_for == nullptr) {
        plan->pool = ThreadPool::shared(s.choice.threads);
    }
    if (s.fallback && p.log != nullptr) {
        quatt_problem without = p;
        without.struct_size = sizeof without;
        without.allow_fallback = 0;
        const std::string message = text("quatt: fallback to ", s.kernel->name, " with recipe ",
                                         s.recipe.name, ": ", select(without, d).status.message());
        p.log(p.log_user, message.c_str());
    }
    return plan;
}

std::string describe(const Plan& plan) {
    return text(
        "kernel ", plan.kernel->name,
        plan.fallback ? text(" (fallback; ", device_name(plan.device), " was asked for)") : "",
        ", key tile ", plan.choice.key_tile, accumulator_text(plan.choice), ", splits ",
        plan.choice.splits, ", threads ", plan.choice.threads, ", workspace ",
        plan.choice.workspace_bytes, " bytes\n", describe(plan.problem));
}

namespace {

// A host kernel that stands in for a GPU would crash on the GPU's memory.
Status check_place(const Plan& plan, const quatt_tensors& t) {
    if (!plan.fallback || !plan.backend->host) {
        return {};
    }
    for (const Field& f : kFields) {
        const void* data = TensorView(t.*f.member).data<void>();
        for (const Backend* b : backends()) {
            if (b->owns_memory != nullptr && b->owns_memory(data)) {
                return {QUATT_INVALID_ARGUMENT,
                        text(f.name, ".data is device memory; the fallback kernel ",
                             plan.kernel->name, " needs memory that the host can read")};
            }
        }
    }
    return {};
}

Status check_memory(const Memory& m, std::size_t needed, quatt_status wrong) {
    if (needed > 0 && m.data == nullptr) {
        return {wrong, text(m.name, " is null; the plan needs ", needed, " bytes")};
    }
    if (m.bytes < needed) {
        return {wrong, text(m.name, " has ", m.bytes, " bytes; the plan needs ", needed)};
    }
    if (reinterpret_cast<std::uintptr_t>(m.data) % kWorkspaceAlign != 0) {
        return {wrong, text(m.name, " is at ", m.data, "; it must be aligned to ", kWorkspaceAlign,
                            " bytes")};
    }
    return {};
}

Status check_packed(const Plan& plan, const Memory& packed, const Memory& workspace) {
    const std::size_t needed = plan.choice.packed_bytes;
    if (Status s = check_memory(packed, needed, QUATT_INVALID_ARGUMENT); !s.ok()) {
        return s;
    }
    const auto* const at = static_cast<const std::byte*>(packed.data);
    const auto* const other = static_cast<const std::byte*>(workspace.data);
    if (std::less<>()(at, other + plan.choice.workspace_bytes) &&
        std::less<>()(other, at + needed)) {
        return {QUATT_INVALID_ARGUMENT,
                "packed overlaps workspace in memory; it must not share bytes with it"};
    }
    return {};
}

// All that can be wrong with a call's tensors and memory, but for values in them.
Status check(const Plan& plan, Work work, const quatt_tensors& given, const Memory& workspace,
             const Memory& packed) {
    const Choice& c = plan.choice;
    if (work != Work::kRun && c.packed_bytes == 0) {
        return {QUATT_UNSUPPORTED,
                text("kernel ", plan.kernel->name, " with recipe ", plan.problem.recipe.name,
                     " keeps no packed K and V; recipe fp8 does on cuda, emu and simt, and every "
                     "recipe on cpu")};
    }
    if (const Reasons reasons = check_call(plan.problem, given, work); !reasons.empty()) {
        return {QUATT_INVALID_ARGUMENT, join(reasons)};
    }
    if (Status s = check_memory(workspace, c.workspace_bytes, QUATT_WORKSPACE_TOO_SMALL); !s.ok()) {
        return s;
    }
    if (Status s = work == Work::kRun ? Status() : check_packed(plan, packed, workspace); !s.ok()) {
        return s;
    }
    const quatt_tensors t = touched(given, work);
    for (const Memory& m :
         {Memory{workspace.name, workspace.data, c.workspace_bytes},
          Memory{packed.name, packed.data, work == Work::kRun ? 0 : c.packed_bytes}}) {
        if (const Reasons reasons = check_overlap(t, m); !reasons.empty()) {
            return {QUATT_INVALID_ARGUMENT, join(reasons)};
        }
    }
    return check_place(plan, t);
}

// The halves of a host kernel's call: what has been packed says so.
Status run_half(const Plan& plan, const Request& request) {
    auto& header = *reinterpret_cast<PackedHeader*>(request.packed.data());
    if (request.work == Work::kAttend) {
        const Reasons reasons = check_header(header, plan);
        return reasons.empty() ? plan.kernel->run(plan, request)
                               : Status(QUATT_INVALID_ARGUMENT, join(reasons));
    }
    header = {};  // where this fails, nothing says that there is something
    Status s = plan.kernel->run(plan, request);
    if (s.ok()) {
        write_header(header, plan);
    }
    return s;
}

Status call(const Plan& plan, Work work, const quatt_tensors& given, const Memory& workspace,
            const Memory& packed, void* stream) {
    if (Status s = check(plan, work, given, workspace, packed); !s.ok()) {
        return s;
    }
    const auto bytes = [](const Memory& m, std::size_t count) {
        // NOTE: kAttend only reads packed memory.
        return std::span(static_cast<std::byte*>(const_cast<void*>(m.data)), count);
    };
    const bool is_run = work == Work::kRun;
    const quatt_tensors t = touched(given, work);
    const Request request{.work = work,
                          .tensors = t,
                          .workspace = bytes(workspace, plan.choice.workspace_bytes),
                          .packed = bytes(packed, is_run ? 0 : plan.choice.packed_bytes),
                          .stream = stream};
    return is_run || !plan.backend->host ? plan.kernel->run(plan, request)
                                         : run_half(plan, request);
}

}  // namespace

Status run(const Plan& plan, const quatt_tensors& tensors, void* workspace,
           std::size_t workspace_bytes, void* stream) {
    return call(plan, Work::kRun, tensors, {"workspace", workspace, workspace_bytes},
                {"packed", nullptr, 0}, stream);
}

Status quantize(const Plan& plan, const quatt_tensors& tensors, void* packed,
                std::size_t packed_bytes, void* workspace, std::size_t workspace_bytes,
                void* stream) {
    return call(plan, Work::kQuantize, tensors, {"workspace", workspace, workspace_bytes},
                {"packed", packed, packed_bytes}, stream);
}

Status attend(const Plan& plan, const quatt_tensors& tensors, const void* packed,
              std::size_t packed_bytes, void* workspace, std::size_t workspace_bytes,
              void* stream) {
    return call(plan, Work::kAttend, tensors, {"workspace", workspace, workspace_bytes},
                {"packed", packed, packed_bytes}, stream);
}

}  // namespace quatt::core

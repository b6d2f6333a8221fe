#include "core/portable.hpp"

#include <algorithm>
#include <cstdint>

#include "core/arena.hpp"
#include "core/backends.hpp"
#include "core/cpu_count.hpp"
#include "core/host_call.hpp"
#include "core/packed_header.hpp"
#include "recipe/attend.hpp"
#include "recipe/quantize.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {
namespace {

using recipe::HeadProblem;

// The workspace of a host kernel. The same code counts its bytes (base null) and lays it out.
struct Layout {
    std::size_t scratch_bytes;  // of one worker
    BumpAllocator allocator;
    std::int64_t* blocks;      // [segments + 1]: row blocks before each segment, one query head
    quatt_counters* counters;  // [threads]
    std::byte* scratch;        // [threads, scratch_bytes]

    Layout(const quatt_problem&, const Shape& s, const Choice& c, bool quantised, std::byte* base)
        : scratch_bytes((quantised
                             ? recipe::emulate_scratch_bytes(s.head_dim, s.head_dim_v, c.key_tile)
                             : recipe::reference_scratch_bytes(s.head_dim, s.head_dim_v)) +
                        kWorkspaceAlign - 1),
          allocator(base),
          blocks(allocator.take<std::int64_t>(s.segments + 1)),
          counters(allocator.take<quatt_counters>(c.threads)),
          scratch(nullptr) {
        scratch_bytes = scratch_bytes / kWorkspaceAlign * kWorkspaceAlign;
        scratch = allocator.take<std::byte>(c.threads * static_cast<std::int64_t>(scratch_bytes));
    }

    [[nodiscard]] std::span<std::byte> scratch_of(int worker) const {
        return {scratch + static_cast<std::size_t>(worker) * scratch_bytes, scratch_bytes};
    }
};

void refuse_emulate(const Kernel&, const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    refuse_all_but(p, {.rows = true, .counters = true}, reasons);
}

void refuse_reference(const Kernel&, const quatt_problem& p, const quatt_device&,
                      Reasons& reasons) {
    refuse_all_but(p, {.rows = true, .light_mass = true}, reasons);
}

Choice choose_emulate(const Kernel&, const quatt_problem& p, const Shape& s, const quatt_device&) {
    return choose_portable(p, s, true);
}
Choice choose_reference(const Kernel&, const quatt_problem& p, const Shape& s,
                        const quatt_device&) {
    return choose_portable(p, s, false);
}

constexpr Kernel kEmulate{
    .name = "emulate",
    .recipes = "any",
    .head_dims = kHostHeadDims,
    .dtypes = kHostDtypes,
    .features =
        "dense packed causal window gqa lse sink descale kv_lens splits key_tile zero_tail "
        "rows counters",
    .refuse = refuse_emulate,
    .choose = choose_emulate,
    .run = run_emulated,
};

constexpr Kernel kReference{
    .name = "reference",
    .recipes = "exact (any recipe is ignored)",
    .head_dims = kHostHeadDims,
    .dtypes = kHostDtypes,
    .features = "dense packed causal window gqa lse sink descale kv_lens zero_tail rows light_mass",
    .refuse = refuse_reference,
    .choose = choose_reference,
    .run = run_reference,
};

}  // namespace

void refuse_all_but(const quatt_problem& p, const TestFields& takes, Reasons& reasons) {
    refuse_reserved_fields(p, reasons);
    if (p.row_count != 0 && !takes.rows) {
        reasons.push_back(text("rows has ", p.row_count,
                               " entries; only reference and emulate compute chosen rows"));
    }
    if (p.tensors.light_mass.dtype != QUATT_NONE && !takes.light_mass) {
        reasons.push_back("light_mass is given; only reference computes it");
    }
    if (p.tensors.counters != nullptr && !takes.counters) {
        reasons.push_back("counters is given; only emulate counts");
    }
}

Choice choose_portable(const quatt_problem& p, const Shape& s, bool quantised) {
    Choice c;
    c.key_tile = p.key_tile != 0 ? p.key_tile : 64;
    c.accumulator = quantised ? p.recipe.accumulator : QUATT_ACCUMULATOR_FP32;
    c.splits = p.splits != 0 ? p.splits : 1;
    c.threads = p.threads != 0 ? p.threads : cpu_count();
    Layout layout(p, s, c, quantised, nullptr);
    if (quantised) {
        Operands operands(p.recipe, s, s.heads_q, s.heads_kv, layout.allocator, layout.allocator);
    }
    c.workspace_bytes = layout.allocator.used();
    return c;
}

std::size_t portable_packed_bytes(const quatt_problem& p, const Shape& s) {
    BumpAllocator workspace(nullptr), packed(nullptr);
    const Operands operands(p.recipe, s, s.heads_q, s.heads_kv, workspace, packed);
    return kPackedHeaderBytes + packed.used();
}

Status run_emulated(const Plan& plan, const Request& request) {
    const HostCall call(plan, request);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const quatt_recipe& r = plan.problem.recipe;
    const Shape& s = plan.shape;
    Layout layout(plan.problem, s, plan.choice, true, request.workspace.data());
    BumpAllocator packed(packed_body(request));
    const Operands operands(r, s, s.heads_q, s.heads_kv, layout.allocator,
                            request.work == Work::kRun ? layout.allocator : packed);

    const auto [first, end] = call.operands_of(s.heads_kv);
    const std::int64_t heads = end - first;
    Status quantized =
        call.run(s.segments * heads, [&, from = first](int, std::int64_t i) noexcept {
            call.quantize_head(operands, 0, s.heads_kv, i / heads, from + i % heads);
        });
    if (!quantized.ok()) {
        return quantized;
    }
    if (request.work == Work::kQuantize) {
        call.finish();
        return {};
    }

    std::fill(layout.counters, layout.counters + plan.choice.threads, quatt_counters{});
    const std::int64_t tasks = call.count_blocks(layout.blocks, recipe::kRowBlock) * s.heads_q;
    const recipe::EmulateOptions options{&r, plan.choice.key_tile, plan.choice.splits};
    Status attended = call.run(tasks, [&](int worker, std::int64_t i) noexcept {
        const std::int64_t head = i % s.heads_q, kv = head / (s.heads_q / s.heads_kv);
        call.with_rows<recipe::kRowBlock>(
            layout.blocks, i / s.heads_q, head,
            [&](const HeadProblem& h, std::span<const std::int64_t> rows, std::int64_t b,
                const HostSegment& g) {
                emulate_rows(h, options, operands.q.head(head, b, g.q_begin, g.q_len),
                             operands.k.head(kv, b, g.k_begin, g.k_len),
                             operands.v.head(kv, b, g.k_begin, g.k_len), rows,
                             layout.scratch_of(worker), layout.counters[worker]);
            });
    });
    if (!attended.ok()) {
        return attended;
    }
    if (quatt_counters* const to = request.tensors.counters; to != nullptr) {
        for (std::int32_t i = 0; i < plan.choice.threads; i++) {
            to->warp_tiles += layout.counters[i].warp_tiles;
            to->overflow_warp_tiles += layout.counters[i].overflow_warp_tiles;
            to->refresh_warp_tiles += layout.counters[i].refresh_warp_tiles;
            to->drops += layout.counters[i].drops;
        }
    }
    call.finish();
    return {};
}

Status run_reference(const Plan& plan, const Request& request) {
    const HostCall call(plan, request);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const Layout layout(plan.problem, plan.shape, plan.choice, false, request.workspace.data());
    const std::int64_t heads = plan.shape.heads_q;
    const std::int64_t tasks = call.count_blocks(layout.blocks, recipe::kRowBlock) * heads;
    Status attended = call.run(tasks, [&](int worker, std::int64_t i) noexcept {
        call.with_rows<recipe::kRowBlock>(
            layout.blocks, i / heads, i % heads,
            [&](const HeadProblem& h, std::span<const std::int64_t> rows, std::int64_t,
                const HostSegment&) { reference_rows(h, rows, layout.scratch_of(worker)); });
    });
    if (!attended.ok()) {
        return attended;
    }
    call.finish();
    return {};
}

constinit const Backend kEmulateBackend{
    .device = QUATT_BACKEND_EMULATE,
    .host = true,
    .kernels = {&kEmulate, 1},
};
constinit const Backend kReferenceBackend{
    .device = QUATT_BACKEND_REFERENCE,
    .host = true,
    .kernels = {&kReference, 1},
};

}  // namespace quatt::core

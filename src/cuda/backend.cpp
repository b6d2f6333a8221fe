// GPU kernels in the support table: what they accept, how much workspace they need, and one call as
// plain numbers for the launch code.
#include "cuda/backend.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "core/cpu_count.hpp"
#include "core/packed_header.hpp"
#include "core/portable.hpp"
#include "core/tensor_view.hpp"
#include "recipe/recipes.hpp"

namespace quatt::cuda {
namespace {

using core::Choice;
using core::present;
using core::Reasons;
using core::Shape;
using core::text;

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

Tensor tensor(const quatt_tensor& t) {
    const Element element = t.dtype == QUATT_F32   ? Element::kF32
                            : t.dtype == QUATT_F16 ? Element::kF16
                                                   : Element::kBf16;
    const core::HeadStrides st = core::strides_of_heads(t);
    // NOTE: the stride of a single channel counts as 1, so that it never forbids wide accesses.
    return {t.data,   element, st.batch,
            st.token, st.head, t.extent[t.rank - 1] > 1 ? st.channel : 1};
}

Lengths lengths(const quatt_tensor& t) {
    const core::TensorView v(t);
    return {v.data<const std::int32_t>(), v.stride(0)};
}

// Rows can be read 16 bytes at a time. A null pointer, as in a query, counts as aligned.
bool is_aligned16(const Tensor& x) {
    const auto multiple_of_8 = [](std::int64_t stride) { return stride % 8 == 0; };
    return x.channel == 1 && multiple_of_8(x.batch) && multiple_of_8(x.token) &&
           multiple_of_8(x.head) && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

const schedule::ScheduleRow& schedule_of(const core::Kernel& row) {
    return *static_cast<const schedule::ScheduleRow*>(row.variant);
}

// The same words with commas.
std::string listed(std::string_view words) {
    std::string all;
    for (const char c : words) {
        all += c == ' ' ? ", " : std::string(1, c);
    }
    return all;
}

}  // namespace

void refuse_gpu(const core::Kernel& row, const quatt_problem& p, const quatt_device& d,
                Reasons& reasons) {
    const schedule::ScheduleRow& schedule = schedule_of(row);
    const std::string compute = text(d.compute_major, ".", d.compute_minor);
    if (!is_among(schedule.compute, compute)) {
        reasons.push_back(text("compute capability is ", compute, "; ", schedule.name, " is for ",
                               listed(schedule.compute)));
    }
    core::refuse_all_but(p, {}, reasons);
    if (d.backend == QUATT_BACKEND_SIMT && p.parallel_for != nullptr) {
        reasons.push_back("parallel_for is given; the executor starts threads of its own");
    }
    const quatt_tensors& t = p.tensors;
    const quatt_recipe* named = recipe::find_recipe(p.recipe.name);
    const bool known = named != nullptr && recipe::same_arithmetic(*named, p.recipe) &&
                       is_among(schedule.recipes, named->name);
    if (!known) {
        reasons.push_back(text("recipe is \"", p.recipe.name, "\"; this kernel has ",
                               listed(schedule.recipes), ", as named"));
    }
    const bool same = t.q.dtype == t.k.dtype && t.q.dtype == t.v.dtype &&
                      (t.q.dtype == QUATT_BF16 || t.q.dtype == QUATT_F16);
    if (!same) {
        reasons.push_back(text("q, k, v are ", quatt_dtype_name(t.q.dtype), ", ",
                               quatt_dtype_name(t.k.dtype), ", ", quatt_dtype_name(t.v.dtype),
                               "; they must all be bf16 or all f16"));
    } else if (known && !is_quantized(p.recipe) &&
               std::strcmp(quatt_dtype_name(t.q.dtype), p.recipe.name) != 0) {
        reasons.push_back(text("q, k, v are ", quatt_dtype_name(t.q.dtype), "; recipe ",
                               p.recipe.name, " reads its own dtype here"));
    }
    const Shape s = core::shape_of(p);
    if (s.head_dim > schedule.most_head_dim || s.head_dim_v > schedule.most_head_dim) {
        reasons.push_back(text("head dims are ", s.head_dim, " and ", s.head_dim_v, "; at most ",
                               schedule.most_head_dim, " here"));
    }
    if (p.window_left != -1 || p.window_right != -1) {
        reasons.push_back(text("window is (", p.window_left, ", ", p.window_right,
                               "); this kernel has causal or full attention"));
    }
    if (present(t.sink)) {
        reasons.push_back("sink is given; this kernel has none");
    }
    if (p.splits > 1) {
        reasons.push_back(text("splits is ", p.splits, "; this kernel has one"));
    }
    if (p.key_tile != 0 && p.key_tile != 64) {
        reasons.push_back(text("key_tile is ", p.key_tile, "; this kernel has 64"));
    }
    // At least as many as the largest grid has. A block of a quantiser kernel takes 64 or more
    // tokens of a head, of K and of V in one grid, and of Q and K in another.
    const std::int64_t of_q = (s.total_q() / 64 + s.segments) * s.heads_q,
                       of_k = (s.total_k() / 64 + s.segments) * s.heads_kv,
                       items = std::max(of_q, of_k) + of_k;
    if (s.total_q() > kMaxCount || s.total_k() > kMaxCount || items > kMaxCount) {
        reasons.push_back(text("the problem has ", s.total_q(), " query rows, ", s.total_k(),
                               " keys and ", items, " blocks of work; each may be at most ",
                               kMaxCount));
    }
}

Call make_call(const quatt_problem& p, const Shape& s, const quatt_device& d,
               const quatt_tensors& t) {
    Call c{};
    c.q = tensor(t.q);
    c.k = tensor(t.k);
    c.v = tensor(t.v);
    c.out = tensor(t.out);
    if (present(t.lse)) {
        // NOTE: only its presence counts in a query, where data is null.
        c.lse = t.lse.data != nullptr ? static_cast<float*>(t.lse.data)
                                      : reinterpret_cast<float*>(sizeof(float));
        const core::HeadStrides st = core::strides_of_rows(t.lse);
        c.lse_batch = st.batch;
        c.lse_head = st.head;
        c.lse_token = st.token;
    }
    c.cu_seqlens_q = lengths(t.cu_seqlens_q);
    c.cu_seqlens_k = present(t.cu_seqlens_k) ? lengths(t.cu_seqlens_k) : c.cu_seqlens_q;
    c.kv_lens = lengths(t.kv_lens);
    c.status_word = core::TensorView(t.status_word).data<std::int32_t>();
    c.segments = s.segments;
    c.tokens_q = s.tokens_q;
    c.tokens_k = s.tokens_k;
    c.heads_q = static_cast<std::int32_t>(s.heads_q);
    c.heads_kv = static_cast<std::int32_t>(s.heads_kv);
    c.head_dim = static_cast<std::int32_t>(s.head_dim);
    c.head_dim_v = static_cast<std::int32_t>(s.head_dim_v);
    c.is_packed = s.packed;
    c.is_causal = p.causal != 0;
    c.zero_tail = p.zero_tail != 0;
    c.softmax_scale = p.softmax_scale;
    c.recipe = recipe::find_recipe(p.recipe.name);
    const std::int64_t dim = c.padded_dim();
    c.is_direct = !c.is_quantized() && s.head_dim == dim && s.head_dim_v == dim &&
                  is_aligned16(c.q) && is_aligned16(c.k) && is_aligned16(c.v);
    c.has_block_scaled = d.backend != QUATT_BACKEND_CUDA && d.compute_major == 12;
    c.block_shared_bytes = (d.compute_major == 12 ? 99u : 227u) << 10;
    // NOTE: what emu emulates says nothing of its GPU, but none below 9.0 has code of this build.
    c.overlaps = d.compute_major >= 9;
    c.blocks = d.sm_count;
    return c;
}

Choice choose_gpu(const core::Kernel& row, const quatt_problem& p, const Shape& s,
                  const quatt_device& d) {
    Choice c;
    c.accumulator = schedule_of(row).accumulator;
    c.threads =
        d.backend == QUATT_BACKEND_SIMT ? (p.threads != 0 ? p.threads : core::cpu_count()) : 1;
    const Call call = make_call(p, s, d, p.tensors);
    const Workspace w(call);
    c.workspace_bytes = w.bytes();
    c.packed_bytes = call.is_quantized() ? core::kPackedHeaderBytes + w.packed_bytes : 0;
    c.device = d;
    return c;
}

Status prepare_call(const core::Plan& plan, const core::Request& request, Call& call) {
    // The plan was made for the alignment of its own pointers, or for 16 bytes where it had none.
    const quatt_device& d = plan.choice.device;
    const Call planned = make_call(plan.problem, plan.shape, d, plan.problem.tensors);
    call = make_call(plan.problem, plan.shape, d, request.tensors);
    if (planned.is_direct && !call.is_direct) {
        return {QUATT_INVALID_ARGUMENT,
                text("q, k or v is less aligned than the plan was made for; make the plan with "
                     "these pointers, or align them to 16 bytes")};
    }
    call.schedule = &schedule_of(*plan.kernel);
    call.is_direct = planned.is_direct;
    place(call, request.workspace.data());
    call.work = request.work;
    if (request.work != core::Work::kRun) {
        call.packed = core::packed_body(request);
    }
    return {};
}

}  // namespace quatt::cuda

// quatt explain: which kernel would serve a problem, and why the others would not.
#include <quatt/attention.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "commands.hpp"
#include "output.hpp"

namespace quatt::tools {
namespace {

// A layout without data, which a query does not need.
quatt_tensor layout(quatt_dtype dtype, std::initializer_list<std::int64_t> shape) {
    return Tensor(nullptr, static_cast<DType>(dtype), shape);
}

std::vector<std::int32_t> cumulative(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int32_t> sums = {0};
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) {
        sum += length;
        if (length < 0 || sum > std::numeric_limits<std::int32_t>::max()) {
            throw UsageError("--segments has a length of " + std::to_string(length) +
                             "; allowed are lengths >= 0, 2^31 - 1 tokens in all");
        }
        sums.push_back(static_cast<std::int32_t>(sum));
    }
    return sums;
}

void refuse_flags_of_others(const ExplainOptions& options, const Device& device) {
    if ((options.compute_major || options.sm_count != 0) && device.backend != QUATT_BACKEND_CUDA) {
        throw UsageError(
            std::string(options.compute_major ? "--compute-capability" : "--sm-count") +
            " belongs to --device cuda[:N]; --device is " + in_quotes(options.device));
    }
    if (options.descales && options.dtype != QUATT_E4M3 &&
        options.kv_dtype.value_or(options.dtype) != QUATT_E4M3) {
        throw UsageError("--descales belongs to e4m3 tensors; give --dtype or --kv-dtype e4m3");
    }
}

// Layouts of all tensors. `cu_seqlens`, which must live on, are those of --segments.
void describe_tensors(const ExplainOptions& options, const std::vector<std::int32_t>& cu_seqlens,
                      quatt_tensors& t) {
    const std::int64_t heads = options.heads;
    const std::int64_t heads_kv = options.heads_kv.value_or(heads);
    const std::int64_t dim = options.head_dim;
    const std::int64_t dim_v = options.head_dim_v.value_or(dim);
    const quatt_dtype kv_dtype = options.kv_dtype.value_or(options.dtype);
    std::int64_t segments = options.batch;
    if (options.packed || !options.segments.empty()) {
        std::int64_t q = options.seqlen_q;
        std::int64_t k = options.seqlen_k;
        segments = 1;
        if (!options.segments.empty()) {
            q = k = cu_seqlens.back();
            segments = static_cast<std::int64_t>(options.segments.size());
            t.cu_seqlens_q = layout(QUATT_I32, {segments + 1});
            t.cu_seqlens_q_host = cu_seqlens.data();
        }
        t.q = layout(options.dtype, {q, heads, dim});
        t.k = layout(kv_dtype, {k, heads_kv, dim});
        t.v = layout(kv_dtype, {k, heads_kv, dim_v});
        t.out = layout(options.out_dtype, {q, heads, dim_v});
        if (options.lse) {
            t.lse = layout(QUATT_F32, {heads, q});
        }
    } else {
        const std::int64_t b = options.batch;
        t.q = layout(options.dtype, {b, options.seqlen_q, heads, dim});
        t.k = layout(kv_dtype, {b, options.seqlen_k, heads_kv, dim});
        t.v = layout(kv_dtype, {b, options.seqlen_k, heads_kv, dim_v});
        t.out = layout(options.out_dtype, {b, options.seqlen_q, heads, dim_v});
        if (options.lse) {
            t.lse = layout(QUATT_F32, {b, heads, options.seqlen_q});
        }
    }
    if (options.descales) {
        for (const auto& [operand, descale] :
             {std::pair{&t.q, &t.q_descale}, std::pair{&t.k, &t.k_descale},
              std::pair{&t.v, &t.v_descale}}) {
            if (operand->dtype == QUATT_E4M3) {
                *descale = layout(QUATT_F32, {heads_kv});
            }
        }
    }
    if (options.sink) {
        t.sink = layout(QUATT_F32, {heads});
    }
    if (options.kv_lens) {
        t.kv_lens = layout(QUATT_I32, {segments});
    }
}

}  // namespace

int run_explain(const ExplainOptions& options) {
    Device device(options.device);
    refuse_flags_of_others(options, device);
    const std::vector<std::int32_t> cu_seqlens = cumulative(options.segments);
    Problem p;
    p.recipe = Recipe(options.recipe);
    describe_tensors(options, cu_seqlens, p.tensors);
    p.softmax_scale =
        options.softmax_scale
            ? static_cast<float>(*options.softmax_scale)
            : 1.0F / std::sqrt(static_cast<float>(std::max<std::int64_t>(options.head_dim, 1)));
    p.causal = options.causal ? 1 : 0;
    p.window_left = options.window.left;
    p.window_right = options.window.right;
    p.key_tile = options.key_tile;
    p.splits = options.splits;
    p.threads = options.threads;
    p.allow_fallback = options.allow_fallback ? 1 : 0;
    p.strict = options.strict ? 1 : 0;
    p.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();

    if (options.compute_major) {
        device.compute_major = *options.compute_major;
        device.compute_minor = options.compute_minor;
    }
    device.sm_count = options.sm_count;

    print(explain(p, device));
    return query(p, device).ok() ? kExitOk : kExitFailure;
}

}  // namespace quatt::tools

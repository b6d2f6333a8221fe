// Small problems of every recipe, layout and tail on the GPU, compared with the host emulation:
// what compute-sanitizer watches. Workspace and outputs are fresh memory, so that initcheck sees a
// read of what nobody wrote.
//
//   small [DEVICE ...]     default: cuda emu:sm_120
#include <cuda_runtime.h>
#include <quatt/quatt.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void check(cudaError_t e, const char* what) {
    if (e != cudaSuccess) {
        std::printf("%s: %s\n", what, cudaGetErrorString(e));
        std::exit(1);
    }
}

void check(quatt_status s, const char* what) {
    if (s != QUATT_OK) {
        std::printf("%s: %s\n", what, quatt_last_error());
        std::exit(1);
    }
}

struct Case {
    const char* name;
    bool packed;
    std::vector<std::int32_t> q_bounds, k_bounds;  // packed; k empty: as q
    std::int64_t batch, tokens_q, tokens_k;        // packed: capacities
    std::vector<std::int32_t> kv_lens;
    std::int64_t heads_q, heads_kv, dim, dim_v;
    bool causal, zero_tail, lse, fused;  // fused: q, k, v beside each other in one buffer
    quatt_dtype out;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {
        {"packed, fused",
         true,
         {0, 1, 1, 66, 130},
         {},
         1,
         133,
         133,
         {},
         2,
         2,
         128,
         128,
         false,
         false,
         true,
         true,
         QUATT_BF16},
        {"packed, causal, tail",
         true,
         {0, 5, 70},
         {0, 65, 200},
         1,
         75,
         203,
         {},
         2,
         1,
         64,
         64,
         true,
         true,
         true,
         false,
         QUATT_F32},
        {"dense, kv_lens",
         false,
         {},
         {},
         3,
         20,
         70,
         {0, 1, 65},
         2,
         1,
         128,
         128,
         false,
         false,
         true,
         false,
         QUATT_F16},
        {"dense, causal, padded heads",
         false,
         {},
         {},
         1,
         130,
         67,
         {},
         1,
         1,
         72,
         40,
         true,
         false,
         true,
         false,
         QUATT_BF16},
        {"dense, odd heads",
         false,
         {},
         {},
         1,
         3,
         129,
         {},
         3,
         3,
         33,
         33,
         false,
         false,
         false,
         false,
         QUATT_F32},
    };
    return all;
}

float draw(std::uint64_t& state) {
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state >> 40) * 0x1p-24f;
    }
    return sum;
}

quatt_tensor vector_of(void* data, std::int64_t n) {
    return quatt_tensor_contiguous(data, QUATT_I32, 1, &n);
}

// False, with a message, where the GPU differs from the emulation.
bool run(const char* device_name, const char* recipe, const Case& c) {
    const bool is_f16 = std::strcmp(recipe, "f16") == 0;
    const quatt_dtype in = is_f16 ? QUATT_F16 : QUATT_BF16;
    const std::int64_t rows_q = c.packed ? c.tokens_q : c.batch * c.tokens_q,
                       rows_k = c.packed ? c.tokens_k : c.batch * c.tokens_k;

    // Inputs: contiguous one after the other, or [token, 3, head, channel].
    std::int64_t extent[3][4], stride[3][4], first[3], count = 0;
    for (int i = 0; i < 3; i++) {
        const std::int64_t rows = i == 0 ? c.tokens_q : c.tokens_k,
                           heads = i == 0 ? c.heads_q : c.heads_kv, dim = i == 2 ? c.dim_v : c.dim;
        const std::int64_t token = (c.fused ? 3 : 1) * heads * dim;
        const std::int64_t e[4] = {c.batch, rows, heads, dim}, s[4] = {rows * token, token, dim, 1};
        std::memcpy(extent[i], e, sizeof e);
        std::memcpy(stride[i], s, sizeof s);
        first[i] = c.fused ? i * heads * dim : count;
        count += (i == 0 ? rows_q : rows_k) * heads * dim;
        count = c.fused ? count : (count + 63) / 64 * 64;
    }
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint64_t state = 88172645463325252u;
    for (float& x : values) {
        x = draw(state) + .3f;
    }
    std::vector<std::uint16_t> inputs(values.size());
    check(quatt_convert(inputs.data(), in, values.data(), QUATT_F32, count), "quatt_convert");

    const std::int64_t outs = rows_q * c.heads_q * c.dim_v, lses = rows_q * c.heads_q;
    const std::size_t out_bytes = static_cast<std::size_t>(outs) * quatt_dtype_bytes(c.out);
    std::vector<char> out_gpu_copy(out_bytes), out_host(static_cast<std::size_t>(outs) * 4);
    std::vector<float> lse_gpu_copy(static_cast<std::size_t>(lses)),
        lse_host(static_cast<std::size_t>(lses));

    char *inputs_gpu = nullptr, *out_gpu = nullptr;
    float* lse_gpu = nullptr;
    std::int32_t* ints_gpu = nullptr;
    std::vector<std::int32_t> ints = c.q_bounds;
    ints.insert(ints.end(), c.k_bounds.begin(), c.k_bounds.end());
    ints.insert(ints.end(), c.kv_lens.begin(), c.kv_lens.end());
    check(cudaMalloc(&inputs_gpu, inputs.size() * 2), "cudaMalloc");
    check(cudaMalloc(&out_gpu, out_bytes), "cudaMalloc");
    check(cudaMalloc(&lse_gpu, lse_host.size() * 4), "cudaMalloc");
    check(cudaMalloc(&ints_gpu, (ints.size() + 1) * 4), "cudaMalloc");
    check(cudaMemcpy(inputs_gpu, inputs.data(), inputs.size() * 2, cudaMemcpyHostToDevice),
          "cudaMemcpy");
    check(cudaMemcpy(ints_gpu, ints.data(), ints.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    // Rows past the last segment stay as they are. All of out: initcheck does not see what a bulk
    // copy stores; NaN, so that the comparison does.
    const auto clear_results = [&] {
        check(cudaMemset(out_gpu, c.packed ? 0 : 0xFF, out_bytes), "cudaMemset");
        check(cudaMemset(lse_gpu, c.packed ? 0 : 0xFF, lse_host.size() * 4), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    };

    const auto problem = [&](void* x, void* out, quatt_dtype out_type, float* lse,
                             std::int32_t* lens, std::int32_t* status) {
        quatt_problem p;
        quatt_problem_init(&p);
        check(quatt_recipe_init(&p.recipe, recipe), "quatt_recipe_init");
        quatt_tensor* inputs_of[3] = {&p.tensors.q, &p.tensors.k, &p.tensors.v};
        const int skip = c.packed ? 1 : 0;
        for (int i = 0; i < 3; i++) {
            quatt_tensor& t = *inputs_of[i];
            t.data = static_cast<char*>(x) + 2 * first[i];
            t.dtype = in;
            t.rank = 4 - skip;
            for (int a = 0; a < t.rank; a++) {
                t.extent[a] = extent[i][a + skip];
                t.stride[a] = stride[i][a + skip];
            }
        }
        const std::int64_t out_extent[4] = {c.batch, c.tokens_q, c.heads_q, c.dim_v};
        p.tensors.out = quatt_tensor_contiguous(out, out_type, 4 - skip, out_extent + skip);
        const std::int64_t lse_extent[3] = {c.batch, c.heads_q, c.tokens_q};
        if (c.lse) {
            p.tensors.lse = quatt_tensor_contiguous(lse, QUATT_F32, 3 - skip, lse_extent + skip);
        }
        const auto n_q = static_cast<std::int64_t>(c.q_bounds.size()),
                   n_k = static_cast<std::int64_t>(c.k_bounds.size());
        if (n_q > 0) {
            p.tensors.cu_seqlens_q = vector_of(lens, n_q);
        }
        if (n_k > 0) {
            p.tensors.cu_seqlens_k = vector_of(lens + n_q, n_k);
        }
        if (!c.kv_lens.empty()) {
            p.tensors.kv_lens =
                vector_of(lens + n_q + n_k, static_cast<std::int64_t>(c.kv_lens.size()));
        }
        if (status != nullptr) {
            p.tensors.status_word = vector_of(status, 1);
        }
        p.softmax_scale = 1 / std::sqrt(static_cast<float>(c.dim));
        p.causal = c.causal ? 1 : 0;
        p.zero_tail = c.zero_tail ? 1 : 0;
        return p;
    };

    quatt_device device{};
    check(quatt_device_init(&device, device_name), "quatt_device_init");
    const quatt_problem p =
        problem(inputs_gpu, out_gpu, c.out, lse_gpu, ints_gpu, ints_gpu + ints.size());
    quatt_plan* plan = nullptr;
    check(quatt_plan_create(&p, &device, &plan), "quatt_plan_create");
    quatt_plan_info info{};
    info.struct_size = sizeof info;
    check(quatt_plan_get_info(plan, &info), "quatt_plan_get_info");
    // Of a run, of quantising and of attending: each has memory that nobody wrote.
    void *workspace[3] = {}, *packed = nullptr;
    for (void*& w : workspace) {
        check(cudaMalloc(&w, info.workspace_bytes + 1), "cudaMalloc");
    }
    check(cudaMalloc(&packed, info.packed_bytes + 1), "cudaMalloc");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    std::int32_t status = -1;
    const auto fetch_results = [&] {
        check(cudaStreamSynchronize(stream), "the kernels");
        check(cudaMemcpy(&status, ints_gpu + ints.size(), 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(out_gpu_copy.data(), out_gpu, out_bytes, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
        if (c.lse) {
            check(cudaMemcpy(lse_gpu_copy.data(), lse_gpu, lse_host.size() * 4,
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
        }
    };
    clear_results();
    check(quatt_run(plan, &p.tensors, workspace[0], info.workspace_bytes, stream), "quatt_run");
    fetch_results();
    bool is_same = true;
    if (info.packed_bytes > 0) {
        const auto out_of_run = out_gpu_copy;
        const auto lse_of_run = lse_gpu_copy;
        clear_results();
        check(quatt_quantize(plan, &p.tensors, packed, info.packed_bytes, workspace[1],
                             info.workspace_bytes, stream),
              "quatt_quantize");
        check(quatt_attend(plan, &p.tensors, packed, info.packed_bytes, workspace[2],
                           info.workspace_bytes, stream),
              "quatt_attend");
        fetch_results();
        is_same = std::memcmp(out_of_run.data(), out_gpu_copy.data(), out_bytes) == 0 &&
                  std::memcmp(lse_of_run.data(), lse_gpu_copy.data(), 4 * lse_of_run.size()) == 0;
    }
    quatt_plan_destroy(plan);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    for (void* x :
         {static_cast<void*>(inputs_gpu), static_cast<void*>(out_gpu), static_cast<void*>(lse_gpu),
          static_cast<void*>(ints_gpu), workspace[0], workspace[1], workspace[2], packed}) {
        check(cudaFree(x), "cudaFree");
    }

    quatt_device emulate{};
    check(quatt_device_init(&emulate, "emulate"), "quatt_device_init");
    quatt_problem h =
        problem(inputs.data(), out_host.data(), QUATT_F32, lse_host.data(), ints.data(), nullptr);
    if (std::strcmp(info.kernel, "wgmma") == 0) {
        h.recipe.accumulator = QUATT_ACCUMULATOR_HOPPER;
    }
    check(quatt_attention(&h, &emulate), "quatt_attention");

    std::vector<float> got(static_cast<std::size_t>(outs)), want(static_cast<std::size_t>(outs));
    check(quatt_convert(got.data(), QUATT_F32, out_gpu_copy.data(), c.out, outs), "quatt_convert");
    std::memcpy(want.data(), out_host.data(), out_host.size());
    double error = 0, norm = 0, lse_error = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
        const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
        error += d * d;
        norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    for (std::size_t i = 0; c.lse && i < lse_host.size(); i++) {
        const double d = lse_gpu_copy[i] == lse_host[i]
                             ? 0
                             : std::fabs(static_cast<double>(lse_gpu_copy[i]) -
                                         static_cast<double>(lse_host[i]));
        lse_error = d <= lse_error ? lse_error : d;  // NaN stays
    }
    const double rel = std::sqrt(error / norm);
    // Codes of P may flip where ex2 differs in its last bits; 16-bit outputs are rounded.
    const double allowed = c.out == QUATT_F32 ? 2e-3 : 4e-3;
    const bool good = rel < allowed && lse_error < 1e-4 && status == 0 && is_same;
    std::printf("%s %-10s %-4s %-28s rel-L2 %.1e lse %.1e status %d%s\n", good ? "ok  " : "FAIL",
                device_name, recipe, c.name, rel, lse_error, status,
                is_same ? "" : ", other bits from packed K and V");
    std::fflush(stdout);
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<const char*> devices(argv + 1, argv + argc);
    if (devices.empty()) {
        devices = {"cuda", "emu:sm_120"};
    }
    bool good = true;
    for (const char* device : devices) {
        for (const char* recipe : {"bf16", "f16", "fp8"}) {
            for (const Case& c : cases()) {
                if (std::strncmp(device, "emu", 3) == 0 && std::strcmp(recipe, "fp8") != 0) {
                    continue;  // the 16-bit kernels are the same there
                }
                good &= run(device, recipe, c);
            }
        }
    }
    return good ? 0 : 1;
}

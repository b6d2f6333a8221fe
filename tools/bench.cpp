// quatt bench: times of recipes on a device.
#include "bench.hpp"

#include <quatt/attention.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "bench_device.hpp"
#include "elements.hpp"
#include "files.hpp"
#include "layer.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

constexpr int kVersion = 1;

// Of each item's rows, so many are compared with fp64: the last ones, which see every key.
constexpr std::int64_t kCheckedRows = 4;

std::unique_ptr<BenchDevice> bench_device(const Device& device) {
    const bool gpu = device.backend == QUATT_BACKEND_CUDA || device.backend == QUATT_BACKEND_EMU;
    return gpu ? cuda_bench_device(device.ordinal) : host_bench_device();
}

// What the recipes of one 16-bit type share on a shape: q, k and v on the device, and the compared
// rows of fp64.
struct Input {
    std::vector<std::shared_ptr<std::byte>> qkv;
    std::vector<float> exact;
};

// A recipe on a shape: N(0,1) tensors of its own 16-bit type, dense, and a plan once they are
// there.
class Call {
public:
    // Throws Error where the device refuses it, before memory is taken.
    Call(const BenchShape& shape, const std::string& recipe, const BenchOptions& options,
         const Device& device, BenchDevice& where)
        : device_(device), where_(where), is_f16_(recipe == "f16") {
        const quatt_dtype dtype = is_f16_ ? QUATT_F16 : QUATT_BF16;
        result_.shape = shape;
        result_.heads_kv = options.heads_kv.value_or(shape.heads);
        result_.causal = options.causal;
        result_.recipe = recipe;
        const std::array<std::int64_t, 4> q = {shape.batch, shape.tokens, shape.heads,
                                               shape.head_dim};
        const std::array<std::int64_t, 4> k = {shape.batch, shape.tokens, result_.heads_kv,
                                               shape.head_dim};
        problem_.recipe = Recipe(recipe);
        problem_.tensors.q = quatt_tensor_contiguous(nullptr, dtype, 4, q.data());
        problem_.tensors.k = quatt_tensor_contiguous(nullptr, dtype, 4, k.data());
        problem_.tensors.v = problem_.tensors.k;
        problem_.tensors.out = problem_.tensors.q;
        problem_.softmax_scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
        problem_.causal = options.causal ? 1 : 0;
        problem_.threads = options.threads;
        problem_.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();
        const Result<PlanInfo> info = query(problem_, device);
        if (!info.ok()) {
            throw_status(result_.title() + ", recipe " + recipe, info.status());
        }
        result_.kernel = info->kernel;
        result_.key_tile = info->key_tile;
        result_.threads = info->threads;
    }

    [[nodiscard]] Dtype dtype() const { return is_f16_ ? Dtype::kF16 : Dtype::kBf16; }

    // `input`: of this dtype, empty before the first call that has it.
    void fill(const Sample& sample, Input& input) {
        if (input.qkv.empty()) {
            for (const std::vector<float>* values : {&sample.q, &sample.k, &sample.v}) {
                input.qkv.push_back(uploaded(from_floats(dtype(), *values)));
            }
        }
        problem_.tensors.q.data = input.qkv[0].get();
        problem_.tensors.k.data = input.qkv[1].get();
        problem_.tensors.v.data = input.qkv[2].get();
        const std::vector<std::byte> nan(sample.q.size() * kElementBytes, std::byte{0xFF});
        memory_.push_back(uploaded(nan));
        problem_.tensors.out.data = memory_.back().get();
        Result<Plan> plan = Plan::create(problem_, device_);
        if (!plan.ok()) {
            throw_status(result_.title(), plan.status());
        }
        plan_ = std::make_unique<Plan>(std::move(*plan));
        memory_.push_back(where_.allocate(plan_->workspace_bytes()));
        workspace_ = {memory_.back().get(), plan_->workspace_bytes()};
        result_.runs = where_.runs_at_once(launcher());
    }

    void run(bool counts) {
        const double ms = where_.time(launcher(), result_.runs);
        if (counts) {
            ms_.push_back(ms);
        }
    }

    [[nodiscard]] BenchResult result() const {
        BenchResult result = result_;
        result.ms = spread_of(ms_);
        return result;
    }

    // Compares what it computed with fp64, and forgets it.
    void finish(const Sample& sample, Input& input) {
        if (input.exact.empty()) {
            input.exact = exact_rows(sample);
        }
        result_.rel_l2 = error(input.exact);
        if (!std::isfinite(result_.rel_l2)) {
            throw Error(result_.title() + ", " + result_.recipe + ", " + result_.kernel +
                        ": the output holds values that are not finite");
        }
        plan_.reset();
        memory_.clear();
    }

private:
    static constexpr std::size_t kElementBytes = 2;

    [[nodiscard]] std::shared_ptr<std::byte> uploaded(std::span<const std::byte> bytes) const {
        std::shared_ptr<std::byte> memory = where_.allocate(bytes.size());
        where_.upload(memory.get(), bytes);
        return memory;
    }

    [[nodiscard]] BenchDevice::Run launcher() const {
        return [this](void* stream) {
            if (const Status s = plan_->run(problem_.tensors, workspace_, stream); !s.ok()) {
                throw_status(result_.title(), s);
            }
        };
    }

    // The rows of each item that are compared, its last ones; sizes in elements.
    struct Rows {
        std::int64_t count;
        std::size_t skipped, size;
    };
    [[nodiscard]] Rows compared_rows() const {
        const BenchShape& shape = result_.shape;
        const std::int64_t count = std::min(shape.tokens, kCheckedRows);
        const auto channels = static_cast<std::size_t>(shape.heads * shape.head_dim);
        return {.count = count,
                .skipped = static_cast<std::size_t>(shape.tokens - count) * channels,
                .size = static_cast<std::size_t>(count) * channels};
    }

    [[nodiscard]] std::vector<float> exact_rows(const Sample& sample) const {
        const Rows rows = compared_rows();
        std::vector<std::byte> q = from_floats(dtype(), sample.q);
        std::vector<std::byte> k = from_floats(dtype(), sample.k);
        std::vector<std::byte> v = from_floats(dtype(), sample.v);
        std::vector<float> exact(static_cast<std::size_t>(result_.shape.batch) * rows.size);

        Problem p = problem_;
        p.kernel = nullptr;
        p.tensors.q.data = q.data() + rows.skipped * kElementBytes;
        p.tensors.q.extent[1] = rows.count;
        p.tensors.k.data = k.data();
        p.tensors.v.data = v.data();
        p.tensors.out = quatt_tensor_contiguous(exact.data(), QUATT_F32, 4, p.tensors.q.extent);
        attention(p, "reference");
        return exact;
    }

    [[nodiscard]] double error(const std::vector<float>& exact) const {
        const Rows rows = compared_rows();
        double error2 = 0;
        double exact2 = 0;
        std::vector<std::byte> bytes(rows.size * kElementBytes);
        const auto* out = static_cast<const std::byte*>(problem_.tensors.out.data);
        for (std::size_t b = 0; b < static_cast<std::size_t>(result_.shape.batch); ++b) {
            where_.download(bytes,
                            out + (b * (rows.skipped + rows.size) + rows.skipped) * kElementBytes);
            const std::vector<float> got = to_floats(dtype(), bytes);
            for (std::size_t i = 0; i < rows.size; ++i) {
                const double x = exact[b * rows.size + i];
                error2 += (got[i] - x) * (got[i] - x);
                exact2 += x * x;
            }
        }
        return std::sqrt(error2 / exact2);
    }

    Device device_;
    BenchDevice& where_;
    bool is_f16_;
    Problem problem_;
    BenchResult result_;
    std::vector<std::shared_ptr<std::byte>> memory_;
    std::unique_ptr<Plan> plan_;
    std::span<std::byte> workspace_;
    std::vector<double> ms_;
};

// All recipes on one shape, in another order each round: what ran before changes what comes after.
void measure(std::vector<Call>& calls, const BenchShape& shape, const BenchOptions& options,
             Progress& progress) {
    SampleSpec spec = SampleSpec::defaults(SampleKind::kGaussian);
    spec.segment_tokens = {shape.batch * shape.tokens};
    spec.heads_q = shape.heads;
    spec.heads_kv = options.heads_kv.value_or(shape.heads);
    spec.head_dim = shape.head_dim;
    const Sample sample = make_sample(spec);
    std::map<Dtype, Input> inputs;
    for (Call& call : calls) {
        call.fill(sample, inputs[call.dtype()]);
    }
    std::vector<std::size_t> order(calls.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(1);
    for (std::int64_t round = 0; round < options.warmup + options.rounds; ++round) {
        std::ranges::shuffle(order, random);
        for (const std::size_t i : order) {
            calls[i].run(round >= options.warmup);
            progress.advance();
        }
    }
    for (Call& call : calls) {
        call.finish(sample, inputs[call.dtype()]);
    }
}

std::string bench_text(const std::vector<BenchResult>& results, const BenchOptions& options,
                       const std::string& gpu) {
    Table table({{"shape", Align::kLeft},
                 {"recipe", Align::kLeft},
                 {"kernel", Align::kLeft},
                 {"threads"},
                 {"median ms"},
                 {"q1"},
                 {"q3"},
                 {"lowest"},
                 {"GFLOP/s"},
                 {"rel-L2"}});
    for (const BenchResult& r : results) {
        table.add_row({r.title(), r.recipe, r.kernel, std::to_string(r.threads),
                       format_significant(r.ms.median, 4), format_significant(r.ms.q1, 4),
                       format_significant(r.ms.q3, 4), format_significant(r.ms.lowest, 4),
                       format_significant(r.gflops(), 3), format_significant(r.rel_l2, 2)});
    }
    return "device " + options.device + (gpu.empty() ? "" : " (" + gpu + ")") + ", " +
           std::to_string(options.rounds) +
           (options.rounds == 1 ? " round" : " rounds in shuffled order") + ", N(0,1)\n" +
           table.text();
}

}  // namespace

Spread spread_of(std::vector<double> ms) {
    std::ranges::sort(ms);
    const auto at = [&](double part) {
        const double place = part * static_cast<double>(ms.size() - 1);
        const auto below = static_cast<std::size_t>(place);
        const std::size_t above = std::min(below + 1, ms.size() - 1);
        return ms[below] + (place - static_cast<double>(below)) * (ms[above] - ms[below]);
    };
    return {.median = at(0.5), .q1 = at(0.25), .q3 = at(0.75), .lowest = ms.front()};
}

std::string BenchResult::title() const {
    std::string text = std::to_string(shape.batch) + "x" + std::to_string(shape.tokens) + "x" +
                       std::to_string(shape.heads) + "x" + std::to_string(shape.head_dim);
    if (heads_kv != shape.heads) {
        text += " kv " + std::to_string(heads_kv);
    }
    return text + (causal ? " causal" : "");
}

double BenchResult::flop() const {
    const auto tokens = static_cast<double>(shape.tokens);
    const double pairs = causal ? tokens * (tokens + 1) / 2 : tokens * tokens;
    return 4 * pairs * static_cast<double>(shape.batch * shape.heads * shape.head_dim);
}

std::string bench_json(const std::vector<BenchResult>& results, const BenchOptions& options,
                       const std::string& gpu) {
    nlohmann::ordered_json json = {{"schema", "quatt.bench"},          {"version", kVersion},
                                   {"quatt_version", quatt_version()}, {"device", options.device},
                                   {"warmup", options.warmup},         {"rounds", options.rounds}};
    if (!gpu.empty()) {
        json["machine"] = {{"gpu", gpu}};
    }
    json["results"] = nlohmann::ordered_json::array();
    for (const BenchResult& r : results) {
        json["results"].push_back(
            {{"shape", {r.shape.batch, r.shape.tokens, r.shape.heads, r.shape.head_dim}},
             {"heads_kv", r.heads_kv},
             {"causal", r.causal},
             {"name", r.title() + " " + r.recipe},
             {"recipe", r.recipe},
             {"kernel", r.kernel},
             {"key_tile", r.key_tile},
             {"threads", r.threads},
             {"runs", r.runs},
             {"flop", r.flop()},
             {"median_ms", r.ms.median},
             {"q1_ms", r.ms.q1},
             {"q3_ms", r.ms.q3},
             {"lowest_ms", r.ms.lowest},
             {"gflops", r.gflops()},
             {"rel_l2", r.rel_l2}});
    }
    return json.dump(2) + "\n";
}

int run_bench(const BenchOptions& options) {
    const Device device(options.device);
    const std::unique_ptr<BenchDevice> where = bench_device(device);
    const bool to_file = !options.json.empty() && options.json != "-";
    if (to_file) {
        probe_file(options.json, options.force);
    }
    // What the device refuses is said before anything is measured.
    std::vector<std::vector<Call>> calls;
    std::int64_t steps = 0;
    for (const BenchShape& shape : options.shapes) {
        calls.emplace_back();
        for (const std::string& recipe : options.recipes) {
            calls.back().emplace_back(shape, recipe, options, device, *where);
            steps += options.warmup + options.rounds;
        }
    }
    std::vector<BenchResult> results;
    {
        Progress progress("bench", steps, options.quiet);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            measure(calls[i], options.shapes[i], options, progress);
            for (const Call& call : calls[i]) {
                results.push_back(call.result());
            }
        }
    }
    if (options.json == "-") {
        print(bench_json(results, options, where->gpu()));
        return kExitOk;
    }
    print(bench_text(results, options, where->gpu()));
    if (to_file) {
        print(write_text_file(options.json, bench_json(results, options, where->gpu()),
                              options.force));
    }
    return kExitOk;
}

}  // namespace quatt::tools

// quatt bench: times of recipes on a host device.
#include "bench.hpp"

#include <quatt/attention.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "convert.hpp"
#include "files.hpp"
#include "layer.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

constexpr int kVersion = 1;

Device bench_device(const std::string& name) {
    Device device(name);
    if (device.backend == QUATT_BACKEND_CUDA || device.backend == QUATT_BACKEND_EMU) {
        throw Error("bench runs on host devices: cpu, reference, emulate, simt:ARCH; device " +
                    in_quotes(name) +
                    " needs tensors in its own memory, which the library does not allocate: "
                    "`quatt bench --peers` measures a GPU");
    }
    return device;
}

// A recipe on a shape: N(0,1) tensors of its own 16-bit type, dense, and a plan once they are
// there.
class Call {
public:
    // Throws Error where the device refuses it, before memory is taken.
    Call(const BenchShape& shape, const std::string& recipe, const BenchOptions& options,
         const Device& device)
        : device_(device), dtype_(recipe == "f16" ? QUATT_F16 : QUATT_BF16) {
        result_.shape = shape;
        result_.heads_kv = options.heads_kv.value_or(shape.heads);
        result_.causal = options.causal;
        result_.recipe = recipe;
        const std::array<std::int64_t, 4> q = {shape.batch, shape.tokens, shape.heads,
                                               shape.head_dim};
        const std::array<std::int64_t, 4> k = {shape.batch, shape.tokens, result_.heads_kv,
                                               shape.head_dim};
        problem_.recipe = Recipe(recipe);
        problem_.tensors.q = quatt_tensor_contiguous(nullptr, dtype_, 4, q.data());
        problem_.tensors.k = quatt_tensor_contiguous(nullptr, dtype_, 4, k.data());
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

    void fill(const Sample& sample) {
        const Dtype dtype = dtype_ == QUATT_F16 ? Dtype::kF16 : Dtype::kBf16;
        for (const auto& [tensor, values] :
             {std::pair(&problem_.tensors.q, &sample.q), std::pair(&problem_.tensors.k, &sample.k),
              std::pair(&problem_.tensors.v, &sample.v)}) {
            memory_.push_back(from_floats(dtype, *values));
            tensor->data = memory_.back().data();
        }
        memory_.emplace_back(memory_.front().size());
        problem_.tensors.out.data = memory_.back().data();
        Result<Plan> plan = Plan::create(problem_, device_);
        if (!plan.ok()) {
            throw_status(result_.title(), plan.status());
        }
        plan_ = std::make_unique<Plan>(std::move(*plan));
        const PlanInfo info = plan_->info();
        std::size_t space = info.workspace_bytes + info.workspace_align;
        workspace_memory_.resize(space);
        void* begin = workspace_memory_.data();
        std::align(info.workspace_align, info.workspace_bytes, begin, space);
        workspace_ = {static_cast<std::byte*>(begin), info.workspace_bytes};
    }

    void run(bool counts) {
        const auto start = std::chrono::steady_clock::now();
        if (const Status status = plan_->run(problem_.tensors, workspace_); !status.ok()) {
            throw_status(result_.title(), status);
        }
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - start;
        if (counts) {
            ms_.push_back(taken.count());
        }
    }

    [[nodiscard]] BenchResult result() const {
        BenchResult result = result_;
        result.ms = spread_of(ms_);
        return result;
    }

    void release() {
        plan_.reset();
        memory_.clear();
        workspace_memory_ = {};
    }

private:
    Device device_;
    quatt_dtype dtype_;
    Problem problem_;
    BenchResult result_;
    std::vector<std::vector<std::byte>> memory_;
    std::unique_ptr<Plan> plan_;
    std::vector<std::byte> workspace_memory_;
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
    for (Call& call : calls) {
        call.fill(sample);
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
        call.release();
    }
}

std::string bench_text(const std::vector<BenchResult>& results, const BenchOptions& options) {
    Table table({{"shape", Align::kLeft},
                 {"recipe", Align::kLeft},
                 {"kernel", Align::kLeft},
                 {"threads"},
                 {"median ms"},
                 {"q1"},
                 {"q3"},
                 {"lowest"},
                 {"GFLOP/s"}});
    for (const BenchResult& r : results) {
        table.add_row({r.title(), r.recipe, r.kernel, std::to_string(r.threads),
                       format_significant(r.ms.median, 4), format_significant(r.ms.q1, 4),
                       format_significant(r.ms.q3, 4), format_significant(r.ms.lowest, 4),
                       format_significant(r.gflops(), 3)});
    }
    return "device " + options.device + ", " + std::to_string(options.rounds) +
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
    return {at(0.5), at(0.25), at(0.75), ms.front()};
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

std::string bench_json(const std::vector<BenchResult>& results, const BenchOptions& options) {
    nlohmann::ordered_json json = {{"schema", "quatt.bench"},
                                   {"version", kVersion},
                                   {"quatt_version", quatt_version()},
                                   {"device", options.device},
                                   {"warmup", options.warmup},
                                   {"rounds", options.rounds},
                                   {"results", nlohmann::ordered_json::array()}};
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
             {"flop", r.flop()},
             {"median_ms", r.ms.median},
             {"q1_ms", r.ms.q1},
             {"q3_ms", r.ms.q3},
             {"lowest_ms", r.ms.lowest},
             {"gflops", r.gflops()}});
    }
    return json.dump(2) + "\n";
}

int run_bench(const BenchOptions& options) {
    const Device device = bench_device(options.device);
    const bool to_file = !options.json.empty() && options.json != "-";
    if (to_file) {
        probe_file(options.json);
    }
    // What the device refuses is said before anything is measured.
    std::vector<std::vector<Call>> calls;
    std::int64_t steps = 0;
    for (const BenchShape& shape : options.shapes) {
        calls.emplace_back();
        for (const std::string& recipe : options.recipes) {
            calls.back().emplace_back(shape, recipe, options, device);
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
        print(bench_json(results, options));
        return kExitOk;
    }
    print(bench_text(results, options));
    if (to_file) {
        const std::string json = bench_json(results, options);
        const std::span<const std::byte> piece = std::as_bytes(std::span(json));
        write_file(options.json, std::span(&piece, 1));
    }
    return kExitOk;
}

}  // namespace quatt::tools

// quatt attend: attention over the tensors of a file, into another file.
#include <quatt/attention.hpp>

#include <chrono>
#include <memory>
#include <utility>

#include "commands.hpp"
#include "elements.hpp"
#include "files.hpp"
#include "layer.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

std::string choose_layer(const SafetensorsFile& file, const AttendOptions& options) {
    if (options.layer) {
        return *options.layer;
    }
    const std::vector<std::string> layers = find_layers(file);
    if (layers.empty() || layers.front().empty()) {
        return "";  // where there is none, binding says which tensors there are
    }
    if (layers.size() > 1) {
        constexpr std::size_t kListed = 20;
        std::string names;
        for (std::size_t i = 0; i < std::min(layers.size(), kListed); ++i) {
            names += (i == 0 ? "" : ", ") + printable(layers[i]);
        }
        throw Error(printable(file.path(), 200) + ": has " + std::to_string(layers.size()) +
                    " layers; choose one with --layer: " + names +
                    (layers.size() > kListed ? ", ..." : ""));
    }
    return layers.front();
}

// A result that the library fills: [.., heads, ..] of the whole layer.
struct Output {
    std::vector<std::byte> bytes;
    TensorView view;

    Output(std::string name, quatt_dtype dtype, std::vector<std::int64_t> shape) {
        view.name = std::move(name);
        view.dtype = file_dtype(dtype);
        view.shape = std::move(shape);
        std::int64_t count = static_cast<std::int64_t>(quatt_dtype_bytes(dtype));
        for (const std::int64_t extent : view.shape) {
            if (__builtin_mul_overflow(count, extent, &count)) {
                throw Error("the output " + view.name + " would not fit into 2^63 bytes");
            }
        }
        bytes.resize(static_cast<std::size_t>(count));
        view.bytes = bytes;
    }
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;
    ~Output() = default;

    [[nodiscard]] quatt_tensor tensor(quatt_dtype dtype) {
        return quatt_tensor_contiguous(
            bytes.data(), dtype, static_cast<std::int32_t>(view.shape.size()), view.shape.data());
    }
};

// Metadata of the output: how it was computed.
Metadata metadata_of(const LayerInput& layer, const Semantics& semantics, const PlanInfo& plan,
                     const std::string& recipe) {
    Metadata metadata = {{"quatt_version", quatt_version()},
                         {"recipe", recipe},
                         {"kernel", plan.kernel},
                         {"key_tile", std::to_string(plan.key_tile)},
                         {"splits", std::to_string(plan.splits)},
                         {"softmax_scale", shortest(semantics.softmax_scale.value)},
                         {"causal", semantics.causal.value ? "true" : "false"},
                         {"window", std::to_string(semantics.window.value.left) + "," +
                                        std::to_string(semantics.window.value.right)},
                         {"qkv_layout", std::string(layout_name(layer.layout()))}};
    if (!layer.name().empty()) {
        metadata["layer"] = layer.name();
    }
    return metadata;
}

// All notes, a line each.
std::string notes_text(const SafetensorsFile& file, const LayerInput& layer,
                       const Semantics& semantics, const AttendOptions& options,
                       const Device& device) {
    std::string text;
    for (const auto* notes : {&layer.notes(), &semantics.notes}) {
        for (const std::string& note : *notes) {
            text += "note: " + note + "\n";
        }
    }
    if (const std::string note = incomplete_note(file); !options.layer && !note.empty()) {
        text += "note: " + note + "\n";
    }
    if (device.backend == QUATT_BACKEND_REFERENCE) {
        text += "note: device reference is exact; recipe " + options.recipe + " is ignored\n";
    }
    return text;
}

// Runs the problem in parts of some heads each. Returns the ms that they took.
double run_parts(Problem& problem, const Device& device, const LayerInput& layer,
                 const AttendOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    Tensors whole;
    static_cast<quatt_tensors&>(whole) = problem.tensors;
    const std::int64_t parts = part_count(layer);
    Progress progress(layer_title(layer.name()) + " " + options.recipe, parts, options.quiet);
    for (std::int64_t i = 0; i < parts; ++i) {
        const std::int64_t first = layer.heads_kv() * i / parts;
        const std::int64_t last = layer.heads_kv() * (i + 1) / parts;
        problem.tensors = slice_heads(whole, first, last - first);
        if (const quatt_status s = quatt_attention(&problem, &device); s != QUATT_OK) {
            layer.refused(Status::from_c(s));
        }
        progress.advance();
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
}

}  // namespace

int run_attend(const AttendOptions& options) {
    if (same_file(options.input, options.output)) {
        throw UsageError("the output " + in_quotes(options.output) + " is the input file");
    }
    const Device device = host_device("attend", options.problem.device);
    probe_file(options.output, options.force);
    const SafetensorsFile file(options.input);
    const LayerInput layer(file, choose_layer(file, options), options.problem);
    const Semantics semantics = resolve_semantics(file, layer, options.problem);
    Problem problem = make_problem(layer, semantics, options.problem, options.recipe);
    problem.zero_tail = 1;  // a file has no rows that are "left untouched"

    const quatt_dtype q_dtype = layer.tensors().q.dtype;
    const quatt_dtype out_dtype =
        options.problem.out_dtype.value_or(q_dtype == QUATT_E4M3 ? QUATT_BF16 : q_dtype);
    const std::vector<std::int64_t> out_shape = layer.out_shape();
    std::vector<std::int64_t> lse_shape = {layer.heads(), layer.tokens_q()};
    if (!layer.packed()) {
        lse_shape.insert(lse_shape.begin(), layer.tensors().q.extent[0]);
    }
    // The library judges the layouts before memory is taken for the outputs.
    problem.tensors.out = layer.in_order(quatt_tensor_contiguous(
        nullptr, out_dtype, static_cast<std::int32_t>(out_shape.size()), out_shape.data()));
    const Result<PlanInfo> plan = query(problem, device);
    if (!plan.ok()) {
        layer.refused(plan.status());
    }
    Output out("out", out_dtype, out_shape);
    problem.tensors.out = layer.in_order(out.tensor(out_dtype));
    std::unique_ptr<Output> lse;
    if (options.lse) {
        lse = std::make_unique<Output>("lse", QUATT_F32, lse_shape);
        problem.tensors.lse = lse->tensor(QUATT_F32);
    }
    const double ms = run_parts(problem, device, layer, options);
    file.check_unchanged();

    std::vector<TensorView> tensors = {out.view};
    if (lse) {
        tensors.push_back(lse->view);
    }
    write_safetensors(options.output, tensors, metadata_of(layer, semantics, *plan, options.recipe),
                      options.force);
    if (!options.quiet) {
        print(notes_text(file, layer, semantics, options, device) + layer.where() + ": " +
              layer.shape_text() + "\n" + semantics.text() + "\n" + "recipe " + options.recipe +
              ", kernel " + plan->kernel + ", key tile " + std::to_string(plan->key_tile) + ", " +
              format_significant(ms, 3) + " ms\nwrote " + printable(options.output, 200) +
              ": out " + out.view.describe() + (lse ? ", lse " + lse->view.describe() : "") + "\n");
    }
    return kExitOk;
}

}  // namespace quatt::tools

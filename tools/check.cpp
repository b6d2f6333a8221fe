// quatt check: how far each recipe is from exact attention, on the tensors of a file.
#include "check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "files.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

// The last rows of each segment are where the last, incomplete tiles of a kernel lie.
constexpr std::int64_t kLastRows = 4;

// The rows to compare, ascending: of the packed stream, or of every item of a batch.
std::vector<std::int64_t> choose_rows(const LayerInput& layer, std::int64_t wanted,
                                      std::uint64_t seed) {
    std::vector<std::int64_t> chosen;
    std::vector<std::int64_t> others;
    std::vector<Segment> segments = layer.segments();
    if (!layer.packed() && segments.size() > 1) {
        segments.resize(1);  // all items have the same rows
    }
    std::erase_if(segments, [](const Segment& s) { return s.q_tokens == 0; });
    const auto count = static_cast<std::int64_t>(segments.size());
    const std::int64_t last_rows =
        std::clamp<std::int64_t>(wanted / (2 * std::max<std::int64_t>(count, 1)), 1, kLastRows);
    for (const Segment& s : segments) {
        for (std::int64_t i = 0; i < s.q_tokens; ++i) {
            (i >= s.q_tokens - last_rows ? chosen : others).push_back(s.q_begin + i);
        }
    }
    // The first steps of a shuffle. NOTE: the generator's numbers are fixed by the C++ standard,
    // those of its distributions are not.
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < others.size() && static_cast<std::int64_t>(chosen.size()) < wanted;
         ++i) {
        std::swap(others[i], others[i + random() % (others.size() - i)]);
        chosen.push_back(others[i]);
    }
    std::ranges::sort(chosen);
    return chosen;
}

// Results of some heads: out [.., heads, dim_v], lse and light_mass, contiguous.
// NOTE: the memory is not touched here, so rows that nobody computes take none.
class Results {
public:
    Results(const LayerInput& layer, const Tensors& part, quatt_dtype dtype)
        : items_(layer.packed() ? 1 : part.q.extent[0]),
          tokens_(layer.tokens_q()),
          heads_(part.q.extent[part.q.rank - 2]),
          dim_(layer.head_dim_v()),
          packed_(layer.packed()),
          dtype_(dtype) {
        const std::int64_t rows = items_ * tokens_ * heads_;
        out_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(rows * dim_) *
                                                           quatt_dtype_bytes(dtype));
        lse_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(rows));
        light_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(rows));
    }

    // Whatever a kernel leaves out shows as NaN.
    void poison() {
        const auto rows = static_cast<std::size_t>(items_ * tokens_ * heads_);
        std::fill_n(out_.get(), rows * static_cast<std::size_t>(dim_) * quatt_dtype_bytes(dtype_),
                    std::byte{0xFF});  // a NaN in every type
        std::fill_n(lse_.get(), rows, std::numeric_limits<float>::quiet_NaN());
    }

    void attach(quatt_tensors& t, bool with_light) {
        const std::int64_t dense_out[] = {items_, tokens_, heads_, dim_};
        const std::int64_t dense_row[] = {items_, heads_, tokens_};
        const int skip = packed_ ? 1 : 0;
        t.out = quatt_tensor_contiguous(out_.get(), dtype_, 4 - skip, dense_out + skip);
        t.lse = quatt_tensor_contiguous(lse_.get(), QUATT_F32, 3 - skip, dense_row + skip);
        if (with_light) {
            t.light_mass =
                quatt_tensor_contiguous(light_.get(), QUATT_F32, 3 - skip, dense_row + skip);
        }
    }

    // One row of one head, as floats.
    void load(std::int64_t item, std::int64_t token, std::int64_t head,
              std::vector<float>& to) const {
        const std::int64_t at = ((item * tokens_ + token) * heads_ + head) * dim_;
        to.resize(static_cast<std::size_t>(dim_));
        const auto bytes = static_cast<std::int64_t>(quatt_dtype_bytes(dtype_));
        if (quatt_convert(to.data(), QUATT_F32, out_.get() + at * bytes, dtype_, dim_) !=
            QUATT_OK) {
            throw Error(quatt_last_error());
        }
    }
    [[nodiscard]] double lse(std::int64_t item, std::int64_t token, std::int64_t head) const {
        return lse_[row(item, token, head)];
    }
    [[nodiscard]] double light(std::int64_t item, std::int64_t token, std::int64_t head) const {
        return light_[row(item, token, head)];
    }
    [[nodiscard]] std::int64_t items() const { return items_; }
    [[nodiscard]] std::int64_t heads() const { return heads_; }

private:
    [[nodiscard]] std::size_t row(std::int64_t item, std::int64_t token, std::int64_t head) const {
        return static_cast<std::size_t>((item * heads_ + head) * tokens_ + token);
    }

    std::int64_t items_, tokens_, heads_, dim_;
    bool packed_;
    quatt_dtype dtype_;
    std::unique_ptr<std::byte[]> out_;
    std::unique_ptr<float[]> lse_;
    std::unique_ptr<float[]> light_;
};

// The larger one, or NaN where there is one.
double larger(double a, double b) {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN()
                                          : std::max(a, b);
}

// 0 where both are zero, as without any keys.
double relative(double error2, double reference2) {
    return error2 == 0.0 ? 0.0 : std::sqrt(error2 / reference2);
}

// Appends the error of each row to `row_errors`.
HeadErrors compare(const Results& result, const Results& reference,
                   std::span<const std::int64_t> rows, std::int64_t head,
                   std::vector<double>& row_errors) {
    HeadErrors e;
    double error2 = 0.0;
    double result2 = 0.0;
    double reference2 = 0.0;
    double dot = 0.0;
    std::vector<float> o;
    std::vector<float> r;
    for (std::int64_t item = 0; item < reference.items(); ++item) {
        for (const std::int64_t token : rows) {
            result.load(item, token, head, o);
            reference.load(item, token, head, r);
            double row_error2 = 0.0;
            double row_reference2 = 0.0;
            for (std::size_t c = 0; c < r.size(); ++c) {
                const double x = o[c];
                const double y = r[c];
                row_error2 += (x - y) * (x - y);
                result2 += x * x;
                row_reference2 += y * y;
                dot += x * y;
                e.max_error = larger(e.max_error, std::fabs(x - y));
            }
            error2 += row_error2;
            reference2 += row_reference2;
            row_errors.push_back(relative(row_error2, row_reference2));
            const double a = result.lse(item, token, head);
            const double b = reference.lse(item, token, head);
            e.lse_error = larger(e.lse_error, a == b ? 0.0 : std::fabs(a - b));
        }
    }
    e.rel_l2 = relative(error2, reference2);
    e.cosine = result2 == 0.0 && reference2 == 0.0 ? 1.0
               : result2 == 0.0 || reference2 == 0.0
                   ? 0.0
                   : std::clamp(dot / std::sqrt(result2) / std::sqrt(reference2), -1.0, 1.0);
    return e;
}

bool all_zero(const Results& reference, std::span<const std::int64_t> rows, std::int64_t head) {
    std::vector<float> r;
    for (std::int64_t item = 0; item < reference.items(); ++item) {
        for (const std::int64_t token : rows) {
            reference.load(item, token, head, r);
            if (std::ranges::any_of(r, [](float value) { return value != 0.0F; })) {
                return false;
            }
        }
    }
    return true;
}

LightMass light_mass(const Results& reference, std::span<const std::int64_t> rows,
                     std::int64_t head) {
    LightMass mass;
    for (std::int64_t item = 0; item < reference.items(); ++item) {
        for (const std::int64_t token : rows) {
            const double share = reference.light(item, token, head);
            mass.mean += share;
            mass.max = larger(mass.max, share);
        }
    }
    mass.mean /= static_cast<double>(rows.size()) * static_cast<double>(reference.items());
    return mass;
}

// One layer, ready to be measured: everything that can be refused has been looked at.
class LayerCheck {
public:
    LayerCheck(const SafetensorsFile& file, const std::string& name, const CheckOptions& options)
        : input_(file, name, options.problem.sink),
          semantics_(resolve_semantics(file, input_, options.problem)),
          options_(options),
          device_(host_device("check", options.problem.device)),
          out_dtype_(options.problem.out_dtype.value_or(QUATT_F32)) {
        for (const std::string& recipe : options.recipes) {
            Problem problem = make_problem(input_, semantics_, options.problem, recipe);
            attach_layout(problem.tensors);
            Result<PlanInfo> plan = query(problem, device_);
            if (!plan.ok()) {
                throw_status(input_.where() + ": recipe " + recipe, plan.status());
            }
            plans_.push_back(*plan);
        }
        rows_ = choose_rows(input_, options.rows, options.seed);
        if (rows_.empty() || (!input_.packed() && input_.tensors().q.extent[0] == 0)) {
            throw Error(input_.where() + ": q has no tokens; there is nothing to measure");
        }
        row_errors_.resize(options.recipes.size());
        parts_ = part_count(input_);
    }

    [[nodiscard]] const std::string& name() const { return input_.name(); }
    [[nodiscard]] std::int64_t steps() const {
        return parts_ * (1 + static_cast<std::int64_t>(options_.recipes.size()));
    }

    [[nodiscard]] LayerResult run(Progress& progress) {
        LayerResult result = describe();
        for (std::int64_t i = 0; i < parts_; ++i) {
            const std::int64_t first = input_.heads_kv() * i / parts_;
            const std::int64_t last = input_.heads_kv() * (i + 1) / parts_;
            run_part(slice_heads(input_.tensors(), first, last - first), result, progress);
        }
        for (std::size_t i = 0; i < result.recipes.size(); ++i) {
            result.recipes[i].rows = RowErrors::of(std::exchange(row_errors_[i], {}));
        }
        return result;
    }

private:
    // Outputs as they will be, without memory.
    void attach_layout(quatt_tensors& t) const {
        std::int64_t shape[] = {0, input_.tokens_q(), input_.heads(), input_.head_dim_v()};
        shape[0] = input_.packed() ? 1 : input_.tensors().q.extent[0];
        const int skip = input_.packed() ? 1 : 0;
        t.out = quatt_tensor_contiguous(nullptr, out_dtype_, 4 - skip, shape + skip);
    }

    [[nodiscard]] LayerResult describe() const {
        LayerResult r;
        r.name = input_.name();
        r.shape_text = input_.shape_text();
        r.packed = input_.packed();
        r.batch = r.packed ? 1 : input_.tensors().q.extent[0];
        r.segments = static_cast<std::int64_t>(input_.segments().size());
        r.tokens_q = input_.tokens_q();
        r.tokens_k = input_.tokens_k();
        r.heads_kv = input_.heads_kv();
        r.head_dim = input_.head_dim();
        r.head_dim_v = input_.head_dim_v();
        r.semantics = semantics_;
        r.notes = input_.notes();
        r.notes.insert(r.notes.end(), semantics_.notes.begin(), semantics_.notes.end());
        r.inputs = input_stats(input_);
        r.finite_inputs = input_.finite();
        r.rows_compared = static_cast<std::int64_t>(rows_.size()) * r.batch;
        for (std::size_t i = 0; i < options_.recipes.size(); ++i) {
            r.recipes.push_back(
                {.recipe = options_.recipes[i], .plan = plans_[i], .heads = {}, .rows = {}});
        }
        return r;
    }

    void run_part(const Tensors& part, LayerResult& layer, Progress& progress) {
        progress.set_label(layer_title(layer.name) + " reference");
        Problem exact = make_problem(input_, semantics_, options_.problem, options_.recipes[0]);
        exact.tensors = part;
        exact.key_tile = exact.splits = 0;
        exact.kernel = nullptr;
        exact.rows = rows_.data();
        exact.row_count = static_cast<std::int64_t>(rows_.size());
        Results reference(input_, part, QUATT_F32);
        reference.attach(exact.tensors, true);
        attend(exact, "reference");
        for (std::int64_t head = 0; head < reference.heads(); ++head) {
            layer.light.push_back(light_mass(reference, rows_, head));
            layer.zero_reference = layer.zero_reference && all_zero(reference, rows_, head);
        }
        progress.advance();

        Results result(input_, part, out_dtype_);
        for (std::size_t i = 0; i < layer.recipes.size(); ++i) {
            RecipeResult& recipe = layer.recipes[i];
            progress.set_label(layer_title(layer.name) + " " + recipe.recipe);
            Problem problem = make_problem(input_, semantics_, options_.problem, recipe.recipe);
            problem.tensors = part;
            result.poison();
            result.attach(problem.tensors, false);
            const auto start = std::chrono::steady_clock::now();
            attend(problem, device_);
            recipe.time_ms +=
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                    .count();
            for (std::int64_t head = 0; head < reference.heads(); ++head) {
                recipe.heads.push_back(compare(result, reference, rows_, head, row_errors_[i]));
            }
            progress.advance();
        }
    }

    void attend(const Problem& problem, const Device& device) const {
        if (const quatt_status s = quatt_attention(&problem, &device); s != QUATT_OK) {
            throw_status(input_.where(), Status::from_c(s));
        }
    }

    LayerInput input_;
    Semantics semantics_;
    const CheckOptions& options_;
    Device device_;
    quatt_dtype out_dtype_;
    std::vector<PlanInfo> plans_;
    std::vector<std::int64_t> rows_;
    std::vector<std::vector<double>> row_errors_;  // [recipe][row of any head]
    std::int64_t parts_ = 1;
};

std::vector<std::string> chosen_layers(const SafetensorsFile& file, const CheckOptions& options) {
    if (!options.layers.empty()) {
        // A wrong name is a slip of the command line, and no layer that cannot be checked.
        for (const std::string& layer : options.layers) {
            for (const char* name : {"q", "k", "v"}) {
                (void)file.at(tensor_name(layer, name));
            }
        }
        return options.layers;
    }
    std::vector<std::string> layers = find_layers(file);
    if (layers.empty()) {
        (void)file.at("q");  // throws the names that there are
        (void)file.at("k");
        (void)file.at("v");
    }
    return layers;
}

// The reasons of an error, without the place that stands in front of each line.
FailedLayer failed_layer(const SafetensorsFile& file, const std::string& name, const Error& error) {
    FailedLayer failed{name, {}};
    for (std::string line : split(error.what(), '\n')) {
        for (const std::string& where : {layer_where(file, name), layer_where(file, "")}) {
            if (line.starts_with(where + ": ")) {
                line.erase(0, where.size() + 2);
                break;
            }
        }
        failed.reasons.push_back(line);
    }
    return failed;
}

// What is wrong with all layers stands once.
Error failure_of(const SafetensorsFile& file, const std::vector<FailedLayer>& failed) {
    std::vector<std::string> lines;
    for (const FailedLayer& layer : failed) {
        for (const std::string& reason : layer.reasons) {
            const bool everywhere =
                failed.size() > 1 && std::ranges::all_of(failed, [&](const FailedLayer& other) {
                    return std::ranges::find(other.reasons, reason) != other.reasons.end();
                });
            const std::string line =
                layer_where(file, everywhere ? "" : layer.name) + ": " + reason;
            if (std::ranges::find(lines, line) == lines.end()) {
                lines.push_back(line);
            }
        }
    }
    return Error(join(lines, "\n"));
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

void write_text_file(const std::string& path, const std::string& text) {
    const std::span<const std::byte> piece = std::as_bytes(std::span(text));
    write_file(path, std::span(&piece, 1));
}

// Faults of the command line, and files that could not be written: found before the work.
void check_outputs(const CheckOptions& options) {
    std::vector<std::string> outputs;
    if (!options.json.empty() && options.json != "-") {
        outputs.push_back(options.json);
    }
    if (!options.report.empty()) {
        outputs.push_back(options.report);
    }
    if (options.report == "-") {
        throw UsageError("--report is '-'; allowed is the name of a file");
    }
    for (const std::string& path : outputs) {
        if (same_file(options.input, path)) {
            throw UsageError("the output " + in_quotes(path) + " is the input file");
        }
    }
    if (outputs.size() == 2 &&
        (same_file(outputs[0], outputs[1]) || std::filesystem::weakly_canonical(outputs[0]) ==
                                                  std::filesystem::weakly_canonical(outputs[1]))) {
        throw UsageError("--json and --report are both " + in_quotes(outputs[0]) +
                         "; allowed are two files");
    }
    for (const std::string& path : outputs) {
        probe_file(path);
    }
}

}  // namespace

double RowErrors::edge(std::size_t index) {
    return std::pow(10.0, kFirstDecade + static_cast<double>(index) / kPerDecade);
}

RowErrors RowErrors::of(std::vector<double> errors) {
    RowErrors all;
    if (errors.empty()) {
        return all;
    }
    std::array<double, kEdges> edges{};
    for (std::size_t i = 0; i < kEdges; ++i) {
        edges[i] = edge(i);
    }
    for (const double error : errors) {
        const auto* const above =
            std::isnan(error) ? edges.end() : std::ranges::upper_bound(edges, error);
        ++all.counts[static_cast<std::size_t>(above - edges.begin())];
    }
    std::ranges::sort(errors, [](double a, double b) {
        return std::isnan(a) || std::isnan(b) ? !std::isnan(a) && std::isnan(b) : a < b;
    });
    const auto quantile = [&](double share) {
        const double rank = std::ceil(share * static_cast<double>(errors.size()));
        return errors[static_cast<std::size_t>(rank) - 1];
    };
    all.median = quantile(0.5);
    all.p95 = quantile(0.95);
    all.max = errors.back();
    return all;
}

HeadErrors RecipeResult::over_heads() const {
    HeadErrors all{0.0, 0.0, 0.0, 0.0};
    for (const HeadErrors& head : heads) {
        all.rel_l2 += head.rel_l2 / static_cast<double>(heads.size());
        all.cosine += head.cosine / static_cast<double>(heads.size());
        all.max_error = larger(all.max_error, head.max_error);
        all.lse_error = larger(all.lse_error, head.lse_error);
    }
    return all;
}

std::vector<std::size_t> RecipeResult::worst_heads() const {
    std::vector<std::size_t> order(heads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto rank = [&](std::size_t head) {
        const double error = heads[head].rel_l2;
        return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    };
    std::ranges::stable_sort(order,
                             [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
    return order;
}

int run_check(const CheckOptions& options) {
    if (host_device("check", options.problem.device).backend == QUATT_BACKEND_REFERENCE) {
        throw UsageError(
            "--device is 'reference', which ignores the recipe and is what check compares with; "
            "allowed is one of cpu, emulate, simt:ARCH");
    }
    check_outputs(options);
    const SafetensorsFile file(options.input);
    CheckReport report{.command = options.command,
                       .created = utc_now(),
                       .file = options.input,
                       .device = options.problem.device,
                       .seed = options.seed,
                       .rows_asked = options.rows,
                       .bound = options.bound,
                       .notes = {},
                       .layers = {},
                       .failed = {}};
    if (const std::string note = incomplete_note(file); options.layers.empty() && !note.empty()) {
        report.notes.push_back(note);
    }
    // What one layer is refused for does not stop the others.
    std::vector<LayerCheck> checks;
    std::int64_t steps = 0;
    for (const std::string& layer : chosen_layers(file, options)) {
        try {
            checks.emplace_back(file, layer, options);
            steps += checks.back().steps();
        } catch (const Error& error) {
            report.failed.push_back(failed_layer(file, layer, error));
        }
    }
    {
        Progress progress("check", steps, options.quiet);
        for (LayerCheck& check : checks) {
            try {
                report.layers.push_back(check.run(progress));
            } catch (const Error& error) {
                report.failed.push_back(failed_layer(file, check.name(), error));
            }
        }
    }
    if (report.layers.empty()) {
        throw failure_of(file, report.failed);
    }
    const bool print_json = options.json == "-";
    print(print_json ? check_json(report) : check_text(report));
    if (!options.json.empty() && !print_json) {
        write_text_file(options.json, check_json(report));
    }
    if (!options.report.empty()) {
        const std::string html = check_html(report);
        write_text_file(options.report, html);
        if (!print_json) {
            print("wrote " + printable(options.report, 200) + " (" +
                  format_fixed(static_cast<double>(html.size()) / 1000.0, 0) + " kB)\n");
        }
    }
    if (!report.failed.empty()) {
        throw failure_of(file, report.failed);  // the results are out; the status is a failure
    }
    return kExitOk;
}

}  // namespace quatt::tools

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

// A row of a head.
struct Row {
    std::int64_t item = 0;
    std::int64_t token = 0;
};

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
    void load(const Row& row, std::int64_t head, std::vector<float>& to) const {
        const std::int64_t at = ((row.item * tokens_ + row.token) * heads_ + head) * dim_;
        to.resize(static_cast<std::size_t>(dim_));
        const auto bytes = static_cast<std::int64_t>(quatt_dtype_bytes(dtype_));
        if (quatt_convert(to.data(), QUATT_F32, out_.get() + at * bytes, dtype_, dim_) !=
            QUATT_OK) {
            throw Error(quatt_last_error());
        }
    }
    [[nodiscard]] double lse(const Row& row, std::int64_t head) const {
        return lse_[index_of(row, head)];
    }
    [[nodiscard]] double light(const Row& row, std::int64_t head) const {
        return light_[index_of(row, head)];
    }
    [[nodiscard]] std::int64_t items() const { return items_; }
    [[nodiscard]] std::int64_t heads() const { return heads_; }

private:
    [[nodiscard]] std::size_t index_of(const Row& row, std::int64_t head) const {
        return static_cast<std::size_t>((row.item * heads_ + head) * tokens_ + row.token);
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

// The rows of one head whose exact result is finite: to the others nothing can be close.
std::vector<Row> comparable_rows(const Results& reference, std::span<const std::int64_t> tokens,
                                 std::int64_t head) {
    std::vector<Row> rows;
    std::vector<float> r;
    for (std::int64_t item = 0; item < reference.items(); ++item) {
        for (const std::int64_t token : tokens) {
            const Row row{.item = item, .token = token};
            reference.load(row, head, r);
            if (std::ranges::all_of(r, [](float x) { return std::isfinite(x); })) {
                rows.push_back(row);
            }
        }
    }
    return rows;
}

// Appends the error of each row to `row_errors`. NaN where there are no rows.
HeadErrors compare(const Results& result, const Results& reference, std::span<const Row> rows,
                   std::int64_t head, std::vector<double>& row_errors) {
    if (rows.empty()) {
        constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
        return {.rel_l2 = kNone, .cosine = kNone, .max_error = kNone, .lse_error = kNone};
    }
    HeadErrors e;
    double error2 = 0.0;
    double result2 = 0.0;
    double reference2 = 0.0;
    double dot = 0.0;
    std::vector<float> o;
    std::vector<float> r;
    for (const Row& row : rows) {
        result.load(row, head, o);
        reference.load(row, head, r);
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
        const double a = result.lse(row, head);
        const double b = reference.lse(row, head);
        e.lse_error = larger(e.lse_error, a == b ? 0.0 : std::fabs(a - b));
    }
    e.rel_l2 = relative(error2, reference2);
    e.cosine = result2 == 0.0 && reference2 == 0.0 ? 1.0
               : result2 == 0.0 || reference2 == 0.0
                   ? 0.0
                   : std::clamp(dot / std::sqrt(result2) / std::sqrt(reference2), -1.0, 1.0);
    return e;
}

ExactHead exact_head(const Results& reference, std::span<const Row> rows, std::int64_t head) {
    ExactHead exact;
    exact.rows = static_cast<std::int64_t>(rows.size());
    std::vector<float> r;
    double squares = 0.0;
    double light = 0.0;
    for (const Row& row : rows) {
        reference.load(row, head, r);
        for (const float x : r) {
            squares += double{x} * x;
            exact.largest = std::max(exact.largest, std::fabs(double{x}));
        }
        const double share = reference.light(row, head);
        light += share;
        exact.light.max = larger(exact.light.max, share);
    }
    if (!rows.empty()) {
        const auto count = static_cast<double>(rows.size());
        exact.rms = std::sqrt(squares / (count * static_cast<double>(r.size())));
        exact.light.mean = light / count;
    }
    return exact;
}

// One layer, ready to be measured: everything that can be refused has been looked at.
class LayerCheck {
public:
    LayerCheck(const SafetensorsFile& file, const std::string& name, const CheckOptions& options)
        : input_(file, name, options.problem),
          semantics_(resolve_semantics(file, input_, options.problem)),
          options_(options),
          device_(host_device("check", options.problem.device)),
          out_dtype_(options.problem.out_dtype.value_or(QUATT_F32)) {
        for (const std::string& recipe : options.recipes) {
            Problem problem = make_problem(input_, semantics_, options.problem, recipe);
            attach_layout(problem.tensors);
            Result<PlanInfo> plan = query(problem, device_);
            if (!plan.ok()) {
                input_.refused(plan.status(), "recipe " + recipe);
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
        if (const std::string note = left_out_note(result); !note.empty()) {
            result.notes.push_back(note);
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

    static std::string left_out_note(const LayerResult& layer) {
        std::int64_t rows = 0;
        std::int64_t heads = 0;
        for (const ExactHead& head : layer.exact) {
            rows += layer.rows_compared - head.rows;
            heads += head.rows < layer.rows_compared ? 1 : 0;
        }
        return rows == 0
                   ? ""
                   : "left out of the comparison, because their exact result is not finite: " +
                         std::to_string(rows) + (rows == 1 ? " row in " : " rows in ") +
                         std::to_string(heads) + (heads == 1 ? " head" : " heads");
    }

    [[nodiscard]] LayerResult describe() const {
        LayerResult r;
        r.name = input_.name();
        r.shape_text = input_.shape_text();
        r.packed = input_.packed();
        r.layout = input_.layout();
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
        std::vector<std::vector<Row>> rows;  // [head]
        for (std::int64_t head = 0; head < reference.heads(); ++head) {
            rows.push_back(comparable_rows(reference, rows_, head));
            layer.exact.push_back(exact_head(reference, rows.back(), head));
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
                recipe.heads.push_back(compare(
                    result, reference, rows[static_cast<std::size_t>(head)], head, row_errors_[i]));
            }
            progress.advance();
        }
    }

    void attend(const Problem& problem, const Device& device) const {
        if (const quatt_status s = quatt_attention(&problem, &device); s != QUATT_OK) {
            input_.refused(Status::from_c(s));
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
    FailedLayer failed{.name = name, .reasons = {}};
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

// Where a file is or will be, however it is named.
std::filesystem::path place_of(const std::string& path) {
    return std::filesystem::weakly_canonical(behind_links(path));
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
    for (const std::string& path : outputs) {
        if (same_file(options.input, path)) {
            throw UsageError("the output " + in_quotes(path) + " is the input file");
        }
    }
    if (outputs.size() == 2 &&
        (same_file(outputs[0], outputs[1]) || place_of(outputs[0]) == place_of(outputs[1]))) {
        throw UsageError("--json and --report are both " + in_quotes(outputs[0]) +
                         "; allowed are two files");
    }
    for (const std::string& path : outputs) {
        probe_file(path, options.force);
    }
}

}  // namespace

double RowErrors::edge(std::size_t index) {
    return std::pow(10.0, kFirstDecade + static_cast<double>(index) / kPerDecade);
}

RowErrors RowErrors::of(std::vector<double> errors) {
    RowErrors all;
    if (errors.empty()) {
        all.median = all.p95 = all.max = std::numeric_limits<double>::quiet_NaN();
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
    HeadErrors all{.rel_l2 = 0.0, .cosine = 0.0, .max_error = 0.0, .lse_error = 0.0};
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

ExactHead LayerResult::exact_over_heads() const {
    ExactHead all;
    double squares = 0.0;
    for (const ExactHead& head : exact) {
        all.rows += head.rows;
        squares += head.rms * head.rms * static_cast<double>(head.rows);
        all.largest = std::max(all.largest, head.largest);
        all.light.max = std::max(all.light.max, head.light.max);
        all.light.mean += head.light.mean / static_cast<double>(exact.size());
    }
    all.rms = all.rows > 0 ? std::sqrt(squares / static_cast<double>(all.rows)) : 0.0;
    return all;
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
                       .bound = options.bound.value_or(kUsualBound),
                       .is_usual_bound = !options.bound.has_value(),
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
    file.check_unchanged();
    const bool print_json = options.json == "-";
    print(print_json ? check_json(report) : check_text(report));
    const auto write = [&](const std::string& path, const std::string& text) {
        const std::string wrote = write_text_file(path, text, options.force);
        print(print_json ? "" : wrote);
    };
    if (!options.json.empty() && !print_json) {
        write(options.json, check_json(report));
    }
    if (!options.report.empty()) {
        write(options.report, check_html(report));
    }
    if (!report.failed.empty()) {
        throw failure_of(file, report.failed);  // the results are out; the status is a failure
    }
    return kExitOk;
}

}  // namespace quatt::tools

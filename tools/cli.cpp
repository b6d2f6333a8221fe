// Flags and exit statuses. All of CLI11 is here and in app_text.cpp.
#include "cli.hpp"

#include <quatt/quatt.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "app_text.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

// --- Values of flags --------------------------------------------------------------------------

[[noreturn]] void bad_value(const std::string& flag, const std::string& text,
                            const std::string& allowed) {
    throw UsageError(flag + " is " + in_quotes(text) + "; allowed is " + allowed);
}

std::int64_t integer(const std::string& flag, const std::string& text, std::int64_t min,
                     std::int64_t max) {
    const auto value = parse_number<std::int64_t>(text);
    if (!value || *value < min || *value > max) {
        bad_value(flag, text,
                  "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return *value;
}

double real(const std::string& flag, const std::string& text,
            const std::function<bool(double)>& allowed, const std::string& allowed_text) {
    const auto value = parse_number<double>(text);
    if (!value || !std::isfinite(*value) || !allowed(*value)) {
        bad_value(flag, text, allowed_text);
    }
    return *value;
}

double scale_value(const std::string& flag, const std::string& text) {
    return real(
        flag, text,
        [](double x) {
            return x <= std::numeric_limits<float>::max() && static_cast<float>(x) > 0;
        },
        "a number > 0 that a float can hold");
}

Window window_value(const std::string& flag, const std::string& text) {
    const auto window = parse_window(text);
    if (!window) {
        bad_value(flag, text, std::string(kWindowAllowed));
    }
    return *window;
}

template <class Value, std::size_t N>
Value named(const std::string& flag, const std::string& text,
            const std::array<std::pair<const char*, Value>, N>& table) {
    std::string allowed;
    for (const auto& [name, value] : table) {
        if (text == name) {
            return value;
        }
        allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    bad_value(flag, text, "one of " + allowed);
}

constexpr std::array<std::pair<const char*, quatt_dtype>, 3> kOutTypes = {
    {{"bf16", QUATT_BF16}, {"f16", QUATT_F16}, {"f32", QUATT_F32}}};
constexpr std::array<std::pair<const char*, quatt_dtype>, 4> kInTypes = {
    {{"bf16", QUATT_BF16}, {"f16", QUATT_F16}, {"f32", QUATT_F32}, {"e4m3", QUATT_E4M3}}};
constexpr std::array<std::pair<const char*, Dtype>, 3> kFileTypes = {
    {{"bf16", Dtype::kBf16}, {"f16", Dtype::kF16}, {"f32", Dtype::kF32}}};

std::string recipe_value(const std::string& flag, const std::string& text) {
    std::string allowed;
    for (std::int32_t i = 0; i < quatt_recipe_count(); ++i) {
        if (text == quatt_recipe_name(i)) {
            return text;
        }
        allowed += (i == 0 ? "" : ", ") + std::string(quatt_recipe_name(i));
    }
    bad_value(flag, text, "one of " + allowed);
}

std::string kernel_value(const std::string& flag, const std::string& text) {
    std::vector<std::string> names;  // several kernels may share one
    for (std::int32_t i = 0; i < quatt_kernel_count(); ++i) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        if (quatt_kernel_get_info(i, &info) != QUATT_OK) {
            throw Error(quatt_last_error());
        }
        if (text == info.name) {
            return text;
        }
        if (std::ranges::find(names, info.name) == names.end()) {
            names.emplace_back(info.name);
        }
    }
    bad_value(flag, text, "one of " + join(names));
}

std::string device_value(const std::string& flag, const std::string& text) {
    quatt_device device{};
    const bool is_text = text.find('\0') == std::string::npos;
    if (quatt_device_init(&device, is_text ? text.c_str() : "") != QUATT_OK) {
        const std::string message = quatt_last_error(), before = "it must be ";
        const std::size_t at = message.rfind(before);
        bad_value(flag, text,
                  at == std::string::npos ? message : message.substr(at + before.size()));
    }
    return text;
}

std::int32_t key_tile_value(const std::string& flag, const std::string& text) {
    constexpr std::array<std::pair<const char*, std::int32_t>, 5> kTiles = {
        {{"64", 64}, {"96", 96}, {"128", 128}, {"192", 192}, {"256", 256}}};
    return named(flag, text, kTiles);
}

std::vector<std::string> list_value(const std::string& flag, const std::string& text) {
    std::vector<std::string> parts = split(text);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].empty() ||
            std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), parts[i]) !=
                parts.begin() + static_cast<std::ptrdiff_t>(i)) {
            bad_value(flag, text, "a list A,B,C without empty or repeated entries");
        }
    }
    return parts;
}

std::vector<std::int64_t> lengths_value(const std::string& flag, const std::string& text) {
    std::vector<std::int64_t> lengths;
    for (const std::string& part : split(text)) {
        const auto length = parse_number<std::int64_t>(part);
        if (!length || *length < 0 || *length > std::numeric_limits<std::int32_t>::max()) {
            bad_value(flag, text, "a list of lengths A,B,C, each from 0 to 2^31 - 1");
        }
        lengths.push_back(*length);
    }
    return lengths;
}

BenchShape shape_value(const std::string& flag, const std::string& text) {
    std::vector<std::int64_t> extents;
    std::int64_t elements = 1;
    for (const std::string& part : split(text, 'x')) {
        const auto extent = parse_number<std::int64_t>(part);
        if (!extent || *extent < 1 || __builtin_mul_overflow(elements, *extent, &elements) ||
            elements > kMaxTokens) {
            extents.clear();
            break;
        }
        extents.push_back(*extent);
    }
    if (extents.size() != 4) {
        bad_value(flag, text, "BxSxHxD, as 1x4096x8x128: batch, tokens, heads, head size");
    }
    return {extents[0], extents[1], extents[2], extents[3]};
}

// --- Flags ------------------------------------------------------------------------------------

// Adds options that read their own values, so that every message says what is allowed.
class Flags {
public:
    explicit Flags(CLI::App& app) : app_(app) {}

    void group(std::string name) { group_ = std::move(name); }

    // `set` gets the flag's name, for messages, and the text.
    template <class Set>
    CLI::Option* value(const std::string& names, const std::string& type, const std::string& text,
                       Set set) {
        const std::string flag = names.substr(names.find("--"));
        return app_
            .add_option_function<std::string>(
                names, [set, flag](const std::string& given) { set(flag, given); }, text)
            ->type_name(type)
            ->group(group_);
    }
    // May be given several times.
    template <class Item, class Read>
    CLI::Option* list(const std::string& name, const std::string& type, const std::string& text,
                      std::vector<Item>& to, Read read) {
        return app_
            .add_option_function<std::vector<std::string>>(
                name,
                [&to, read, name](const std::vector<std::string>& given) {
                    to.clear();
                    for (const std::string& one : given) {
                        to.push_back(read(name, one));
                    }
                },
                text)
            ->allow_extra_args(false)
            ->type_name(type)
            ->group(group_);
    }
    void number(const std::string& name, std::int64_t min, std::int64_t max,
                const std::string& text, std::int64_t& to) {
        value(name, "N", text, [&to, min, max](const std::string& flag, const std::string& given) {
            to = integer(flag, given, min, max);
        });
    }
    void number(const std::string& name, std::int64_t min, std::int64_t max,
                const std::string& text, std::int32_t& to) {
        value(name, "N", text, [&to, min, max](const std::string& flag, const std::string& given) {
            to = static_cast<std::int32_t>(integer(flag, given, min, max));
        });
    }
    void number(const std::string& name, std::int64_t min, std::int64_t max,
                const std::string& text, std::optional<std::int64_t>& to) {
        value(name, "N", text, [&to, min, max](const std::string& flag, const std::string& given) {
            to = integer(flag, given, min, max);
        });
    }
    void file(const std::string& names, const std::string& text, std::string& to) {
        value(names, "FILE", text, [&to](const std::string& flag, const std::string& given) {
            if (given.empty()) {
                bad_value(flag, given, "the name of a file");
            }
            to = given;
        });
    }
    CLI::Option* flag(const std::string& names, const std::string& text, bool& to) {
        return app_.add_flag(names, to, text)->group(group_)->disable_flag_override();
    }

private:
    CLI::App& app_;
    std::string group_ = "Options";
};

// Every command's own flags come before the general ones.
void add_help_flag(CLI::App& app) {
    app.set_help_flag("-h,--help", "show this help")->group("General");
}

void add_quiet(Flags& flags, bool& quiet, const std::string& text) {
    flags.group("General");
    flags.flag("--quiet", text, quiet);
}

// Of attend and check.
void add_problem(CLI::App& app, Flags& flags, ProblemOptions& p, const std::string& out_dtype,
                 const std::string& devices) {
    flags.group("Problem");
    app.add_flag_callback(
           "--causal", [&p] { p.causal = true; },
           "query i sees keys up to i + Sk - Sq (default: metadata causal, else no)")
        ->group("Problem")
        ->disable_flag_override();
    app.add_flag_callback(
           "--no-causal", [&p] { p.causal = false; }, "every query sees all keys")
        ->group("Problem")
        ->disable_flag_override()
        ->excludes("--causal");
    flags.value("--window", "L,R",
                "keys from L before to R behind the diagonal, -1 = open (default: metadata window, "
                "else open)",
                [&p](const std::string& flag, const std::string& text) {
                    p.window = window_value(flag, text);
                });
    flags.value("--softmax-scale", "X",
                "factor of the scores (default: metadata softmax_scale, else 1/sqrt(head size))",
                [&p](const std::string& flag, const std::string& text) {
                    p.softmax_scale = scale_value(flag, text);
                });
    flags.value("--sink", "NAME", "tensor [heads] of sink logits, one a query head",
                [&p](const std::string&, const std::string& text) { p.sink = text; });
    flags.value("--out-dtype", "TYPE", out_dtype,
                [&p](const std::string& flag, const std::string& text) {
                    p.out_dtype = named(flag, text, kOutTypes);
                });
    flags.group("How");
    flags.value("--device", "D", devices, [&p](const std::string& flag, const std::string& text) {
        p.device = device_value(flag, text);
    });
    flags.value("--kernel", "K", "this entry of the support table only (see quatt info)",
                [&p](const std::string& flag, const std::string& text) {
                    p.kernel = kernel_value(flag, text);
                });
    flags.value("--key-tile", "N", "64, 96, 128, 192 or 256 keys (default: the kernel's own)",
                [&p](const std::string& flag, const std::string& text) {
                    p.key_tile = key_tile_value(flag, text);
                });
    flags.number("--splits", 1, std::numeric_limits<std::int32_t>::max(),
                 "parts of the key range (default: chosen by its length)", p.splits);
    flags.number("--threads", 1, 4096, "threads (default: all cores)", p.threads);
}

// --- Commands ---------------------------------------------------------------------------------

using Action = std::function<int()>;

CLI::App& add_command(CLI::App& program, const std::string& name, const std::string& description,
                      const std::string& footer) {
    CLI::App& app = *program.add_subcommand(name, description);
    app.footer(footer);
    add_help_flag(app);
    return app;
}

void add_info(CLI::App& program, Action& action) {
    CLI::App& app =
        add_command(program, "info", "show the library, this machine and the kernels there are",
                    "Example:\n  quatt info");
    app.callback([&action] { action = run_info; });
}

void add_explain(CLI::App& program, ExplainOptions& o, Action& action) {
    CLI::App& app = add_command(
        program, "explain", "say which kernel would serve a problem, and why the others would not",
        "Exit status: 0 where a kernel was chosen, 1 where the problem is refused.\n"
        "\n"
        "Examples:\n"
        "  quatt explain --recipe nvfp4 --tokens 30272 --heads 56 --head-dim 128\n"
        "  quatt explain --segments 122,109,230 --heads 32 --heads-kv 8 --causal --lse\n"
        "  quatt explain --device cuda --compute-capability 9.0 --allow-fallback");
    Flags flags(app);
    flags.group("Problem");
    flags.value("--recipe", "R", "see quatt info (default: fp8)",
                [&o](const std::string& flag, const std::string& text) {
                    o.recipe = recipe_value(flag, text);
                });
    flags.number("--batch", 0, kMaxTokens, "items of a dense batch (default: 1)", o.batch);
    CLI::Option* tokens =
        flags.value("--tokens", "N", "query and key tokens of an item (default: 4096)",
                    [&o](const std::string& flag, const std::string& text) {
                        o.seqlen_q = o.seqlen_k = integer(flag, text, 0, kMaxTokens);
                    });
    flags.number("--seqlen-q", 0, kMaxTokens, "query tokens, where they differ", o.seqlen_q);
    flags.number("--seqlen-k", 0, kMaxTokens, "key tokens, where they differ", o.seqlen_k);
    flags
        .flag("--packed", "one packed stream [tokens, heads, head size] instead of a batch",
              o.packed)
        ->excludes("--batch");
    flags
        .value("--segments", "A,B,C", "packed, with segments of these lengths",
               [&o](const std::string& flag, const std::string& text) {
                   o.segments = lengths_value(flag, text);
               })
        ->excludes(tokens)
        ->excludes("--seqlen-q")
        ->excludes("--seqlen-k")
        ->excludes("--batch");
    flags.number("--heads", 0, kMaxTokens, "query heads (default: 8)", o.heads);
    flags.number("--heads-kv", 0, kMaxTokens, "KV heads (default: as many)", o.heads_kv);
    flags.number("--head-dim", 0, kMaxTokens, "head size of q and k (default: 128)", o.head_dim);
    flags.number("--head-dim-v", 0, kMaxTokens, "head size of v (default: the same)", o.head_dim_v);
    flags.value("--dtype", "TYPE", "of q, k and v: bf16 (default), f16, f32 or e4m3",
                [&o](const std::string& flag, const std::string& text) {
                    o.dtype = named(flag, text, kInTypes);
                });
    flags.value("--kv-dtype", "TYPE", "of k and v, where it differs",
                [&o](const std::string& flag, const std::string& text) {
                    o.kv_dtype = named(flag, text, kInTypes);
                });
    flags.value("--out-dtype", "TYPE", "bf16 (default), f16 or f32",
                [&o](const std::string& flag, const std::string& text) {
                    o.out_dtype = named(flag, text, kOutTypes);
                });
    flags.flag("--descales", "e4m3 tensors have one descale a KV head", o.descales);
    flags.flag("--causal", "query i sees keys up to i + Sk - Sq", o.causal);
    flags.value("--window", "L,R", "keys from L before to R behind the diagonal, -1 = open",
                [&o](const std::string& flag, const std::string& text) {
                    o.window = window_value(flag, text);
                });
    flags.value("--softmax-scale", "X", "factor of the scores (default: 1/sqrt(head size))",
                [&o](const std::string& flag, const std::string& text) {
                    o.softmax_scale = scale_value(flag, text);
                });
    flags.flag("--lse", "with the log-sum-exp of each row", o.lse);
    flags.flag("--sink", "with a sink logit for each query head", o.sink);
    flags.flag("--kv-lens", "with the number of valid keys of each item", o.kv_lens);

    flags.group("How");
    flags.value("--device", "D",
                "cpu (default), reference, emulate, cuda[:N], simt:ARCH or emu:ARCH[:N]",
                [&o](const std::string& flag, const std::string& text) {
                    o.device = device_value(flag, text);
                });
    flags.value("--compute-capability", "X.Y", "of the GPU, which need not be here",
                [&o](const std::string& flag, const std::string& text) {
                    const std::vector<std::string> parts = split(text, '.');
                    const auto major = parse_number<std::int32_t>(parts[0]);
                    const auto minor = parts.size() == 2 ? parse_number<std::int32_t>(parts[1])
                                                         : std::optional<std::int32_t>();
                    if (!major || !minor || *major < 1 || *minor < 0 || *minor > 9) {
                        bad_value(flag, text, "a number such as 9.0 or 12.0");
                    }
                    o.compute_major = *major;
                    o.compute_minor = *minor;
                });
    flags.number("--sm-count", 1, 100000, "multiprocessors of the GPU", o.sm_count);
    flags.value("--kernel", "K", "this entry of the support table only (see quatt info)",
                [&o](const std::string& flag, const std::string& text) {
                    o.kernel = kernel_value(flag, text);
                });
    flags.value("--key-tile", "N", "64, 96, 128, 192 or 256 keys (default: the kernel's own)",
                [&o](const std::string& flag, const std::string& text) {
                    o.key_tile = key_tile_value(flag, text);
                });
    flags.number("--splits", 1, std::numeric_limits<std::int32_t>::max(),
                 "parts of the key range (default: chosen by its length)", o.splits);
    flags.number("--threads", 1, 4096, "threads of a host device (default: all cores)", o.threads);
    flags.flag("--allow-fallback", "another device may serve", o.allow_fallback);
    flags.flag("--strict", "a fallback is an error, also where it is allowed", o.strict);
    app.callback([&action, &o] { action = [&o] { return run_explain(o); }; });
}

constexpr const char* kInputText =
    "safetensors file with q, k, v, or PREFIX.q, PREFIX.k, PREFIX.v: [tokens, heads, head size] "
    "with cu_seqlens (or cu_seqlens_q and cu_seqlens_k; I32 or I64) or one segment, or [batch, "
    "tokens, heads, head size]; kv_lens if keys end early. F32, F16, BF16, or F8_E4M3 with "
    "q_descale, k_descale, v_descale";

void add_attend(CLI::App& program, AttendOptions& o, Action& action) {
    CLI::App& app = add_command(
        program, "attend", "compute attention over the tensors of a file",
        "The output holds `out`, shaped as q with the head size of v, and with --lse `lse`, "
        "[heads, "
        "tokens]\nor [batch, heads, tokens]. Rows that belong to no segment are 0.\n"
        "\n"
        "Examples:\n"
        "  quatt attend capture.safetensors -o out.safetensors --recipe fp8 --layer layers.0\n"
        "  quatt attend qkv.safetensors -o out.safetensors --recipe bf16 --causal --lse\n"
        "  quatt attend qkv.safetensors -o exact.safetensors --recipe bf16 --device reference "
        "--out-dtype f32");
    Flags flags(app);
    app.add_option("IN", o.input, kInputText)->required()->type_name("IN.safetensors");
    flags.file("-o,--output", "where the result goes (required); replaced in one step", o.output);
    app.get_option("--output")->required();
    flags
        .value("--recipe", "R", "see quatt info (required)",
               [&o](const std::string& flag, const std::string& text) {
                   o.recipe = recipe_value(flag, text);
               })
        ->required();
    flags.value("--layer", "PREFIX", "take PREFIX.q, PREFIX.k and PREFIX.v",
                [&o](const std::string&, const std::string& text) { o.layer = text; });
    flags.flag("--lse", "write the log-sum-exp of each row too (natural log)", o.lse);
    add_problem(app, flags, o.problem,
                "bf16, f16 or f32 (default: that of q; bf16 where q is F8_E4M3)",
                "cpu (default), reference (exact, whatever the recipe), emulate or simt:ARCH");
    add_quiet(flags, o.quiet, "no progress bar and no summary");
    app.callback([&action, &o] { action = [&o] { return run_attend(o); }; });
}

void add_check(CLI::App& program, CheckOptions& o, Action& action) {
    CLI::App& app = add_command(
        program, "check", "measure every recipe against exact attention, on the tensors of a file",
        "Compared are the last rows of each segment and random ones, in every head. docs/check.md "
        "says what the\ncolumns and the JSON fields mean.\n"
        "Exit status: 0 where every layer was checked; 1 where one could not be: the others are, "
        "and what\nwas asked for is written.\n"
        "\n"
        "Examples:\n"
        "  quatt check capture.safetensors\n"
        "  quatt check capture.safetensors --layers layers.0,layers.7 --recipes fp8,nvfp4 --json "
        "report.json\n"
        "  quatt check capture.safetensors --causal --rows 1024 --bound 0.03 --report report.html");
    Flags flags(app);
    app.add_option("IN", o.input, kInputText)->required()->type_name("IN.safetensors");
    flags.value("--layers", "A,B,C", "prefixes (default: every PREFIX with q, k and v)",
                [&o](const std::string& flag, const std::string& text) {
                    o.layers = list_value(flag, text);
                });
    flags.value("--recipes", "A,B,C", "(default: " + join(o.recipes, ",") + ")",
                [&o](const std::string& flag, const std::string& text) {
                    o.recipes = list_value(flag, text);
                    for (const std::string& recipe : o.recipes) {
                        (void)recipe_value(flag, recipe);
                    }
                });
    flags.number("--rows", 1, kMaxTokens,
                 "rows to compare, of a batch: in each item (default: 256)", o.rows);
    flags.value("--seed", "N", "of the choice of rows (default: 1)",
                [&o](const std::string& flag, const std::string& text) {
                    o.seed = static_cast<std::uint64_t>(
                        integer(flag, text, 0, std::numeric_limits<std::int64_t>::max()));
                });
    flags.value("--bound", "X", "largest rel-L2 that a recommended recipe may have (default: 0.06)",
                [&o](const std::string& flag, const std::string& text) {
                    o.bound = real(
                        flag, text, [](double x) { return x > 0; }, "a number > 0");
                });
    flags.file("--json", "write everything, head by head; - prints it instead of the tables",
               o.json);
    flags.file("--report", "write a page for the browser: heat maps, histograms, reasons",
               o.report);
    add_problem(app, flags, o.problem,
                "bf16, f16 or f32 (default: f32, so that the recipe's own error shows)",
                "cpu (default), emulate or simt:ARCH");
    add_quiet(flags, o.quiet, "no progress bar");
    app.callback([&action, &o] { action = [&o] { return run_check(o); }; });
}

// Flags of a sample; the defaults depend on its kind, which may stand behind them.
struct SampleFlags {
    SampleOptions options;
    std::optional<SampleKind> kind;
    std::vector<std::int64_t> segments = {4096};
    std::int64_t heads = 8;
    std::optional<std::int64_t> heads_kv;
    std::int64_t head_dim = 128;
    std::uint64_t seed = 1;
    std::vector<std::pair<double SampleSpec::*, double>> numbers;
    std::array<std::int64_t, 3> grid = {0, 0, 0};
    std::vector<std::pair<std::string, SampleKind>> bound;  // flags given that one kind has
};

int run_sample_flags(SampleFlags& f) {
    for (const auto& [flag, kind] : f.bound) {
        if (kind != *f.kind) {
            throw UsageError(flag + " belongs to --kind " + std::string(sample_kind_name(kind)) +
                             "; --kind is " + in_quotes(sample_kind_name(*f.kind)));
        }
    }
    SampleSpec spec = SampleSpec::defaults(*f.kind);
    spec.segment_tokens = f.segments;
    spec.heads_q = f.heads;
    spec.heads_kv = f.heads_kv.value_or(f.heads);
    spec.head_dim = f.head_dim;
    spec.seed = f.seed;
    spec.grid = f.grid;
    for (const auto& [member, value] : f.numbers) {
        spec.*member = value;
    }
    f.options.spec = spec;
    return run_sample(f.options);
}

void add_sample(CLI::App& program, SampleFlags& f, Action& action) {
    CLI::App& app = add_command(
        program, "sample", "write seeded queries, keys and values that look like a network's",
        "Kinds: gaussian (N(0,1)), dit (a video transformer: RMS-normed, rotary, smooth along a "
        "token grid,\nK with a channel mean), outlier (large channels and elements), sink (one key "
        "with most of the weight).\nThe same flags give the same file everywhere.\n"
        "\n"
        "Examples:\n"
        "  quatt sample --kind dit --tokens 2048 --heads 4 --head-dim 128 -o dit.safetensors\n"
        "  quatt sample --kind sink --segments 1000,500 --sink-weight 0.9 -o sink.safetensors\n"
        "  quatt sample --kind gaussian --heads 32 --heads-kv 8 --k-mean-std 2 -o "
        "gqa.safetensors");
    Flags flags(app);
    flags
        .value("--kind", "KIND", "gaussian, dit, outlier or sink (required)",
               [&f](const std::string& flag, const std::string& text) {
                   f.kind = sample_kind_from_name(text);
                   if (!f.kind) {
                       bad_value(flag, text, "one of gaussian, dit, outlier, sink");
                   }
               })
        ->required();
    flags.file("-o,--output", "where the sample goes (required); replaced in one step",
               f.options.output);
    app.get_option("--output")->required();
    CLI::Option* tokens = flags.value(
        "--tokens", "N", "tokens of the one segment (default: 4096)",
        [&f](const std::string& flag, const std::string& text) {
            f.segments = {integer(flag, text, 1, std::numeric_limits<std::int32_t>::max())};
        });
    flags
        .value("--segments", "A,B,C", "several segments, of these lengths",
               [&f](const std::string& flag, const std::string& text) {
                   f.segments = lengths_value(flag, text);
               })
        ->excludes(tokens);
    flags.number("--heads", 1, 65536, "query heads (default: 8)", f.heads);
    flags.number("--heads-kv", 1, 65536, "KV heads (default: as many)", f.heads_kv);
    flags.number("--head-dim", 1, kMaxHeadDim, "head size, at most 256 (default: 128)", f.head_dim);
    flags.value("--seed", "N", "(default: 1)",
                [&f](const std::string& flag, const std::string& text) {
                    f.seed = static_cast<std::uint64_t>(
                        integer(flag, text, 0, std::numeric_limits<std::int64_t>::max()));
                });
    flags.value("--dtype", "TYPE", "bf16 (default), f16 or f32",
                [&f](const std::string& flag, const std::string& text) {
                    f.options.dtype = named(flag, text, kFileTypes);
                });

    // The range of each is the sample's own to check.
    const auto number = [&](const std::string& name, const std::string& text,
                            double SampleSpec::*member, std::optional<SampleKind> of = {}) {
        flags.value(name, "X", text,
                    [&f, member, of](const std::string& flag, const std::string& given) {
                        if (of) {
                            f.bound.emplace_back(flag, *of);
                        }
                        f.numbers.emplace_back(
                            member, real(
                                        flag, given, [](double) { return true; }, "a number"));
                    });
    };
    flags.group("Shape of the data");
    number("--k-mean-std", "spread of K's channel means (default: dit 1, others 0)",
           &SampleSpec::k_mean_std);
    number("--v-mean-std", "spread of V's channel means (default: dit 0.5, others 0)",
           &SampleSpec::v_mean_std);
    flags.value("--grid", "T,Y,X", "dit: token grid of each segment (default: about 1:4:4)",
                [&f](const std::string& flag, const std::string& text) {
                    const std::vector<std::int64_t> sides = lengths_value(flag, text);
                    if (sides.size() != 3) {
                        bad_value(flag, text, "three lengths T,Y,X");
                    }
                    std::copy(sides.begin(), sides.end(), f.grid.begin());
                    f.bound.emplace_back(flag, SampleKind::kDit);
                });
    const SampleSpec usual;
    number("--gain", "dit: gain of q and k (default: " + format_significant(usual.gain, 3) + ")",
           &SampleSpec::gain, SampleKind::kDit);
    number("--outlier-gain",
           "outlier: size of the outliers (default: " + format_significant(usual.outlier_gain, 2) +
               ")",
           &SampleSpec::outlier_gain, SampleKind::kOutlier);
    number("--sink-weight",
           "sink: the key's weight (default: " + format_significant(usual.sink_weight, 1) + ")",
           &SampleSpec::sink_weight, SampleKind::kSink);
    number("--sink-position",
           "sink: its place, 0 first, 1 last (default: " +
               format_significant(usual.sink_position, 1) + ")",
           &SampleSpec::sink_position, SampleKind::kSink);
    number("--score-std",
           "sink: spread of the other scores (default: " + format_significant(usual.score_std, 1) +
               ")",
           &SampleSpec::score_std, SampleKind::kSink);
    add_quiet(flags, f.options.quiet, "no summary");
    app.callback([&action, &f] { action = [&f] { return run_sample_flags(f); }; });
}

struct BenchFlags {
    BenchOptions options;
    std::vector<std::string> compare;
    bool peers = false;
    std::vector<std::string> peers_arguments;  // all that stands behind --peers
};

void add_bench(CLI::App& program, BenchFlags& f, Action& action) {
    CLI::App& app = add_command(
        program, "bench", "time recipes, compare two such measurements, or measure a GPU",
        "With --compare, a median has moved where old and new are farther apart than 2 % of the "
        "old one and than\nthe quartiles of either; exit status 1: something became slower. "
        "docs/bench.md describes the files.\n"
        "\n"
        "Examples:\n"
        "  quatt bench --shape 1x4096x8x128 --recipe bf16 --recipe fp8 --json new.json\n"
        "  quatt bench --shape 2x1000x32x128 --heads-kv 8 --causal --threads 4\n"
        "  quatt bench --device cuda --shape 1x16384x16x128 --recipe fp8\n"
        "  quatt bench --compare old.json new.json\n"
        "  quatt bench --peers --quick --json h200.json");
    Flags flags(app);
    BenchOptions& o = f.options;
    flags.group("Problem");
    flags.list("--shape", "BxSxHxD",
               "batch, tokens, heads, head size; may be repeated (default: 1x1024x8x128)", o.shapes,
               shape_value);
    flags.value("--heads-kv", "N", "KV heads (default: as many)",
                [&o](const std::string& flag, const std::string& text) {
                    o.heads_kv = integer(flag, text, 1, 65536);
                });
    flags.flag("--causal", "query i sees keys up to i", o.causal);
    flags.list("--recipe", "R", "may be repeated; see quatt info (default: bf16 and fp8)",
               o.recipes, recipe_value);
    flags.group("How");
    flags.value("--device", "D",
                "cpu (default), cuda[:N], reference, emulate, simt:ARCH or emu:ARCH[:N]",
                [&o](const std::string& flag, const std::string& text) {
                    o.device = device_value(flag, text);
                });
    flags.value("--kernel", "K", "this entry of the support table only (see quatt info)",
                [&o](const std::string& flag, const std::string& text) {
                    o.kernel = kernel_value(flag, text);
                });
    flags.number("--threads", 1, 4096, "threads (default: all cores)", o.threads);
    flags.number("--warmup", 0, 1000, "rounds that do not count (default: 1)", o.warmup);
    flags.number("--rounds", 1, 100000, "timed runs of each (default: 7)", o.rounds);
    flags.file("--json", "write everything; - prints it instead of the table", o.json);
    flags.group("Instead");
    app.add_option("--compare", f.compare, "say what moved between two files of --json")
        ->expected(2)
        ->type_name("OLD.json NEW.json")
        ->group("Instead");
    flags.flag("--peers",
               "measure a GPU beside other attention kernels; what follows goes to the Python "
               "program that does it, which needs torch",
               f.peers);
    add_quiet(flags, o.quiet, "no progress bar");
    app.callback([&app, &f, &action] {
        const std::string alone = f.peers ? "--peers" : f.compare.empty() ? "" : "--compare";
        for (const CLI::Option* option : app.get_options()) {
            if (!alone.empty() && option->count() > 0 && option->get_name() != alone) {
                throw UsageError(alone + " goes without " + option->get_name());
            }
        }
        action = [&f]() -> int {
            if (f.peers) {
                run_bench_peers(f.peers_arguments);
            }
            return f.compare.empty() ? run_bench(f.options)
                                     : run_bench_compare(f.compare[0], f.compare[1]);
        };
    });
}

void add_completion(CLI::App& program, std::string& shell, Action& action) {
    CLI::App& app = add_command(program, "completion", "print a script that completes commands",
                                "Examples:\n"
                                "  quatt completion bash > "
                                "~/.local/share/bash-completion/completions/quatt\n"
                                "  quatt completion zsh > ~/.zfunc/_quatt    (a folder of $fpath)\n"
                                "  quatt completion fish > ~/.config/fish/completions/quatt.fish");
    app.add_option("SHELL", shell, "bash, zsh or fish")->required()->type_name("SHELL");
    app.callback([&program, &shell, &action] {
        if (std::ranges::find(kShells, shell) == kShells.end()) {
            bad_value("the shell", shell, "one of bash, zsh, fish");
        }
        action = [&program, &shell] {
            print(completion_script(program, shell));
            return kExitOk;
        };
    });
}

void add_man(CLI::App& program, Action& action) {
    CLI::App& app = add_command(program, "man", "print the manual page of this program",
                                "Example:\n  quatt man | man -l -");
    app.callback([&program, &action] {
        action = [&program] {
            print(manual_page(program));
            return kExitOk;
        };
    });
}

// What CLI11 says of a command line that does not fit, in our words where those are plainer.
std::string parse_message(const CLI::App& program, const CLI::ParseError& error) {
    for (const CLI::App* app : program.get_subcommands()) {
        for (const CLI::Option* option : app->get_options()) {
            if (option->get_items_expected_max() == 1 && option->count() > 1) {
                return option->get_name() + " is given " + std::to_string(option->count()) +
                       " times; allowed is once";
            }
        }
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const std::vector<std::string> extras = program.remaining(true);
        const auto flag = std::ranges::find_if(
            extras, [](const std::string& extra) { return extra.rfind('-', 0) == 0; });
        if (flag != extras.end()) {
            return "there is no flag " + in_quotes(*flag);
        }
    }
    return printable(error.what(), 500);
}

// --- The program ------------------------------------------------------------------------------

int run(int argc, const char* const* argv) {
    CLI::App program("quantised attention on files of tensors, and how accurate it is", "quatt");
    program.formatter(help_formatter());
    program
        .set_version_flag("--version", std::string("quatt ") + quatt_version(), "show the version")
        ->group("General");
    add_help_flag(program);
    program.footer(
        "`quatt COMMAND --help` explains a command.\n"
        "Exit status: 0 success, 1 failure, 2 wrong usage.\n"
        "\n"
        "Examples:\n"
        "  quatt sample --kind dit --tokens 2048 --heads 4 -o dit.safetensors\n"
        "  quatt check dit.safetensors\n"
        "  quatt attend dit.safetensors -o out.safetensors --recipe fp8 --lse");

    Action action;
    ExplainOptions explain_options;
    AttendOptions attend_options;
    CheckOptions check_options;
    SampleFlags sample_flags;
    BenchFlags bench_flags;
    std::string shell;
    add_info(program, action);
    add_explain(program, explain_options, action);
    add_attend(program, attend_options, action);
    check_options.command = {"quatt"};  // and not where it is installed
    for (int i = 1; i < argc; ++i) {
        check_options.command.emplace_back(argv[i]);
    }
    add_check(program, check_options, action);
    add_sample(program, sample_flags, action);
    add_bench(program, bench_flags, action);
    add_completion(program, shell, action);
    add_man(program, action);

    std::string command = "quatt";
    if (argc >= 2 && argv[1][0] != '-') {
        std::string names;
        bool known = false;
        for (const CLI::App* app : program.get_subcommands([](const CLI::App*) { return true; })) {
            known = known || app->get_name() == argv[1];
            names += (names.empty() ? "" : ", ") + app->get_name();
        }
        if (!known) {
            throw UsageError("the command is " + in_quotes(argv[1]) + "; allowed is one of " +
                             names);
        }
        command += std::string(" ") + argv[1];
    }
    // What follows `bench --peers` is another program's.
    if (command == "quatt bench") {
        const char* const* end = argv + argc;
        const char* const* peers =
            std::find_if(argv, end, [](std::string_view word) { return word == "--peers"; });
        if (peers != end) {
            bench_flags.peers_arguments.assign(peers + 1, end);
            argc = static_cast<int>(peers + 1 - argv);
        }
    }
    try {
        program.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        print(program.help());
        return kExitOk;
    } catch (const CLI::CallForVersion& version) {
        print(std::string(version.what()) + "\n");
        return kExitOk;
    } catch (const CLI::ParseError& error) {
        throw UsageError(parse_message(program, error) + " (see " + command + " --help)");
    }
    if (!action) {
        throw UsageError("a command is missing; see quatt --help");
    }
    return action();
}

}  // namespace

int run_cli(int argc, const char* const* argv) noexcept {
    try {
        prepare_streams();
        try {
            return run(argc, argv);
        } catch (const UsageError& error) {
            print_error(error.what());
            return kExitUsage;
        } catch (const std::bad_alloc&) {
            print_error("out of memory");
        } catch (const std::exception& error) {
            print_error(error.what());
        }
    } catch (...) {
        // Not even the message could be made.
    }
    return kExitFailure;
}

}  // namespace quatt::tools

// The flags of each command.
#include "cli_commands.hpp"

#include <quatt/quatt.h>

#include <algorithm>
#include <limits>

#include "cli_flags.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

constexpr Names<quatt_dtype, 3> kOutTypes = {
    {{"bf16", QUATT_BF16}, {"f16", QUATT_F16}, {"f32", QUATT_F32}}};
constexpr Names<quatt_dtype, 4> kInTypes = {
    {{"bf16", QUATT_BF16}, {"f16", QUATT_F16}, {"f32", QUATT_F32}, {"e4m3", QUATT_E4M3}}};
constexpr Names<Dtype, 3> kFileTypes = {
    {{"bf16", Dtype::kBf16}, {"f16", Dtype::kF16}, {"f32", Dtype::kF32}}};
constexpr Names<Layout, 2> kLayouts = {
    {{"bshd", Layout::kTokensFirst}, {"bhsd", Layout::kHeadsFirst}}};
constexpr Names<std::int32_t, 5> kKeyTiles = {
    {{"64", 64}, {"96", 96}, {"128", 128}, {"192", 192}, {"256", 256}}};
std::vector<std::string> kind_names() {
    std::vector<std::string> names;
    names.reserve(std::size(kSampleKinds));
    for (const SampleKind kind : kSampleKinds) {
        names.emplace_back(sample_kind_name(kind));
    }
    return names;
}

// Every command's own flags come before the general ones.
void add_quiet(Flags& flags, bool& quiet, const std::string& text) {
    flags.group("General");
    flags.flag("--quiet", text, quiet);
}

void add_force(Flags& flags, bool& force) {
    flags.flag("--force", "replace also what is write-protected or another user's", force);
}

void add_key_tile(Flags& flags, std::int32_t& key_tile) {
    flags.choice("--key-tile", "N", "64, 96, 128, 192 or 256 keys (default: the kernel's own)",
                 kKeyTiles, key_tile);
}

// Of attend and check.
void add_problem(CLI::App& app, Flags& flags, ProblemOptions& p, const std::string& out_dtype,
                 const std::string& devices, std::vector<std::string> device_examples) {
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
    flags.choice("--layout", "NAME",
                 "bshd: [batch, tokens, heads, head size]; bhsd: heads before tokens, as torch's "
                 "attention has them (default: metadata qkv_layout, else bshd)",
                 kLayouts, p.layout);
    flags.value("--sink", "NAME", "tensor [heads] of sink logits, one a query head",
                [&p](const std::string&, const std::string& text) { p.sink = text; });
    flags.choice("--out-dtype", "TYPE", out_dtype, kOutTypes, p.out_dtype);
    flags.group("How");
    flags.device(devices, p.device, std::move(device_examples));
    flags.kernel(p.kernel);
    add_key_tile(flags, p.key_tile);
    flags.number("--splits", 1, std::numeric_limits<std::int32_t>::max(),
                 "parts of the key range (default: chosen by its length)", p.splits);
    flags.number("--threads", 1, 4096, "threads (default: all cores)", p.threads);
}

// --- Commands ---------------------------------------------------------------------------------

void add_info(Program& program) {
    CLI::App& app =
        program.add_command("info", "show the library, this machine and the kernels there are",
                            "Example:\n  quatt info");
    app.callback([&program] { program.action = run_info; });
}

void add_explain(Program& program, ExplainOptions& o) {
    CLI::App& app = program.add_command(
        "explain", "say which kernel would serve a problem, and why the others would not",
        "Exit status: 0 where a kernel was chosen, 1 where the problem is refused.\n"
        "\n"
        "Examples:\n"
        "  quatt explain --recipe nvfp4 --tokens 30272 --heads 56 --head-dim 128\n"
        "  quatt explain --segments 122,109,230 --heads 32 --heads-kv 8 --causal --lse\n"
        "  quatt explain --device cuda --compute-capability 9.0 --allow-fallback");
    Flags flags(app, program.completions);
    flags.group("Problem");
    flags.recipe("see quatt info (default: fp8)", o.recipe);
    flags.number("--batch", 0, kMaxTokens, "items of a dense batch (default: 1)", o.batch);
    CLI::Option* tokens =
        flags.value("--tokens", "N", "query and key tokens of an item (default: 4096)",
                    [&o](const std::string& flag, const std::string& text) {
                        o.seqlen_q = o.seqlen_k = integer_value(flag, text, 0, kMaxTokens);
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
    flags.choice("--dtype", "TYPE", "of q, k and v: bf16 (default), f16, f32 or e4m3", kInTypes,
                 o.dtype);
    flags.choice("--kv-dtype", "TYPE", "of k and v, where it differs", kInTypes, o.kv_dtype);
    flags.choice("--out-dtype", "TYPE", "bf16 (default), f16 or f32", kOutTypes, o.out_dtype);
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
    flags.device("cpu (default), reference, emulate, cuda[:N], simt:ARCH or emu:ARCH[:N]", o.device,
                 {"cpu", "reference", "emulate", "cuda", "simt:sm_90", "emu:sm_120"});
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
    flags.kernel(o.kernel);
    add_key_tile(flags, o.key_tile);
    flags.number("--splits", 1, std::numeric_limits<std::int32_t>::max(),
                 "parts of the key range (default: chosen by its length)", o.splits);
    flags.number("--threads", 1, 4096, "threads of a host device (default: all cores)", o.threads);
    flags.flag("--allow-fallback", "another device may serve", o.allow_fallback);
    flags.flag("--strict", "a fallback is an error, also where it is allowed", o.strict);
    app.callback([&program, &o] { program.action = [&o] { return run_explain(o); }; });
}

constexpr const char* kInputText =
    "safetensors file with q, k, v, or PREFIX.q, PREFIX.k, PREFIX.v: [tokens, heads, head size] "
    "with cu_seqlens (or cu_seqlens_q and cu_seqlens_k; I32 or I64) or one segment, or [batch, "
    "tokens, heads, head size]; kv_lens if keys end early. F32, F16, BF16, or F8_E4M3 with "
    "q_descale, k_descale, v_descale";

void add_attend(Program& program, AttendOptions& o) {
    CLI::App& app = program.add_command(
        "attend", "compute attention over the tensors of a file",
        "The output holds `out`, shaped as q with the head size of v, and with --lse `lse`, "
        "[heads, "
        "tokens]\nor [batch, heads, tokens]. Rows that belong to no segment are 0.\n"
        "\n"
        "Examples:\n"
        "  quatt attend capture.safetensors -o out.safetensors --recipe fp8 --layer layers.0\n"
        "  quatt attend qkv.safetensors -o out.safetensors --recipe bf16 --causal --lse\n"
        "  quatt attend qkv.safetensors -o exact.safetensors --recipe bf16 --device reference "
        "--out-dtype f32");
    Flags flags(app, program.completions);
    app.add_option("IN", o.input, kInputText)->required()->type_name("IN.safetensors");
    flags.file("-o,--output", "where the result goes (required); replaced in one step", o.output)
        ->required();
    add_force(flags, o.force);
    flags.recipe("see quatt info (required)", o.recipe)->required();
    flags.value("--layer", "PREFIX", "take PREFIX.q, PREFIX.k and PREFIX.v",
                [&o](const std::string&, const std::string& text) { o.layer = text; });
    flags.flag("--lse", "write the log-sum-exp of each row too (natural log)", o.lse);
    add_problem(app, flags, o.problem,
                "bf16, f16 or f32 (default: that of q; bf16 where q is F8_E4M3)",
                "cpu (default), reference (exact, whatever the recipe), emulate or simt:ARCH",
                {"cpu", "reference", "emulate", "simt:sm_90"});
    add_quiet(flags, o.quiet, "no progress bar and no summary");
    app.callback([&program, &o] { program.action = [&o] { return run_attend(o); }; });
}

void add_check(Program& program, CheckOptions& o) {
    CLI::App& app = program.add_command(
        "check", "measure every recipe against exact attention, on the tensors of a file",
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
    Flags flags(app, program.completions);
    app.add_option("IN", o.input, kInputText)->required()->type_name("IN.safetensors");
    flags.value("--layers", "A,B,C", "prefixes (default: every PREFIX with q, k and v)",
                [&o](const std::string& flag, const std::string& text) {
                    o.layers = list_value(flag, text);
                });
    flags.completed(flags.value("--recipes", "A,B,C", "(default: " + join(o.recipes, ",") + ")",
                                [&o](const std::string& flag, const std::string& text) {
                                    o.recipes = list_value(flag, text);
                                    for (const std::string& recipe : o.recipes) {
                                        (void)recipe_value(flag, recipe);
                                    }
                                }),
                    recipe_names(), true);
    flags.number("--rows", 1, kMaxTokens,
                 "rows to compare, of a batch: in each item (default: 256)", o.rows);
    flags.number("--seed", 0, std::numeric_limits<std::int64_t>::max(),
                 "of the choice of rows (default: 1)", o.seed);
    flags.value("--bound", "X", "largest rel-L2 that a recommended recipe may have (default: 0.06)",
                [&o](const std::string& flag, const std::string& text) {
                    o.bound = real_value(
                        flag, text, [](double x) { return x > 0; }, "a number > 0");
                });
    flags.file("--json", "write everything, head by head; - prints it instead of the tables",
               o.json, true);
    flags.file("--report", "write a page for the browser: heat maps, histograms, reasons",
               o.report);
    add_force(flags, o.force);
    add_problem(app, flags, o.problem,
                "bf16, f16 or f32 (default: f32, so that the recipe's own error shows)",
                "cpu (default), emulate or simt:ARCH", {"cpu", "emulate", "simt:sm_90"});
    add_quiet(flags, o.quiet, "no progress bar");
    app.callback([&program, &o] { program.action = [&o] { return run_check(o); }; });
}

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

void add_sample(Program& program, SampleFlags& f) {
    CLI::App& app = program.add_command(
        "sample", "write seeded queries, keys and values that look like a network's",
        "Kinds: gaussian (N(0,1)), dit (a video transformer: RMS-normed, rotary, smooth along a "
        "token grid,\nK with a channel mean), outlier (large channels and elements), sink (one key "
        "with most of the weight).\nThe same flags give the same file everywhere.\n"
        "\n"
        "Examples:\n"
        "  quatt sample --kind dit --tokens 2048 --heads 4 --head-dim 128 -o dit.safetensors\n"
        "  quatt sample --kind sink --segments 1000,500 --sink-weight 0.9 -o sink.safetensors\n"
        "  quatt sample --kind gaussian --heads 32 --heads-kv 8 --k-mean-std 2 -o "
        "gqa.safetensors");
    Flags flags(app, program.completions);
    flags
        .completed(flags.value("--kind", "KIND", "gaussian, dit, outlier or sink (required)",
                               [&f](const std::string& flag, const std::string& text) {
                                   f.kind = sample_kind_from_name(text);
                                   if (!f.kind) {
                                       bad_value(flag, text, "one of " + join(kind_names()));
                                   }
                               }),
                   kind_names())
        ->required();
    flags
        .file("-o,--output", "where the sample goes (required); replaced in one step",
              f.options.output)
        ->required();
    add_force(flags, f.options.force);
    CLI::Option* tokens = flags.value(
        "--tokens", "N", "tokens of the one segment (default: 4096)",
        [&f](const std::string& flag, const std::string& text) {
            f.segments = {integer_value(flag, text, 1, std::numeric_limits<std::int32_t>::max())};
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
    flags.number("--seed", 0, std::numeric_limits<std::int64_t>::max(), "(default: 1)", f.seed);
    flags.choice("--dtype", "TYPE", "bf16 (default), f16 or f32", kFileTypes, f.options.dtype);

    // The range of each is the sample's own to check.
    const auto number = [&](const std::string& name, const std::string& text,
                            double SampleSpec::*member, std::optional<SampleKind> of = {}) {
        flags.value(name, "X", text,
                    [&f, member, of](const std::string& flag, const std::string& given) {
                        if (of) {
                            f.bound.emplace_back(flag, *of);
                        }
                        f.numbers.emplace_back(
                            member, real_value(
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
    app.callback([&program, &f] { program.action = [&f] { return run_sample_flags(f); }; });
}

void add_bench(Program& program, BenchFlags& f) {
    CLI::App& app = program.add_command(
        "bench", "time recipes, compare two such measurements, or measure a GPU",
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
    Flags flags(app, program.completions);
    BenchOptions& o = f.options;
    flags.group("Problem");
    flags.list("--shape", "BxSxHxD",
               "batch, tokens, heads, head size; may be repeated (default: 1x1024x8x128)", o.shapes,
               shape_value);
    flags.number("--heads-kv", 1, 65536, "KV heads (default: as many)", o.heads_kv);
    flags.flag("--causal", "query i sees keys up to i", o.causal);
    flags.completed(
        flags.list("--recipe", "R", "may be repeated; see quatt info (default: bf16 and fp8)",
                   o.recipes, recipe_value),
        recipe_names());
    flags.group("How");
    flags.device("cpu (default), cuda[:N], reference, emulate, simt:ARCH or emu:ARCH[:N]", o.device,
                 {"cpu", "cuda", "reference", "emulate", "simt:sm_90", "emu:sm_120"});
    flags.kernel(o.kernel);
    flags.number("--threads", 1, 4096, "threads (default: all cores)", o.threads);
    flags.number("--warmup", 0, 1000, "rounds that do not count (default: 1)", o.warmup);
    flags.number("--rounds", 1, 100000, "timed runs of each (default: 7)", o.rounds);
    flags.file("--json", "write everything; - prints it instead of the table", o.json, true);
    add_force(flags, o.force);
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
    app.callback([&app, &f, &program] {
        const std::string alone = f.peers ? "--peers" : f.compare.empty() ? "" : "--compare";
        for (const CLI::Option* option : app.get_options()) {
            if (!alone.empty() && option->count() > 0 && option->get_name() != alone) {
                throw UsageError(alone + " goes without " + option->get_name());
            }
        }
        program.action = [&f]() -> int {
            if (f.peers) {
                run_bench_peers(f.peers_arguments);
            }
            return f.compare.empty() ? run_bench(f.options)
                                     : run_bench_compare(f.compare[0], f.compare[1]);
        };
    });
}

}  // namespace

void add_commands(Program& program) {
    add_info(program);
    add_explain(program, program.explain);
    add_attend(program, program.attend);
    add_check(program, program.check);
    add_sample(program, program.sample);
    add_bench(program, program.bench);
}

}  // namespace quatt::tools

// Measures what docs/recipes.md publishes: the error of every recipe against fp64, and the cases
// that each rule of a recipe is for.
//
//   accuracy [--quick] [--data DIR] [TABLE...]    tables: recipes means tiles rates sinks vmeans
//   vsizes sinkmeans samples far causal; all of them by default
//
// DIR (tests/data by default) has captures of real tensors, *.safetensors; rows of theirs are left
// out where it has none.
//
// Inputs are N(0,1) rounded to bf16 unless a table says otherwise, D = 128; rows are chosen at
// random, the last ones included.
#include <quatt/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "safetensors.hpp"
#include "sample.hpp"

namespace {

using namespace quatt;

struct Case {
    std::int64_t tokens = 1024, heads = 16, dim = 128, rows = 256;
    std::vector<std::uint16_t> q, k, v;  // bf16 [T, H, D]
    std::vector<float> wide_v;           // used for v where it is not empty
    std::vector<std::int64_t> chosen;
};

std::vector<std::uint16_t> to_bf16(const std::vector<float>& x) {
    std::vector<std::uint16_t> y(x.size());
    (void)quatt_convert(y.data(), QUATT_BF16, x.data(), QUATT_F32,
                        static_cast<std::int64_t>(x.size()));
    return y;
}

// Row numbers: evenly spread, the last 16 included.
std::vector<std::int64_t> choose_rows(std::int64_t tokens, std::int64_t n) {
    std::vector<std::int64_t> rows;
    n = std::min(n, tokens);
    const std::int64_t tail = std::min<std::int64_t>(16, n), head = n - tail;
    for (std::int64_t i = 0; i < head; i++) {
        rows.push_back(i * (tokens - tail) / head);
    }
    for (std::int64_t i = tokens - tail; i < tokens; i++) {
        rows.push_back(i);
    }
    return rows;
}

Case case_of(const tools::SampleSpec& spec, const tools::Sample& s, std::int64_t rows) {
    Case c;
    c.tokens = spec.segment_tokens[0];
    c.heads = spec.heads_q;
    c.dim = spec.head_dim;
    c.q = to_bf16(s.q);
    c.k = to_bf16(s.k);
    c.v = to_bf16(s.v);
    c.chosen = choose_rows(c.tokens, rows);
    return c;
}

Case make_case(const tools::SampleSpec& spec, std::int64_t rows,
               const std::function<void(tools::Sample&)>& change = {}) {
    tools::Sample s = tools::make_sample(spec);
    if (change) {
        change(s);
    }
    return case_of(spec, s, rows);
}

tools::SampleSpec gaussian(std::int64_t tokens, std::int64_t heads, std::uint64_t seed = 1) {
    tools::SampleSpec s = tools::SampleSpec::defaults(tools::SampleKind::kGaussian);
    s.segment_tokens = {tokens};
    s.heads_q = s.heads_kv = heads;
    s.seed = seed;
    return s;
}

struct Output {
    std::vector<float> out;  // [rows, H, D]
    std::vector<float> lse;  // [H, rows]
};

Output run(const Case& c, const char* device, const quatt_recipe& recipe, int key_tile = 64,
           int splits = 0, quatt_counters* counters = nullptr, DType out_type = DType::bf16,
           bool causal = false) {
    const std::size_t n = static_cast<std::size_t>(c.tokens * c.heads * c.dim);
    std::vector<float> out(n), lse(static_cast<std::size_t>(c.tokens * c.heads));
    std::vector<std::uint16_t> narrow(out_type == DType::f32 ? 0 : n);
    const auto view = [&](const void* p, DType t) {
        return Tensor(p, t, {c.tokens, c.heads, c.dim});
    };
    const bool wide = out_type == DType::f32;
    Problem p(recipe, view(c.q.data(), DType::bf16), view(c.k.data(), DType::bf16),
              c.wide_v.empty() ? view(c.v.data(), DType::bf16) : view(c.wide_v.data(), DType::f32),
              view(wide ? static_cast<void*>(out.data()) : narrow.data(), out_type));
    p.tensors.lse = Tensor(lse.data(), DType::f32, {c.heads, c.tokens});
    p.rows = c.chosen.data();
    p.row_count = static_cast<std::int64_t>(c.chosen.size());
    p.key_tile = key_tile;
    p.splits = splits;
    p.tensors.counters = counters;
    p.causal = causal ? 1 : 0;
    attention(p, device);
    if (!wide) {
        (void)quatt_convert(out.data(), QUATT_F32, narrow.data(),
                            static_cast<quatt_dtype>(out_type), static_cast<std::int64_t>(n));
    }
    Output r;
    const auto row = static_cast<std::size_t>(c.heads * c.dim);
    for (const std::int64_t i : c.chosen) {
        r.out.insert(
            r.out.end(),
            out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * row),
            out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i + 1) * row));
    }
    for (std::int64_t h = 0; h < c.heads; h++) {
        for (const std::int64_t i : c.chosen) {
            r.lse.push_back(lse[static_cast<std::size_t>(h * c.tokens + i)]);
        }
    }
    return r;
}

// Relative L2 error a head. Without V's mean, where that is given: [H, D].
std::vector<double> head_errors(const Case& c, const Output& a, const Output& b,
                                const std::vector<double>& mean = {}) {
    std::vector<double> errors;
    const auto row = static_cast<std::size_t>(c.heads * c.dim);
    for (std::int64_t h = 0; h < c.heads; h++) {
        double error = 0, norm = 0;
        for (std::size_t r = 0; r < c.chosen.size(); r++) {
            for (std::int64_t d = 0; d < c.dim; d++) {
                const std::size_t channel = static_cast<std::size_t>(h * c.dim + d),
                                  i = r * row + channel;
                const double x = static_cast<double>(a.out[i]), y = static_cast<double>(b.out[i]),
                             size = y - (mean.empty() ? 0 : mean[channel]);
                error += (x - y) * (x - y);
                norm += size * size;
            }
        }
        errors.push_back(std::sqrt(error / norm));
    }
    return errors;
}

// Mean over heads.
double rel_l2(const Case& c, const Output& a, const Output& b) {
    double sum = 0;
    for (const double e : head_errors(c, a, b)) {
        sum += e;
    }
    return sum / static_cast<double>(c.heads);
}

double max_lse_error(const Output& a, const Output& b) {
    double worst = 0;
    for (std::size_t i = 0; i < a.lse.size(); i++) {
        const double e = std::fabs(static_cast<double>(a.lse[i]) - static_cast<double>(b.lse[i]));
        worst = e <= worst ? worst : e;
    }
    return worst;
}

const std::vector<std::string>& recipes() {
    static const std::vector<std::string> all = Recipe::names();
    return all;
}

void print_header(const char* title, const std::vector<std::string>& columns) {
    std::printf("\n%s\n%-34s", title, "");
    for (const std::string& c : columns) {
        std::printf(" %9s", c.c_str());
    }
    std::printf("\n");
}

void table_recipes(bool quick) {
    print_header(
        "Relative L2 error on N(0,1), mean over 16 heads x 256 rows (out bf16; f16 for f16); lse: "
        "largest error",
        {"published", "S=1024", "S=4096", "lse 1024", "lse 4096"});
    std::vector<Case> cases;
    std::vector<Output> exact;
    for (const std::int64_t s : {1024, 4096}) {
        cases.push_back(make_case(gaussian(s, quick ? 4 : 16), 256));
        exact.push_back(run(cases.back(), "reference", Recipe("bf16"), 64, 0, nullptr, DType::f32));
    }
    for (const std::string& name : recipes()) {
        const Recipe r(name);
        const DType out = name == "f16" ? DType::f16 : DType::bf16;
        std::vector<Output> o;
        for (const Case& c : cases) {
            o.push_back(run(c, "emulate", r, 64, 0, nullptr, out));
        }
        std::printf("%-34s %9.4f %9.4f %9.4f %9.4f %9.4f\n", name.c_str(),
                    static_cast<double>(r.expected_rel_l2), rel_l2(cases[0], o[0], exact[0]),
                    rel_l2(cases[1], o[1], exact[1]), max_lse_error(o[0], exact[0]),
                    max_lse_error(o[1], exact[1]));
    }
}

void table_means(bool quick) {
    const std::int64_t heads = quick ? 4 : 16;
    print_header(
        "Channel means, S=1024: relative L2 error of the centred output (mean of V taken out of "
        "both)",
        {"plain", "K mean 10", "V mean 2", "Q mean 5"});
    const Case plain = make_case(gaussian(1024, heads), 256);
    const auto shifted = [&](std::vector<float> tools::Sample::*member, double shift) {
        return make_case(gaussian(1024, heads), 256, [&](tools::Sample& s) {
            std::size_t i = 0;
            for (float& x : s.*member) {
                x += static_cast<float>((i++ % 128) % 2 == 0 ? shift : -shift);
            }
        });
    };
    const std::vector<Case> cases = {plain, shifted(&tools::Sample::k, 10),
                                     shifted(&tools::Sample::v, 2), shifted(&tools::Sample::q, 5)};
    std::vector<Output> exact;
    for (const Case& c : cases) {
        exact.push_back(run(c, "reference", Recipe("bf16"), 64, 0, nullptr, DType::f32));
    }
    for (const std::string& name : recipes()) {
        std::printf("%-34s", name.c_str());
        for (std::size_t i = 0; i < cases.size(); i++) {
            Output o = run(cases[i], "emulate", Recipe(name), 64, 0, nullptr, DType::f32),
                   e = exact[i];
            if (i == 2) {
                for (Output* x : {&o, &e}) {
                    std::size_t d = 0;
                    for (float& y : x->out) {
                        y -= (d++ % 128) % 2 == 0 ? 2.0f : -2.0f;
                    }
                }
            }
            std::printf(" %9.4f", rel_l2(cases[i], o, e));
        }
        std::printf("\n");
    }
}

void table_tiles(bool quick) {
    print_header(
        "Key tiles and splits, fp8, S=9000, logit std 2: rel-L2 between them (against tile 64)",
        {"64", "96", "128", "192", "256", "splits 2", "splits 4"});
    const Case c = make_case(gaussian(9000, quick ? 2 : 4), 64, [](tools::Sample& s) {
        for (float& x : s.q) {
            x *= 2;
        }
    });
    for (const char* name : {"bf16", "fp8", "int8_fp8", "nvfp4"}) {
        const Output base = run(c, "emulate", Recipe(name), 64, 0, nullptr, DType::f32);
        std::printf("%-34s", name);
        for (const int tile : {64, 96, 128, 192, 256}) {
            std::printf(
                " %9.1e",
                rel_l2(c, run(c, "emulate", Recipe(name), tile, 0, nullptr, DType::f32), base));
        }
        for (const int splits : {2, 4}) {
            std::printf(
                " %9.1e",
                rel_l2(c, run(c, "emulate", Recipe(name), 64, splits, nullptr, DType::f32), base));
        }
        std::printf("\n");
    }
}

void table_rates(bool quick) {
    print_header(
        "fp8: share of warp tiles (16 rows x 64 keys) with an overflow / a refresh, percent",
        {"S=2048", "8192", "30272", "refreshes 2k", "8k", "30k"});
    for (const int std_dev : {1, 2}) {
        std::printf("logit std %-24d", std_dev);
        std::vector<double> refreshes;
        for (const std::int64_t s : {2048, 8192, 30272}) {
            Case c = make_case(gaussian(s, quick ? 1 : 2), 0, [&](tools::Sample& x) {
                for (float& q : x.q) {
                    q *= static_cast<float>(std_dev);
                }
            });
            // Whole warps of neighbouring rows.
            for (std::int64_t i = 0; i < 256; i++) {
                c.chosen.push_back(s - 256 + i);
            }
            quatt_counters n{};
            (void)run(c, "emulate", Recipe("fp8"), 64, 0, &n);
            std::printf(" %9.2f", 100.0 * static_cast<double>(n.overflow_warp_tiles) /
                                      static_cast<double>(n.warp_tiles));
            refreshes.push_back(100.0 * static_cast<double>(n.refresh_warp_tiles) /
                                static_cast<double>(n.warp_tiles));
        }
        for (const double x : refreshes) {
            std::printf(" %9.2f", x);
        }
        std::printf("\n");
    }
}

void table_sinks(bool quick) {
    print_header("fp8, one key of weight .9 and V = 0: rel-L2 with it at this part of the row",
                 {"0", "0.3", "0.5", "1.0"});
    for (const std::int64_t s : quick ? std::vector<std::int64_t>{8192, 32768}
                                      : std::vector<std::int64_t>{8192, 32768, 131072}) {
        std::printf("S = %-30lld", static_cast<long long>(s));
        for (const double position : {0.0, .3, .5, 1.0}) {
            tools::SampleSpec spec = tools::SampleSpec::defaults(tools::SampleKind::kSink);
            spec.segment_tokens = {s};
            spec.heads_q = spec.heads_kv = quick ? 1 : 2;
            spec.sink_position = position;
            const Case c = make_case(spec, 64);
            std::printf(" %9.3f", rel_l2(c, run(c, "emulate", Recipe("fp8")),
                                         run(c, "reference", Recipe("bf16"))));
        }
        std::printf("\n");
    }
}

void table_vmeans(bool quick) {
    print_header("V = N(0,1) + 1, accumulator of Hopper: mean(out)/mean(exact) - 1, percent",
                 {"2048", "8192", "32768", "131072"});
    struct Variant {
        const char* name;
        bool centre, promote;
    };
    for (const Variant& v : {Variant{"fp8, neither", false, false},
                             {"fp8, promoted", false, true},
                             {"fp8, centred", true, false},
                             {"fp8, both", true, true}}) {
        std::printf("%-34s", v.name);
        for (const std::int64_t s : quick ? std::vector<std::int64_t>{2048, 8192}
                                          : std::vector<std::int64_t>{2048, 8192, 32768, 131072}) {
            const Case c = make_case(gaussian(s, 1), 32, [](tools::Sample& x) {
                for (float& y : x.v) {
                    y += 1;
                }
            });
            Recipe r("fp8");
            r.accumulator = QUATT_ACCUMULATOR_HOPPER;
            r.promotes = v.promote ? 1 : 0;
            r.v.center = v.centre ? r.v.center : QUATT_CENTER_NONE;
            const Output o = run(c, "emulate", r, 64, 0, nullptr, DType::f32),
                         e = run(c, "reference", r, 64, 0, nullptr, DType::f32);
            double a = 0, b = 0;
            for (std::size_t i = 0; i < o.out.size(); i++) {
                a += static_cast<double>(o.out[i]);
                b += static_cast<double>(e.out[i]);
            }
            std::printf(" %9.2f", 100 * (a / b - 1));
        }
        std::printf("\n");
    }
}

void table_vsizes(bool) {
    print_header("Size of V (largest element about this), S=1024: rel-L2", {"1e-3", "4.5", "6e4"});
    for (const char* name : {"fp8", "nvfp4", "nvfp4_fp8"}) {
        std::printf("%-34s", name);
        for (const double size : {1e-3, 4.5, 6e4}) {
            const Case c = make_case(gaussian(1024, 4), 64, [&](tools::Sample& x) {
                for (float& y : x.v) {
                    y *= static_cast<float>(size / 4.5);
                }
            });
            std::printf(" %9.4f",
                        rel_l2(c, run(c, "emulate", Recipe(name)),
                               run(c, "reference", Recipe(name), 64, 0, nullptr, DType::f32)));
        }
        std::printf("\n");
    }
}

Output exact(const Case& c) {
    return run(c, "reference", Recipe("fp8"), 64, 0, nullptr, DType::f32);
}
Output emulated(const Case& c, const quatt_recipe& r) {
    return run(c, "emulate", r, 64, 0, nullptr, DType::f32);
}

// The means and maxima of all tokens for K, V or both, and no far tokens.
Recipe with_exact_centres(const char* name, bool k = true, bool v = true) {
    Recipe r(name);
    r.k.center = k ? QUATT_CENTER_SEGMENT : r.k.center;
    r.v.center = v ? QUATT_CENTER_SEGMENT : r.v.center;
    return r;
}

Recipe with_v_in_fp32(const char* name) {
    Recipe r(name);
    r.v = Recipe("bf16").v;
    r.v.format = QUATT_FORMAT_F32;
    return r;
}

// A dominating key beside a V with a mean: what far tokens are for. Errors of P and of the scores
// are the same with V in fp32.
void table_sinkmeans(bool quick) {
    print_header(
        "One key of weight .9, S=8192: rel-L2; no far: V centred on exact means, all tokens; v32: "
        "V in "
        "fp32, which leaves scores and P",
        {"fp8", "uncentred", "no far", "v32", "int8_fp8", "v32", "nvfp4_fp8", "v32"});
    constexpr std::int64_t kTokens = 8192;
    Recipe uncentred("fp8");
    uncentred.v.center = QUATT_CENTER_NONE;
    const std::vector<Recipe> columns = {Recipe("fp8"),
                                         uncentred,
                                         with_exact_centres("fp8"),
                                         with_v_in_fp32("fp8"),
                                         Recipe("int8_fp8"),
                                         with_v_in_fp32("int8_fp8"),
                                         Recipe("nvfp4_fp8"),
                                         with_v_in_fp32("nvfp4_fp8")};
    for (const double position : {0.0, .6, 1.0}) {
        for (const double mean : {0.0, .3, 1.0, 3.0}) {
            for (const double v_sink : {0.0, .1}) {
                tools::SampleSpec spec = tools::SampleSpec::defaults(tools::SampleKind::kSink);
                spec.segment_tokens = {kTokens};
                spec.heads_q = spec.heads_kv = 1;
                spec.sink_position = position;
                const auto sink = static_cast<std::size_t>(std::llround(position * (kTokens - 1)));
                const Case c = make_case(spec, quick ? 16 : 64, [&](tools::Sample& s) {
                    const std::size_t other = (sink == 0 ? 1 : sink - 1) * 128;
                    const std::vector<float> z(
                        s.v.begin() + static_cast<std::ptrdiff_t>(other),
                        s.v.begin() + static_cast<std::ptrdiff_t>(other) + 128);
                    for (std::size_t i = 0; i < s.v.size(); i++) {
                        s.v[i] = i / 128 == sink ? static_cast<float>(v_sink) * z[i % 128]
                                                 : s.v[i] + static_cast<float>(mean);
                    }
                });
                const Output e = exact(c);
                std::printf("key at %3.1f, mean %3.1f, its V %3.1f z    ", position, mean, v_sink);
                for (const Recipe& r : columns) {
                    std::printf(" %9.4f", rel_l2(c, emulated(c, r), e));
                }
                std::printf("\n");
            }
        }
    }
}

// ---- the sample and far tokens of docs/recipes.md, in fp64 --------------------------------------

std::uint32_t scrambled(std::uint32_t x) {
    x *= 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

// Tokens of the sample, in order; of 16 neighbours the groups are those of group_of.
std::vector<std::int64_t> sampled_tokens(std::int64_t tokens) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(tokens, 1024); i++) {
        const std::int64_t first = i * tokens / 1024, end = (i + 1) * tokens / 1024;
        const std::uint64_t part = scrambled(~static_cast<std::uint32_t>(i));
        all.push_back(tokens <= 1024
                          ? i
                          : first + static_cast<std::int64_t>(
                                        part * static_cast<std::uint64_t>(end - first) >> 32));
    }
    return all;
}
std::size_t group_of(std::size_t i) {
    return i % 16 ^ scrambled(static_cast<std::uint32_t>(i / 16)) % 16;
}

double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x.empty() ? 0 : (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

// V of one head, [tokens, dim].
struct Values {
    std::int64_t tokens = 0, dim = 0;
    std::vector<double> x;
    [[nodiscard]] double at(std::int64_t j, std::int64_t d) const {
        return x[static_cast<std::size_t>(j * dim + d)];
    }
};

struct FarShare {
    double tokens = 0, tiles = 0;
};

FarShare far_share(const Values& v) {
    const std::vector<std::int64_t> sample = sampled_tokens(v.tokens);
    std::vector<double> center;
    double size = 0;
    for (std::int64_t d = 0; d < v.dim; d++) {
        std::vector<std::vector<double>> group(16);
        for (std::size_t i = 0; i < sample.size(); i++) {
            group[group_of(i)].push_back(v.at(sample[i], d));
        }
        std::vector<double> means, halves;
        for (const auto& g : group) {
            if (!g.empty()) {
                double sum = 0;
                for (const double x : g) {
                    sum += x;
                }
                const auto [low, high] = std::minmax_element(g.begin(), g.end());
                means.push_back(sum / static_cast<double>(g.size()));
                halves.push_back((*high - *low) / 2);
            }
        }
        double c = median(means), a = 0;
        const double h = median(halves);
        for (const std::int64_t j : sample) {
            a = std::max(a, std::fabs(v.at(j, d) - c));
        }
        if (!(std::fabs(c) >= a / 64 && c * c * static_cast<double>(sample.size()) >= 4 * h * h)) {
            c = 0;
        }
        center.push_back(c);
        size += c * c;
    }
    std::int64_t far = 0, tiles = 0, marked = -1;
    for (std::int64_t j = 0; j < v.tokens; j++) {
        double sum = 0;
        for (std::int64_t d = 0; d < v.dim; d++) {
            const double x = v.at(j, d) + center[static_cast<std::size_t>(d)];
            sum += x * x;
        }
        if (sum < 2 * size) {
            far++;
            tiles += marked == j / 64 ? 0 : 1;
            marked = j / 64;
        }
    }
    return {static_cast<double>(far) / static_cast<double>(v.tokens),
            static_cast<double>(tiles) / static_cast<double>((v.tokens + 63) / 64)};
}

// ---- captures
// ------------------------------------------------------------------------------------

std::string data_folder = "tests/data";

// Segments of all layers of all captures: name of the layer, and a Case that is not causal.
std::vector<std::pair<std::string, std::vector<Case>>> captures(std::int64_t rows) {
    std::vector<std::pair<std::string, std::vector<Case>>> all;
    std::vector<std::string> files;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(data_folder, none)) {
        if (entry.path().extension() == ".safetensors") {
            files.push_back(entry.path().string());
        }
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) {
        std::printf("(no captures in %s)\n", data_folder.c_str());
    }
    for (const std::string& path : files) {
        const tools::SafetensorsFile file(path);
        for (const tools::TensorView& t : file.tensors()) {
            if (!t.name.ends_with(".q") || t.dtype != tools::Dtype::kBf16 || t.shape.size() != 3) {
                continue;
            }
            const std::string layer = t.name.substr(0, t.name.size() - 2);
            std::vector<std::int32_t> cu = {0, static_cast<std::int32_t>(t.shape[0])};
            if (const tools::TensorView* lengths = file.find("cu_seqlens")) {
                cu.resize(static_cast<std::size_t>(lengths->elements()));
                std::memcpy(cu.data(), lengths->bytes.data(), lengths->bytes.size());
            }
            std::vector<Case> cases;
            for (std::size_t i = 0; i + 1 < cu.size(); i++) {
                Case c;
                c.tokens = cu[i + 1] - cu[i];
                c.heads = t.shape[1];
                c.dim = t.shape[2];
                c.chosen = choose_rows(c.tokens, rows);
                const auto width = static_cast<std::size_t>(2 * c.heads * c.dim);
                for (const auto& [name, to] :
                     {std::pair{".q", &c.q}, std::pair{".k", &c.k}, std::pair{".v", &c.v}}) {
                    const tools::TensorView& x = file.at(layer + name);
                    to->resize(static_cast<std::size_t>(c.tokens) * width / 2);
                    std::memcpy(to->data(),
                                x.bytes.data() + static_cast<std::size_t>(cu[i]) * width,
                                to->size() * 2);
                }
                cases.push_back(std::move(c));
            }
            all.emplace_back(
                std::filesystem::path(path).stem().string().substr(0, 8) + ", " + layer,
                std::move(cases));
        }
    }
    return all;
}

// ---- the sample beside exact means and maxima
// ----------------------------------------------------

// Smooth functions of three coordinates and noise: tokens of a 45 x 80 x 21 grid.
void make_periodic(std::vector<float>& x, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    constexpr double kTurn = 6.283185307179586;
    for (std::size_t d = 0; d < 128; d++) {
        double wave[3], phase[3], size[3];
        for (std::size_t i = 0; i < 3; i++) {
            wave[i] = std::floor(1 + 4 * uniform());
            phase[i] = uniform();
            size[i] = 2 * uniform();
        }
        for (std::size_t j = 0; j * 128 < x.size(); j++) {
            const std::size_t at[3] = {j % 80, j / 80 % 45, j / 3600};
            const double period[3] = {80, 45, 21};
            double sum = 0;
            for (std::size_t i = 0; i < 3; i++) {
                sum +=
                    size[i] *
                    std::cos(kTurn * (wave[i] * static_cast<double>(at[i]) / period[i] + phase[i]));
            }
            x[j * 128 + d] = static_cast<float>(sum + .3 * static_cast<double>(x[j * 128 + d]));
        }
    }
}

// Channel means of V, [H, D].
std::vector<double> value_means(const Case& c) {
    const auto width = static_cast<std::size_t>(c.heads * c.dim);
    std::vector<float> v = c.wide_v;
    if (v.empty()) {
        v.resize(c.v.size());
        (void)quatt_convert(v.data(), QUATT_F32, c.v.data(), QUATT_BF16,
                            static_cast<std::int64_t>(v.size()));
    }
    std::vector<double> mean(width, 0.0);
    for (std::size_t i = 0; i < v.size(); i++) {
        mean[i % width] += static_cast<double>(v[i]) / static_cast<double>(c.tokens);
    }
    return mean;
}

// Errors of both of each head.
class SampleRow {
public:
    explicit SampleRow(std::string name) : name_(std::move(name)) {}

    // Where V alone is exact, P is the same in both.
    void add(const Case& c, bool k = true, bool v = true, DType out = DType::f32) {
        const Output e = exact(c);
        const std::vector<double> mean = value_means(c);
        for (std::size_t i = 0; i < 2; i++) {
            const Recipe r(kNames[i]);
            for (const auto& [recipe, to] :
                 {std::pair{r, &sampled_[i]},
                  std::pair{with_exact_centres(kNames[i], k, v), &exact_[i]}}) {
                const Output o = run(c, "emulate", recipe, 64, 0, nullptr, out);
                const std::vector<double> errors = head_errors(c, o, e, mean);
                to->insert(to->end(), errors.begin(), errors.end());
            }
        }
    }

    // The ratio of the means over heads, and its standard error.
    void print() const {
        std::printf("%-34s", name_.c_str());
        for (std::size_t i = 0; i < 2; i++) {
            const auto n = static_cast<double>(sampled_[i].size());
            double a = 0, b = 0, deviation = 0;
            for (std::size_t h = 0; h < sampled_[i].size(); h++) {
                a += sampled_[i][h] / n;
                b += exact_[i][h] / n;
            }
            for (std::size_t h = 0; h < sampled_[i].size(); h++) {
                deviation += std::pow(sampled_[i][h] - a / b * exact_[i][h], 2);
            }
            std::printf(" %9.5f %9.5f %9.3f %9.3f", a, b, a / b, std::sqrt(deviation) / (n * b));
        }
        std::printf("\n");
        std::fflush(stdout);
    }

private:
    static constexpr const char* kNames[] = {"fp8", "int8_fp8"};
    std::string name_;
    std::vector<double> sampled_[2], exact_[2];
};

void table_samples(bool quick) {
    print_header(
        "Centres and V's scale from the sample beside exact means and maxima: rel-L2 without V's "
        "mean, 8192 keys",
        {"fp8", "exact", "ratio", "+-", "int8_fp8", "exact", "ratio", "+-"});
    constexpr std::int64_t kTokens = 8192, kHeads = 8;
    const std::vector<std::int64_t> sample = sampled_tokens(kTokens);
    const std::int64_t inside = sample[500];
    std::int64_t outside = inside + 1;
    while (std::find(sample.begin(), sample.end(), outside) != sample.end()) {
        outside++;
    }
    // Changes of N(0,1). Rows of their own seldom tell more of a massive V than heads do, but of a
    // massive K they do.
    struct Change {
        std::string name;
        std::int64_t rows;
        bool k, v;  // which has exact centres in the other recipe
        enum { kBf16, kWideV, kNarrowOut } kind;
        std::function<void(tools::Sample&)> of;
    };
    std::vector<Change> changes = {
        {"N(0,1)", 16, true, true, Change::kBf16, [](tools::Sample&) {}}};
    for (const bool is_v : {false, true}) {
        for (const std::int64_t at : {inside, outside}) {
            for (const int size : {100, 1000}) {
                changes.push_back(
                    {std::string(is_v ? "V" : "K") + ", one token of " + std::to_string(size) +
                         (at == inside ? ", inside" : ", outside"),
                     is_v ? 16 : 128, !is_v, is_v, Change::kBf16, [=](tools::Sample& s) {
                         std::vector<float>& x = is_v ? s.v : s.k;
                         for (std::int64_t i = 0; i < kHeads * 128; i++) {
                             x[static_cast<std::size_t>(at * kHeads * 128 + i)] *=
                                 static_cast<float>(size);
                         }
                     }});
            }
        }
        for (const int mean : {3, 30, 300}) {
            for (const auto& [kind, text] : {std::pair{Change::kWideV, ", fp32"},
                                             {Change::kBf16, ""},
                                             {Change::kNarrowOut, ", out in bf16"}}) {
                if (is_v || kind == Change::kBf16) {
                    changes.push_back({std::string(is_v ? "V" : "K") + ", means of " +
                                           std::to_string(mean) + text,
                                       16, !is_v, is_v, kind, [=](tools::Sample& s) {
                                           std::size_t i = 0;
                                           for (float& x : is_v ? s.v : s.k) {
                                               x += static_cast<float>(i++ % 2 == 0 ? mean : -mean);
                                           }
                                       }});
                }
            }
        }
    }
    std::vector<SampleRow> rows;
    for (const Change& change : changes) {
        rows.emplace_back(change.name);
    }
    for (std::uint64_t seed = 1; seed <= (quick ? 1u : 8u); seed++) {
        const tools::SampleSpec spec = gaussian(kTokens, kHeads, seed);
        const tools::Sample normal = tools::make_sample(spec);
        for (std::size_t i = 0; i < changes.size(); i++) {
            tools::Sample s = normal;
            changes[i].of(s);
            Case c = case_of(spec, s, changes[i].rows);
            if (changes[i].kind == Change::kWideV) {
                c.wide_v = s.v;
            }
            rows[i].add(c, changes[i].k, changes[i].v,
                        changes[i].kind == Change::kNarrowOut ? DType::bf16 : DType::f32);
        }
    }
    for (const SampleRow& row : rows) {
        row.print();
    }
    for (const std::int64_t n : {32, 64, 128}) {
        SampleRow row("N(0,1), " + std::to_string(n) + " keys");
        row.add(make_case(gaussian(n, 256), 32));
        row.print();
    }
    SampleRow dit("dit");
    for (std::uint64_t seed = 1; seed <= (quick ? 1u : 4u); seed++) {
        tools::SampleSpec spec = tools::SampleSpec::defaults(tools::SampleKind::kDit);
        spec.segment_tokens = {kTokens};
        spec.heads_q = spec.heads_kv = kHeads;
        spec.seed = seed;
        dit.add(make_case(spec, 64));
    }
    dit.print();
    SampleRow grid("grid of 45 x 80 x 21, 75600 keys");
    for (std::uint64_t seed = 1; seed <= (quick ? 0u : 6u); seed++) {
        grid.add(make_case(gaussian(75600, 1, seed), 32, [&](tools::Sample& s) {
            make_periodic(s.q, 3 * seed);
            make_periodic(s.k, 3 * seed + 1);
            make_periodic(s.v, 3 * seed + 2);
        }));
    }
    if (!quick) {
        grid.print();
    }
    for (const auto& [name, cases] : captures(512)) {
        for (const auto& [k, v, text] :
             {std::tuple{true, true, ""}, {true, false, ", K"}, {false, true, ", V"}}) {
            SampleRow row(name + text);
            for (const Case& c : cases) {
                row.add(c, k, v);
            }
            row.print();
        }
    }
}

void print_far(const std::string& name, const std::vector<FarShare>& shares) {
    std::printf("%-34s", name.c_str());
    for (const FarShare& s : shares) {
        std::printf("  %6.2f %6.2f", 100 * s.tokens, 100 * s.tiles);
    }
    std::printf("\n");
}

FarShare mean_share(std::int64_t heads, const std::function<FarShare(std::int64_t head)>& of) {
    FarShare sum;
    for (std::int64_t h = 0; h < heads; h++) {
        const FarShare s = of(h);
        sum.tokens += s.tokens / static_cast<double>(heads);
        sum.tiles += s.tiles / static_cast<double>(heads);
    }
    return sum;
}

void table_far(bool quick) {
    const std::vector<std::int64_t> dims = {8, 16, 32, 64, 96, 128};
    const std::int64_t heads = quick ? 2 : 8;
    std::printf("\nFar tokens, and tiles of 64 keys that have one, percent; S=8192\n%-34s", "");
    for (const std::int64_t d : dims) {
        std::printf("  %13s", ("D = " + std::to_string(d)).c_str());
    }
    std::printf("\n");
    for (const bool log_normal : {false, true}) {
        for (const double mean : {0.0, .3, 1.0, 3.0}) {
            std::vector<FarShare> row;
            for (const std::int64_t dim : dims) {
                tools::SampleSpec spec = gaussian(8192, heads, 2);
                spec.head_dim = dim;
                const tools::Sample s = tools::make_sample(spec);
                row.push_back(mean_share(heads, [&](std::int64_t h) {
                    Values v{8192, dim, {}};
                    for (std::int64_t i = 0; i < 8192 * dim; i++) {
                        const std::int64_t d = i % dim, from = (i / dim * heads + h) * dim + d;
                        // The deviation of a channel is e^z, z of K's first token.
                        const double z = static_cast<double>(
                                         s.k[static_cast<std::size_t>(h * dim + d)]),
                                     size = log_normal ? std::exp(z) : 1;
                        v.x.push_back(
                            size *
                            (static_cast<double>(s.v[static_cast<std::size_t>(from)]) + mean));
                    }
                    return far_share(v);
                }));
            }
            char name[64];
            std::snprintf(name, sizeof name, "%s, mean %3.1f",
                          log_normal ? "channels e^z (N(0,1) + mean)" : "N(0,1) + mean", mean);
            print_far(name, row);
        }
    }
    for (const auto& [name, cases] : captures(1)) {
        FarShare all;
        for (const Case& c : cases) {
            std::vector<float> wide(c.v.size());
            (void)quatt_convert(wide.data(), QUATT_F32, c.v.data(), QUATT_BF16,
                                static_cast<std::int64_t>(c.v.size()));
            const FarShare s = mean_share(c.heads, [&](std::int64_t h) {
                Values v{c.tokens, c.dim, {}};
                for (std::int64_t i = 0; i < c.tokens * c.dim; i++) {
                    v.x.push_back(static_cast<double>(wide[static_cast<std::size_t>(
                        (i / c.dim * c.heads + h) * c.dim + i % c.dim)]));
                }
                return far_share(v);
            });
            all.tokens += s.tokens / static_cast<double>(cases.size());
            all.tiles += s.tiles / static_cast<double>(cases.size());
        }
        print_far(name + ", D = " + std::to_string(cases[0].dim), {all});
    }
}

// ---- causality
// -----------------------------------------------------------------------------------

// How far b is from a, in rms of a: rms, largest.
std::pair<double, double> change(const Output& a, const Output& b, std::size_t first,
                                 std::size_t last) {
    double sum = 0, norm = 0, most = 0;
    for (std::size_t i = first; i < last; i++) {
        const double x = static_cast<double>(a.out[i]), y = static_cast<double>(b.out[i]);
        sum += (x - y) * (x - y);
        norm += x * x;
        most = std::max(most, std::fabs(x - y));
    }
    return {std::sqrt(sum / norm), most / std::sqrt(norm / static_cast<double>(last - first))};
}

// What later keys do to earlier rows: nothing in exact attention.
void table_causal(bool) {
    print_header(
        "Causal prefill, N(0,1): change of rows before the last, in rms of these rows: rms, "
        "largest",
        {"new last", "", "100 std", "", "decode", ""});
    for (const std::int64_t n : {1000, 8192}) {
        tools::SampleSpec spec = gaussian(n, 4, 3);
        const auto with_last = [&](float factor) {
            Case c = make_case(spec, 64, [&](tools::Sample& s) {
                const std::size_t width = 4 * 128, last = static_cast<std::size_t>(n - 1) * width;
                for (std::size_t i = 0; factor != 0 && i < width; i++) {
                    s.k[last + i] = factor * s.q[i];
                    s.v[last + i] = factor * s.q[width + i];
                }
            });
            return c;
        };
        const Case plain = with_last(0), other = with_last(1), large = with_last(100);
        const std::size_t width = 4 * 128, rows = plain.chosen.size() - 1;  // but the last
        for (const std::string& name : recipes()) {
            const auto of = [&](const Case& c) {
                return run(c, "emulate", Recipe(name), 64, 0, nullptr, DType::f32, true);
            };
            const Output a = of(plain);
            std::printf("%-34s", (name + ", " + std::to_string(n) + " keys").c_str());
            for (const Case* c : {&other, &large}) {
                const auto [rms, most] = change(a, of(*c), 0, rows * width);
                std::printf(" %9.1e %9.1e", rms, most);
            }
            // Row n / 2 as a decoder has it, which has no later keys.
            const std::int64_t row = plain.chosen[rows / 2];
            Case cut = plain;
            cut.tokens = row + 1;
            for (std::vector<std::uint16_t>* x : {&cut.q, &cut.k, &cut.v}) {
                x->resize(static_cast<std::size_t>(cut.tokens) * width);
            }
            cut.chosen = {row};
            Output one;
            one.out.assign(a.out.begin() + static_cast<std::ptrdiff_t>(rows / 2 * width),
                           a.out.begin() + static_cast<std::ptrdiff_t>((rows / 2 + 1) * width));
            const auto [rms, most] = change(one, of(cut), 0, width);
            std::printf(" %9.1e %9.1e\n", rms, most);
        }
    }
}

struct Table {
    const char* name;
    void (*print)(bool quick);
};
constexpr Table kTables[] = {
    {"recipes", table_recipes}, {"means", table_means},         {"tiles", table_tiles},
    {"rates", table_rates},     {"sinks", table_sinks},         {"vmeans", table_vmeans},
    {"vsizes", table_vsizes},   {"sinkmeans", table_sinkmeans}, {"samples", table_samples},
    {"far", table_far},         {"causal", table_causal}};

}  // namespace

int main(int argc, char** argv) {
    try {
        bool quick = false;
        std::vector<std::string> wanted;
        for (int i = 1; i < argc; i++) {
            if (std::strcmp(argv[i], "--quick") == 0) {
                quick = true;
            } else if (std::strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
                data_folder = argv[++i];
            } else {
                wanted.emplace_back(argv[i]);
            }
        }
        for (const Table& t : kTables) {
            if (wanted.empty() || std::find(wanted.begin(), wanted.end(), t.name) != wanted.end()) {
                t.print(quick);
                std::fflush(stdout);
            }
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "accuracy: %s\n", e.what());
        return 1;
    }
    return 0;
}

// Measures what docs/recipes.md publishes: the error of every recipe against fp64, and the cases
// that each rule of a recipe is for.
//
//   accuracy [--quick] [TABLE...]     tables: recipes means tiles rates sinks vmeans vsizes
//   sinkmeans; all of them by default
//
// Inputs are N(0,1) rounded to bf16 unless a table says otherwise, D = 128; rows are chosen at
// random, the last ones included.
#include <quatt/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sample.hpp"

namespace {

using namespace quatt;

struct Case {
    std::int64_t tokens = 1024, heads = 16, dim = 128, rows = 256;
    std::vector<std::uint16_t> q, k, v;  // bf16 [T, H, D]
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

Case make_case(const tools::SampleSpec& spec, std::int64_t rows,
               const std::function<void(tools::Sample&)>& change = {}) {
    tools::Sample s = tools::make_sample(spec);
    if (change) {
        change(s);
    }
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
           int splits = 0, quatt_counters* counters = nullptr, DType out_type = DType::bf16) {
    const std::size_t n = static_cast<std::size_t>(c.tokens * c.heads * c.dim);
    std::vector<float> out(n), lse(static_cast<std::size_t>(c.tokens * c.heads));
    std::vector<std::uint16_t> narrow(out_type == DType::f32 ? 0 : n);
    const auto view = [&](const void* p, DType t) {
        return Tensor(p, t, {c.tokens, c.heads, c.dim});
    };
    const bool wide = out_type == DType::f32;
    Problem p(recipe, view(c.q.data(), DType::bf16), view(c.k.data(), DType::bf16),
              view(c.v.data(), DType::bf16),
              view(wide ? static_cast<void*>(out.data()) : narrow.data(), out_type));
    p.tensors.lse = Tensor(lse.data(), DType::f32, {c.heads, c.tokens});
    p.rows = c.chosen.data();
    p.row_count = static_cast<std::int64_t>(c.chosen.size());
    p.key_tile = key_tile;
    p.splits = splits;
    p.tensors.counters = counters;
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

// Relative L2 error a head, mean over heads.
double rel_l2(const Case& c, const Output& a, const Output& b) {
    double sum = 0;
    const auto row = static_cast<std::size_t>(c.heads * c.dim);
    for (std::int64_t h = 0; h < c.heads; h++) {
        double error = 0, norm = 0;
        for (std::size_t r = 0; r < c.chosen.size(); r++) {
            for (std::int64_t d = 0; d < c.dim; d++) {
                const std::size_t i = r * row + static_cast<std::size_t>(h * c.dim + d);
                const double x = static_cast<double>(a.out[i]), y = static_cast<double>(b.out[i]);
                error += (x - y) * (x - y);
                norm += y * y;
            }
        }
        sum += std::sqrt(error / norm);
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
            r.v.center = v.centre ? QUATT_CENTER_SEGMENT : QUATT_CENTER_NONE;
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

// A dominating key beside a V with a mean: what centring costs such rows (docs/recipes.md).
void table_sinkmeans(bool) {
    print_header("One key of weight .9, S=32768, channel means of V, V of that key: rel-L2",
                 {"fp8", "uncentred", "int8_fp8", "nvfp4_fp8"});
    for (const double mean : {0.0, .3, 1.0}) {
        for (const double v_sink : {0.0, .1}) {
            tools::SampleSpec spec = tools::SampleSpec::defaults(tools::SampleKind::kSink);
            spec.segment_tokens = {32768};
            spec.heads_q = spec.heads_kv = 1;
            spec.sink_position = .5;
            const auto sink = static_cast<std::size_t>(std::llround(.5 * 32767));
            const Case c = make_case(spec, 64, [&](tools::Sample& s) {
                for (std::size_t i = 0; i < s.v.size(); i++) {
                    const bool of_sink = i / 128 == sink;
                    s.v[i] = of_sink ? static_cast<float>(v_sink) * s.v[i + 128]
                                     : s.v[i] + static_cast<float>(mean);
                }
            });
            const Output exact = run(c, "reference", Recipe("fp8"), 64, 0, nullptr, DType::f32);
            std::printf("mean %3.1f, V of the key %3.1f z      ", mean, v_sink);
            Recipe uncentred("fp8");
            uncentred.v.center = QUATT_CENTER_NONE;
            for (const Recipe& r :
                 {Recipe("fp8"), uncentred, Recipe("int8_fp8"), Recipe("nvfp4_fp8")}) {
                std::printf(" %9.4f",
                            rel_l2(c, run(c, "emulate", r, 64, 0, nullptr, DType::f32), exact));
            }
            std::printf("\n");
        }
    }
}

struct Table {
    const char* name;
    void (*print)(bool quick);
};
constexpr Table kTables[] = {{"recipes", table_recipes}, {"means", table_means},
                             {"tiles", table_tiles},     {"rates", table_rates},
                             {"sinks", table_sinks},     {"vmeans", table_vmeans},
                             {"vsizes", table_vsizes},   {"sinkmeans", table_sinkmeans}};

}  // namespace

int main(int argc, char** argv) {
    try {
        bool quick = false;
        std::vector<std::string> wanted;
        for (int i = 1; i < argc; i++) {
            if (std::strcmp(argv[i], "--quick") == 0) {
                quick = true;
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

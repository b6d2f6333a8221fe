// The commands of the program, without their command line: options in, exit status out.
//
// They print results on standard output and throw Error (or quatt::Error) where they fail; cli.cpp
// reads the flags and turns errors into messages.
#pragma once

#include <quatt/quatt.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parse.hpp"
#include "safetensors.hpp"
#include "sample.hpp"

namespace quatt::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// A fault of the command line: exit status 2.
class UsageError : public Error {
public:
    using Error::Error;
};

// How q, k, v and the output lie in a file: [batch, tokens, heads, head size], or with the heads
// before the tokens, as torch's attention has them. Without the batch where packed.
enum class Layout : std::uint8_t { kTokensFirst, kHeadsFirst };

// How attention over a file's tensors is to be computed. What is absent comes from the file's
// metadata (softmax_scale, causal, window, qkv_layout), else it is the usual.
struct ProblemOptions {
    std::string device = "cpu";
    std::string kernel;  // "": the library's choice
    std::int32_t key_tile = 0;
    std::int32_t splits = 0;
    std::int32_t threads = 0;
    std::optional<double> softmax_scale;
    std::optional<bool> causal;
    std::optional<Window> window;
    std::optional<Layout> layout;
    std::optional<std::string> sink;  // name of a tensor
    std::optional<quatt_dtype> out_dtype;
};

[[nodiscard]] int run_info();

struct ExplainOptions {
    std::string recipe = "fp8";
    std::string device = "cpu";
    std::string kernel;
    std::int64_t batch = 1;
    std::int64_t seqlen_q = 4096;
    std::int64_t seqlen_k = 4096;
    bool packed = false;
    std::vector<std::int64_t> segments;  // lengths; makes the problem packed
    std::int64_t heads = 8;
    std::optional<std::int64_t> heads_kv;
    std::int64_t head_dim = 128;
    std::optional<std::int64_t> head_dim_v;
    quatt_dtype dtype = QUATT_BF16;
    std::optional<quatt_dtype> kv_dtype;
    quatt_dtype out_dtype = QUATT_BF16;
    bool descales = false;
    bool causal = false;
    Window window;
    std::optional<double> softmax_scale;
    bool lse = false;
    bool sink = false;
    bool kv_lens = false;
    std::optional<std::int32_t> compute_major;
    std::int32_t compute_minor = 0;
    std::int32_t sm_count = 0;
    std::int32_t key_tile = 0;
    std::int32_t splits = 0;
    std::int32_t threads = 0;
    bool allow_fallback = false;
    bool strict = false;
};
[[nodiscard]] int run_explain(const ExplainOptions& options);

struct AttendOptions {
    std::string input;
    std::string output;
    std::string recipe;
    std::optional<std::string> layer;
    ProblemOptions problem;
    bool lse = false;
    bool force = false;
    bool quiet = false;
};
[[nodiscard]] int run_attend(const AttendOptions& options);

struct CheckOptions {
    std::string input;
    std::vector<std::string> layers;  // empty: all
    std::vector<std::string> recipes = {"bf16",     "fp8",   "fp8_head",
                                        "int8_fp8", "nvfp4", "nvfp4_fp8"};
    std::int64_t rows = 256;
    std::uint64_t seed = 1;
    std::optional<double> bound;       // none: the usual one
    std::string json;                  // "": none; "-": standard output, instead of the tables
    std::string report;                // an HTML file; "": none
    std::vector<std::string> command;  // as typed, for the report
    ProblemOptions problem;
    bool force = false;
    bool quiet = false;
};
[[nodiscard]] int run_check(const CheckOptions& options);

struct SampleOptions {
    SampleSpec spec;
    std::string output;
    Dtype dtype = Dtype::kBf16;
    bool force = false;
    bool quiet = false;
};
[[nodiscard]] int run_sample(const SampleOptions& options);

// [batch, tokens, heads, head size] of q; k and v may have fewer heads.
struct BenchShape {
    std::int64_t batch = 1;
    std::int64_t tokens = 1024;
    std::int64_t heads = 8;
    std::int64_t head_dim = 128;
};

struct BenchOptions {
    std::vector<BenchShape> shapes = {{}};
    std::optional<std::int64_t> heads_kv;
    bool causal = false;
    std::vector<std::string> recipes = {"bf16", "fp8"};
    std::string device = "cpu";
    std::string kernel;  // "": the library's choice
    std::int32_t threads = 0;
    std::int64_t warmup = 1;
    std::int64_t rounds = 7;
    std::string json;  // "": none; "-": standard output, instead of the table
    bool force = false;
    bool quiet = false;
};
[[nodiscard]] int run_bench(const BenchOptions& options);
// kExitFailure where something became slower.
[[nodiscard]] int run_bench_compare(const std::string& old_path, const std::string& new_path);
// Becomes bench/peers.py with this library and these arguments; returns only by throwing Error.
[[noreturn]] void run_bench_peers(const std::vector<std::string>& arguments);

}  // namespace quatt::tools

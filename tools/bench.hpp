// What `quatt bench` measures, and when two measurements differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"

namespace quatt::tools {

// Of some times in ms.
struct Spread {
    double median = 0;
    double q1 = 0;
    double q3 = 0;
    double lowest = 0;
};
// Quartiles are interpolated between the times. `ms` is not empty.
[[nodiscard]] Spread spread_of(std::vector<double> ms);

struct BenchResult {
    BenchShape shape;
    std::int64_t heads_kv = 0;
    bool causal = false;
    std::string recipe;
    std::string kernel;
    std::int32_t key_tile = 0;
    std::int32_t threads = 0;
    std::int64_t runs = 1;  // that follow each other in one timing
    Spread ms;              // of one of them
    double rel_l2 = 0;      // of some rows, to fp64

    // "1x1024x8x128", with "kv 2" and "causal" where they hold
    [[nodiscard]] std::string title() const;
    // Of the two matrix products: 4 for each pair of a query and a key that it sees, head and
    // channel.
    [[nodiscard]] double flop() const;
    [[nodiscard]] double gflops() const { return flop() / ms.median / 1e6; }
};

// `gpu` is its name, or "" on a host device.
[[nodiscard]] std::string bench_json(const std::vector<BenchResult>& results,
                                     const BenchOptions& options, const std::string& gpu);

// One time of a file, by a name that is the same in every file.
struct Timing {
    std::string name;
    double median = 0;
    double q1 = 0;
    double q3 = 0;
};
struct Timings {
    std::string where;  // device or GPU
    std::vector<Timing> rows;
};
// The JSON of `quatt bench` or of bench/peers.py. Throws Error, which names the file.
[[nodiscard]] Timings read_timings(const std::string& path);

enum class Change : std::uint8_t { kNone, kFaster, kSlower };
// Medians differ where they are farther apart than 2 % of the old one and than the distance of the
// quartiles of either.
[[nodiscard]] Change change_of(const Timing& before, const Timing& after);

}  // namespace quatt::tools

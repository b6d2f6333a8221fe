// quatt bench --compare: what moved between two measurements.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "output.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

using Json = nlohmann::json;

constexpr double kLeastChange = 0.02;  // of the old median
constexpr int kVersion = 1;            // of both kinds of file

Timings bench_timings(const Json& json) {
    Timings timings{json.at("device").get<std::string>(), {}};
    if (const auto machine = json.find("machine"); machine != json.end()) {
        timings.where += ", " + machine->at("gpu").get<std::string>();
    }
    for (const Json& r : json.at("results")) {
        timings.rows.push_back({.name = r.at("name"),
                                .median = r.at("median_ms"),
                                .q1 = r.at("q1_ms"),
                                .q3 = r.at("q3_ms")});
    }
    return timings;
}

Timings peers_timings(const Json& json) {
    Timings timings{json.at("machine").at("gpu").get<std::string>(), {}};
    for (const Json& shape : json.at("shapes")) {
        for (const auto& [candidate, times] : shape.at("candidates").items()) {
            for (const std::string what : {"call", "kernel"}) {
                if (const auto ms = times.find(what + "_ms"); ms != times.end()) {
                    timings.rows.push_back({.name = shape.at("name").get<std::string>() + " " +
                                                    candidate + ", " + what,
                                            .median = ms->at("median"),
                                            .q1 = ms->at("q1"),
                                            .q3 = ms->at("q3")});
                }
            }
        }
    }
    return timings;
}

}  // namespace

Timings read_timings(const std::string& path) {
    const std::string where = printable(path, 200) + ": ";
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (!stream) {
        throw Error(where + "cannot be read");
    }
    try {
        const Json json = Json::parse(text);
        const std::string schema = json.at("schema");
        if (json.at("version") != kVersion ||
            (schema != "quatt.bench" && schema != "quatt.peers")) {
            throw Error(where + "schema " + in_quotes(schema) + ", version " +
                        json.at("version").dump() +
                        "; allowed are quatt.bench and quatt.peers, version 1");
        }
        return schema == "quatt.bench" ? bench_timings(json) : peers_timings(json);
    } catch (const Json::exception& error) {
        throw Error(where + "is no measurement of quatt bench: " + printable(error.what(), 200));
    }
}

Change change_of(const Timing& before, const Timing& after) {
    const double noise =
        std::max({kLeastChange * before.median, before.q3 - before.q1, after.q3 - after.q1});
    const double moved = after.median - before.median;
    if (std::fabs(moved) <= noise) {
        return Change::kNone;
    }
    return moved > 0 ? Change::kSlower : Change::kFaster;
}

int run_bench_compare(const std::string& old_path, const std::string& new_path) {
    const Timings before = read_timings(old_path);
    const Timings after = read_timings(new_path);
    Table table({{"", Align::kLeft}, {"old ms"}, {"new ms"}, {"new / old"}, {"", Align::kLeft}});
    std::string text;
    std::size_t slower = 0;
    std::size_t faster = 0;
    for (const Timing& b : before.rows) {
        const auto a = std::ranges::find(after.rows, b.name, &Timing::name);
        if (a == after.rows.end()) {
            text += "only in the old file: " + printable(b.name) + "\n";
            continue;
        }
        const Change change = change_of(b, *a);
        slower += change == Change::kSlower ? 1U : 0U;
        faster += change == Change::kFaster ? 1U : 0U;
        table.add_row({b.name, format_significant(b.median, 4), format_significant(a->median, 4),
                       format_fixed(a->median / b.median, 3),
                       change == Change::kSlower   ? "SLOWER"
                       : change == Change::kFaster ? "faster"
                                                   : ""});
    }
    for (const Timing& a : after.rows) {
        if (std::ranges::find(before.rows, a.name, &Timing::name) == before.rows.end()) {
            text += "only in the new file: " + printable(a.name) + "\n";
        }
    }
    if (table.rows() == 0) {
        throw Error(printable(old_path, 200) + " and " + printable(new_path, 200) +
                    " have no measurement in common");
    }
    if (before.where != after.where) {
        text += "note: the old file is of " + printable(before.where) + ", the new one of " +
                printable(after.where) + "\n";
    }
    print(table.text() + text + std::to_string(slower) + " slower, " + std::to_string(faster) +
          " faster, of " + std::to_string(table.rows()) +
          "; medians no farther apart than 2 % or the quartiles of either count as equal\n");
    return slower == 0 ? kExitOk : kExitFailure;
}

}  // namespace quatt::tools

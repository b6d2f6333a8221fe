// The commands as the command line has them.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app_text.hpp"
#include "commands.hpp"

namespace quatt::tools {

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

struct BenchFlags {
    BenchOptions options;
    std::vector<std::string> compare;
    bool peers = false;
    std::vector<std::string> peers_arguments;  // all that stands behind --peers
};

// What is read from the command line, and what it asks for.
struct Program {
    Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() = default;

    CLI::App& add_command(const std::string& name, const std::string& description,
                          const std::string& footer);
    [[nodiscard]] std::vector<std::string> command_names() const;

    CLI::App app;
    Completions completions;
    std::function<int()> action;  // of the command given

    ExplainOptions explain;
    AttendOptions attend;
    CheckOptions check;
    SampleFlags sample;
    BenchFlags bench;
};

// Those that do something with attention: info, explain, attend, check, sample and bench.
void add_commands(Program& program);

}  // namespace quatt::tools

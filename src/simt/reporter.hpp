// Collects the reports of one block: each fault once a place, counted.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "simt/types.hpp"

namespace quatt::simt {

class Reporter {
public:
    void begin(std::string kernel, Dim3 block, std::uint32_t threads) {
        kernel_ = std::move(kernel);
        threads_ = threads;
        block_ = block;
        reports_.clear();
        seen_.clear();
    }

    // `thread` counts through the blocks of a cluster. `against` is the other side of a conflict.
    // `detail` is called for the first occurrence only: a race repeats thousands of times.
    template <class Detail>
    void add(Fault fault, const Site& site, std::uint32_t thread, const Site& against,
             Detail detail) {
        const auto [found, is_new] = seen_.try_emplace(key(fault, site, against), reports_.size());
        if (!is_new) {
            reports_[found->second].count++;
            return;
        }
        reports_.push_back({fault, kernel_, block_, thread % threads_, site, against, detail(), 1});
    }

    // Adds the reports of one block to those of the launch.
    static void merge(std::vector<Report>& into, const std::vector<Report>& block);

    [[nodiscard]] const std::vector<Report>& reports() const { return reports_; }

private:
    using Key = std::tuple<Fault, std::string_view, unsigned, unsigned, std::string_view, unsigned,
                           unsigned>;
    static Key key(Fault fault, const Site& site, const Site& against) {
        return {fault,          site.file_name(), site.line(), site.column(), against.file_name(),
                against.line(), against.column()};
    }

    std::string kernel_;
    Dim3 block_;
    std::uint32_t threads_ = 1;  // of a block
    std::vector<Report> reports_;
    std::map<Key, std::size_t> seen_;
};

[[nodiscard]] bool is_same(const Site& a, const Site& b);
// "file.cuh:12"
[[nodiscard]] std::string describe(const Site& site);

}  // namespace quatt::simt

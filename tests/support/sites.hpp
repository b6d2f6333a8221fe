// Walks the synchronisation instructions that a kernel passes in the executor and takes away, or
// delays, one at a time.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simt/types.hpp"

namespace quatt::test {

// One way to run the kernels at hand, small: what it computed, and what the executor reported.
struct SceneOutcome {
    std::vector<std::uint32_t> bits;
    simt::Result report;
};
struct Scene {
    std::string name;
    std::function<SceneOutcome(const simt::Options&)> run;
};

// A site whose loss nothing notices, by what does not change when lines move.
struct Unnoticed {
    const char* file;  // how its path ends
    const char* instruction;
    const char* snippet;      // of the source line, or of the two before and this one
    const char* why;          // with the section of the PTX ISA
    const char* kernel = "";  // by its launch's name; "": in any
    const char* recipe = "";  // how the walk's name begins; "": in any
};

struct PassedSite {
    simt::SyncSite site;
    std::string path;                 // of its file, from src/ or tests/ on
    std::string text, before;         // its source line, and the two before it
    std::vector<std::size_t> scenes;  // that pass it

    [[nodiscard]] std::string name() const {
        return path + ":" + std::to_string(site.site.line()) + ": " + site.instruction + " in " +
               site.kernel + ": " + text;
    }
    [[nodiscard]] bool is(const Unnoticed& u) const {
        const std::string all = before + text;
        const std::size_t at = all.rfind(u.snippet);
        return path.ends_with(u.file) && std::strcmp(site.instruction, u.instruction) == 0 &&
               at != std::string::npos && at + std::strlen(u.snippet) > before.size() &&
               (*u.kernel == '\0' || site.kernel == u.kernel);
    }
};

struct WalkOptions {
    std::uint64_t stride = 1, first = 0;  // each stride-th site, from one that `first` picks
    // A fence between reads and the copy that overwrites what they read is the strict reading of
    // the memory model; only with it are those fences seen.
    bool fence_after_reads = true;
};

class SiteWalk {
public:
    SiteWalk(std::string name, std::vector<Scene> scenes, const WalkOptions& options = {})
        : name_(std::move(name)), scenes_(std::move(scenes)), options_(options) {
        for (std::size_t i = 0; i < scenes_.size(); i++) {
            record(i);
        }
    }

    [[nodiscard]] const std::vector<PassedSite>& sites() const { return sites_; }

    // The loss of each site is noticed, by a report or by wrong bits, at one of so many seeds and
    // in one of the scenes; that of a site in the list is not.
    void drop_each(std::uint64_t seeds, const std::vector<Unnoticed>& list) {
        for (std::size_t i = 0; i < sites_.size(); i++) {
            if (is_skipped(i)) {
                continue;
            }
            const PassedSite& site = sites_[i];
            const auto known = std::find_if(list.begin(), list.end(), [&](const Unnoticed& u) {
                return is_for_this(u) && site.is(u);
            });
            const std::string by = noticed_by(site, seeds);
            if (known == list.end()) {
                EXPECT_FALSE(by.empty())
                    << name_ << ": nothing notices the loss of\n  " << site.name();
            } else {
                EXPECT_TRUE(by.empty()) << name_ << ": the list says that nothing notices the loss "
                                        << "of\n  " << site.name() << "\nbut here is\n"
                                        << by;
            }
        }
        for (const Unnoticed& u : list) {
            EXPECT_TRUE(!is_for_this(u) ||
                        std::any_of(sites_.begin(), sites_.end(),
                                    [&](const PassedSite& site) { return site.is(u); }))
                << name_ << ": no site is what the list has as " << u.file << ": " << u.instruction
                << ": " << u.snippet;
        }
    }

    // Whoever comes late to a site: nothing is reported, and the bits are the same.
    void delay_each(std::uint64_t seeds) {
        for (std::size_t i = 0; i < sites_.size(); i++) {
            if (is_skipped(i)) {
                continue;
            }
            for (std::uint64_t n = 0; n < seeds; n++) {
                const std::size_t scene = sites_[i].scenes[n % sites_[i].scenes.size()];
                const SceneOutcome late =
                    run(scene, sites_[i], simt::SiteFault::Kind::kDelay, 5 * i + n);
                EXPECT_TRUE(late.report.ok())
                    << where(scene, 5 * i + n) << ": who comes late to\n  " << sites_[i].name()
                    << "\nmeets\n"
                    << late.report.summary();
                EXPECT_EQ(late.bits, bits_[scene])
                    << where(scene, 5 * i + n) << ": late at\n  " << sites_[i].name();
            }
        }
    }

    void print(std::ostream& o) const {
        o << name_ << ": " << sites_.size() << " sites, one in " << options_.stride << "; " << runs_
          << " runs\n";
    }

private:
    [[nodiscard]] bool is_skipped(std::size_t i) const {
        return (i + options_.first) % options_.stride != 0;
    }
    [[nodiscard]] bool is_for_this(const Unnoticed& u) const { return name_.starts_with(u.recipe); }
    [[nodiscard]] std::string where(std::size_t scene, std::uint64_t seed) const {
        return name_ + ", " + scenes_[scene].name + ", seed " + std::to_string(seed);
    }
    [[nodiscard]] simt::Options options(std::uint64_t seed) const {
        return {
            .seed = seed, .fence_after_reads = options_.fence_after_reads, .max_steps = 5'000'000};
    }

    void record(std::size_t scene) {
        std::vector<simt::SyncSite> passed;
        simt::Options how = options(0);
        how.sites = &passed;
        SceneOutcome outcome = scenes_[scene].run(how);
        EXPECT_TRUE(outcome.report.ok()) << where(scene, 0) << '\n' << outcome.report.summary();
        bits_.push_back(std::move(outcome.bits));
        for (const simt::SyncSite& site : passed) {
            const auto same = std::find_if(sites_.begin(), sites_.end(), [&](const PassedSite& p) {
                return p.site.kernel == site.kernel && p.site.site.line() == site.site.line() &&
                       p.site.site.column() == site.site.column() &&
                       std::strcmp(p.site.site.file_name(), site.site.file_name()) == 0 &&
                       std::strcmp(p.site.instruction, site.instruction) == 0;
            });
            if (same != sites_.end()) {
                same->scenes.push_back(scene);
                continue;
            }
            PassedSite added{site, from_root(site.site.file_name()), "", "", {scene}};
            read_source(added);
            sites_.push_back(std::move(added));
        }
    }

    SceneOutcome run(std::size_t scene, const PassedSite& site, simt::SiteFault::Kind kind,
                     std::uint64_t seed) {
        const simt::SiteFault fault{kind, site.site.site, site.site.kernel.c_str(),
                                    site.site.instruction};
        simt::Options how = options(seed);
        how.fault = &fault;
        runs_++;
        return scenes_[scene].run(how);
    }

    [[nodiscard]] std::string noticed_by(const PassedSite& site, std::uint64_t seeds) {
        for (std::uint64_t seed = 0; seed < seeds; seed++) {
            for (const std::size_t scene : site.scenes) {
                const SceneOutcome o = run(scene, site, simt::SiteFault::Kind::kDrop, seed);
                if (!o.report.ok()) {
                    return where(scene, seed) + ":\n" + o.report.summary();
                }
                if (o.bits != bits_[scene]) {
                    return where(scene, seed) + ": other bits";
                }
            }
        }
        return {};
    }

    // A path of the compiler's, which may be relative, from the project's root on.
    [[nodiscard]] static std::string from_root(std::string_view path) {
        for (const std::string_view folder : {"src/cuda/", "tests/"}) {
            if (const std::size_t at = path.rfind(folder); at != std::string_view::npos) {
                return std::string(path.substr(at));
            }
        }
        return std::string(path);
    }
    static void read_source(PassedSite& site) {
        std::ifstream file(QUATT_TEST_DATA_DIR "/../../" + site.path);
        const std::uint32_t number = site.site.site.line();
        std::string line;
        for (std::uint32_t i = 1; i <= number && std::getline(file, line); i++) {
            const std::string trimmed =
                line.substr(std::min(line.find_first_not_of(' '), line.size()));
            if (i == number) {
                site.text = trimmed;
            } else if (i + 2 >= number) {
                site.before += trimmed + ' ';
            }
        }
        EXPECT_FALSE(site.text.empty()) << "no line " << number << " in " << site.path;
    }

    std::string name_;
    std::vector<Scene> scenes_;
    WalkOptions options_;
    std::uint64_t runs_ = 0;
    std::vector<std::vector<std::uint32_t>> bits_;  // of each scene, as it is
    std::vector<PassedSite> sites_;
};

}  // namespace quatt::test

// A progress bar for long work: one line on a terminal, nothing anywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace quatt::tools {

// "label [#####.....]  50%  3/6  ETA 0:12", cut to `width` columns. The bar takes what the texts
// leave, and goes first where there is no room.
[[nodiscard]] std::string progress_line(const std::string& label, std::int64_t done,
                                        std::int64_t total, double elapsed_seconds, int width);

// "0:07", "12:34", "2:03:04"; "-:--" for what is not known.
[[nodiscard]] std::string format_duration(double seconds);

class Progress {
public:
    // Shows itself where `fd` is a terminal that can move its cursor and `quiet` is false. Work
    // that is over in less than half a second never shows.
    Progress(std::string label, std::int64_t total, bool quiet, int fd = 2);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // May be called from several threads.
    void advance(std::int64_t steps = 1);
    // What is worked on now ("layers.3 fp8"), from the next step on.
    void set_label(std::string label);
    // Takes the line away, for text that is to be printed; the next step brings it back.
    void clear();

    [[nodiscard]] bool visible() const noexcept { return enabled_; }

private:
    using Clock = std::chrono::steady_clock;

    void draw(Clock::time_point now);
    void erase();

    std::mutex mutex_;
    std::string label_;
    std::int64_t total_;
    std::int64_t done_ = 0;
    int fd_;
    bool enabled_;
    Clock::time_point start_ = Clock::now();
    Clock::time_point next_draw_;
    std::string shown_;
};

}  // namespace quatt::tools

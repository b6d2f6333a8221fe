#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "error.hpp"

namespace quatt::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstDraw = 500ms;
constexpr auto kInterval = 100ms;
constexpr int kDefaultWidth = 80;
constexpr int kMaxBar = 40;
constexpr int kMinBar = 10;
constexpr std::string_view kEraseToEnd = "\x1b[K";

bool is_terminal(int fd) {
    const char* term = std::getenv("TERM");
    return ::isatty(fd) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int terminal_width(int fd) {
    winsize size{};
    return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultWidth;
}

// In one piece, so that the terminal never shows half a line.
void write_text(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written <= 0) {
            return;  // a bar that cannot be shown is no failure
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace

std::string format_duration(double seconds) {
    if (!(seconds >= 0.0 && seconds < 1e6 * 3600.0)) {
        return "-:--";
    }
    const auto whole = static_cast<std::int64_t>(std::llround(seconds));
    const auto two_digits = [](std::int64_t value) {
        return (value < 10 ? "0" : "") + std::to_string(value);
    };
    const std::string tail = two_digits(whole % 60);
    return whole < 3600
               ? std::to_string(whole / 60) + ":" + tail
               : std::to_string(whole / 3600) + ":" + two_digits(whole / 60 % 60) + ":" + tail;
}

std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total,
                          double elapsed_seconds, int width) {
    const double part = total <= 0 ? 1.0
                                   : static_cast<double>(std::clamp<std::int64_t>(done, 0, total)) /
                                         static_cast<double>(total);
    const double left = part > 0.0 ? elapsed_seconds / part * (1.0 - part) : NAN;
    std::string percent = std::to_string(static_cast<int>(part * 100.0)) + "%";
    percent.insert(0, 4 - percent.size(), ' ');
    const std::string tail = percent + "  " + std::to_string(done) + "/" + std::to_string(total) +
                             "  ETA " + format_duration(left);
    const std::string head = printable(label);

    const auto room =
        static_cast<std::int64_t>(width) - static_cast<std::int64_t>(head.size() + tail.size() + 4);
    std::string line = head + ' ';
    if (room >= kMinBar) {
        const auto bar = static_cast<std::size_t>(std::min<std::int64_t>(room, kMaxBar));
        const auto filled = static_cast<std::size_t>(part * static_cast<double>(bar));
        line += '[' + std::string(filled, '#') + std::string(bar - filled, '.') + "] ";
    }
    line += tail;
    return line.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

Progress::Progress(std::string label, std::int64_t total, bool quiet, int fd)
    : label_(std::move(label)),
      total_(total),
      fd_(fd),
      enabled_(!quiet && is_terminal(fd)),
      next_draw_(start_ + kFirstDraw) {}

Progress::~Progress() {
    erase();
}

void Progress::advance(std::int64_t steps) {
    const std::lock_guard lock(mutex_);
    done_ += steps;
    if (!enabled_) {
        return;
    }
    const auto now = Clock::now();
    if (now >= next_draw_) {
        next_draw_ = now + kInterval;
        draw(now);
    }
}

void Progress::set_label(std::string label) {
    const std::lock_guard lock(mutex_);
    label_ = std::move(label);
}

void Progress::clear() {
    const std::lock_guard lock(mutex_);
    erase();
}

void Progress::draw(Clock::time_point now) {
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    // The last column stays free: a cursor behind it wraps on some terminals.
    std::string line = progress_line(label_, done_, total_, elapsed, terminal_width(fd_) - 1);
    if (line == shown_) {
        return;
    }
    // Overwritten and then cut at its end, the line never blinks empty.
    write_text(fd_, '\r' + line + std::string(kEraseToEnd));
    shown_ = std::move(line);
}

void Progress::erase() {
    if (!shown_.empty()) {
        write_text(fd_, '\r' + std::string(kEraseToEnd));
        shown_.clear();
    }
}

}  // namespace quatt::tools

#include "progress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

namespace quatt::tools {
namespace {

using namespace std::chrono_literals;

TEST(ProgressLine, ShowsBarCountAndTime) {
    EXPECT_EQ(progress_line("check", 3, 6, 12.0, 54),
              "check [#############.............]  50%  3/6  ETA 0:12");
    EXPECT_EQ(progress_line("check", 6, 6, 12.0, 45),
              "check [#################] 100%  6/6  ETA 0:00");
    EXPECT_EQ(progress_line("check", 0, 6, 12.0, 40), "check [............]   0%  0/6  ETA -:--");
}

TEST(ProgressLine, FitsAnyWidth) {
    // Without room for a bar there is none; then the line is cut.
    EXPECT_EQ(progress_line("check", 3, 6, 12.0, 37), "check  50%  3/6  ETA 0:12");
    for (int width = -1; width < 200; ++width) {
        for (const std::int64_t done : {-1, 0, 1, 7, 10, 11}) {
            EXPECT_LE(progress_line("label", done, 10, 1.0, width).size(),
                      static_cast<std::size_t>(std::max(width, 0)));
        }
    }
    EXPECT_EQ(progress_line("x", 0, 0, 0.0, 30), "x 100%  0/0  ETA 0:00");
    EXPECT_EQ(progress_line("\x1b[2J\n", 1, 2, 1.0, 40), "\\x1b[2J\\x0a  50%  1/2  ETA 0:01");
}

TEST(ProgressDuration, Formats) {
    EXPECT_EQ(format_duration(0.0), "0:00");
    EXPECT_EQ(format_duration(7.4), "0:07");
    EXPECT_EQ(format_duration(59.6), "1:00");
    EXPECT_EQ(format_duration(754.0), "12:34");
    EXPECT_EQ(format_duration(7384.0), "2:03:04");
    EXPECT_EQ(format_duration(NAN), "-:--");
    EXPECT_EQ(format_duration(INFINITY), "-:--");
    EXPECT_EQ(format_duration(-1.0), "-:--");
}

// A pseudo-terminal of 60 columns.
class Terminal {
public:
    Terminal() {
        ::setenv("TERM", "xterm", 1);
        control_ = ::posix_openpt(O_RDWR | O_NOCTTY);
        if (control_ >= 0 && ::grantpt(control_) == 0 && ::unlockpt(control_) == 0) {
            const char* name = ::ptsname(control_);
            terminal_ = name != nullptr ? ::open(name, O_RDWR | O_NOCTTY) : -1;
        }
        if (terminal_ >= 0) {
            winsize size{};
            size.ws_col = 60;
            ::ioctl(terminal_, TIOCSWINSZ, &size);
        }
    }
    ~Terminal() {
        ::close(terminal_);
        ::close(control_);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    [[nodiscard]] int fd() const { return terminal_; }

    // What was written so far.
    [[nodiscard]] std::string read() const {
        std::string out;
        pollfd poll_fd{control_, POLLIN, 0};
        while (::poll(&poll_fd, 1, 50) == 1 && (poll_fd.revents & POLLIN) != 0) {
            std::vector<char> buffer(4096);
            const ssize_t size = ::read(control_, buffer.data(), buffer.size());
            if (size <= 0) {
                break;
            }
            out.append(buffer.data(), static_cast<std::size_t>(size));
        }
        return out;
    }

private:
    int control_ = -1;
    int terminal_ = -1;
};

TEST(Progress, DrawsOneLineAndClearsIt) {
    const Terminal terminal;
    if (terminal.fd() < 0) {
        GTEST_SKIP() << "no pseudo-terminals here";
    }
    {
        Progress progress("check", 4, false, terminal.fd());
        EXPECT_TRUE(progress.visible());
        progress.advance();
        EXPECT_EQ(terminal.read(), "");  // too early to say anything
        std::this_thread::sleep_for(510ms);
        progress.advance();
        const std::string drawn = terminal.read();
        EXPECT_EQ(drawn.substr(0, 8), "\rcheck [");
        EXPECT_NE(drawn.find("]  50%  2/4  ETA 0:0"), std::string::npos) << drawn;
        EXPECT_EQ(drawn.substr(drawn.size() - 3), "\x1b[K");
        EXPECT_EQ(drawn.find('\n'), std::string::npos);
        EXPECT_LE(drawn.size(), 1u + 59u + 3u);
        progress.clear();
        EXPECT_EQ(terminal.read(), "\r\x1b[K");
        progress.set_label("more");
        std::this_thread::sleep_for(110ms);
        progress.advance();
        EXPECT_EQ(terminal.read().substr(0, 7), "\rmore [");
    }
    EXPECT_EQ(terminal.read(), "\r\x1b[K");
}

TEST(Progress, DrawsAtMostTenTimesASecond) {
    const Terminal terminal;
    if (terminal.fd() < 0) {
        GTEST_SKIP() << "no pseudo-terminals here";
    }
    const auto start = std::chrono::steady_clock::now();
    Progress progress("check", 100'000, false, terminal.fd());
    std::this_thread::sleep_for(510ms);
    for (int step = 0; step < 100'000; ++step) {
        progress.advance();
    }
    const auto elapsed = std::chrono::steady_clock::now() - start;
    const std::string drawn = terminal.read();
    EXPECT_GE(std::ranges::count(drawn, '\r'), 1);
    EXPECT_LE(std::ranges::count(drawn, '\r'), (elapsed - 500ms) / 100ms + 1);
}

TEST(Progress, IsSilentWithoutATerminal) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    {
        Progress progress("check", 2, false, ends[1]);
        EXPECT_FALSE(progress.visible());
        std::this_thread::sleep_for(510ms);
        progress.advance();
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);
    ::close(ends[0]);
}

TEST(Progress, IsSilentWhenAskedOrOnADumbTerminal) {
    const Terminal terminal;
    if (terminal.fd() < 0) {
        GTEST_SKIP() << "no pseudo-terminals here";
    }
    EXPECT_FALSE(Progress("check", 2, true, terminal.fd()).visible());
    ::setenv("TERM", "dumb", 1);
    EXPECT_FALSE(Progress("check", 2, false, terminal.fd()).visible());
    ::setenv("TERM", "xterm", 1);
}

TEST(Progress, TakesStepsFromManyThreads) {
    const Terminal terminal;
    if (terminal.fd() < 0) {
        GTEST_SKIP() << "no pseudo-terminals here";
    }
    Progress progress("check", 4000, false, terminal.fd());
    std::this_thread::sleep_for(510ms);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int step = 0; step < 999; ++step) {
                progress.advance();
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::this_thread::sleep_for(110ms);
    progress.advance(4);
    EXPECT_NE(terminal.read().find("100%  4000/4000"), std::string::npos);
}

}  // namespace
}  // namespace quatt::tools

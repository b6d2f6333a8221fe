#include "signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>

namespace quatt::tools {
namespace {

// Everything that a handler touches: plain memory and lock-free atomics.

struct Unfinished {
    std::array<char, PATH_MAX> path{};
    std::atomic<bool> exists{false};
    std::atomic<bool> is_being_made{false};
};
Unfinished unfinished;

struct Mapping {
    std::atomic<bool> taken{false};
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::size_t> bytes{0};  // 0: nothing to guard
    std::array<char, 256> label{};
};
std::array<Mapping, 8> mappings;

static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

bool pipe_ends = false;

void remove_unfinished() {
    // Only ever by another thread, which gets on: the one that makes the file blocks all signals.
    while (unfinished.is_being_made.load()) {
    }
    if (unfinished.exists.exchange(false)) {
        ::unlink(unfinished.path.data());
    }
}

void end_by(int signal) {
    remove_unfinished();
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when the handler returns
}

void write_error(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
        if (written <= 0) {
            return;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void bad_memory(int signal, siginfo_t* info, void*) {
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (const Mapping& mapping : mappings) {
        if (address - mapping.begin.load() < mapping.bytes.load()) {
            const bool on_terminal = ::isatty(STDERR_FILENO) == 1;
            write_error(on_terminal ? "\rquatt: " : "quatt: ");  // over a progress bar
            write_error(mapping.label.data());
            write_error(": the file was cut short while it was read");
            write_error(on_terminal ? "\x1b[K\n" : "\n");
            remove_unfinished();
            ::_exit(1);
        }
    }
    std::signal(signal, SIG_DFL);  // some other fault
    std::raise(signal);
}

bool is_default(int signal) {
    struct sigaction now {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

}  // namespace

void prepare_signals() {
    for (const int signal :
         {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU}) {
        if (is_default(signal)) {
            struct sigaction action {};
            action.sa_handler = end_by;
            action.sa_flags = SA_RESTART;
            ::sigaction(signal, &action, nullptr);
        }
    }
    struct sigaction fault {};
    fault.sa_sigaction = bad_memory;
    fault.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &fault, nullptr);
    pipe_ends = is_default(SIGPIPE);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

bool closed_pipe_ends() noexcept {
    return pipe_ends;
}

int create_unfinished(const std::string& path) noexcept {
    if (path.size() >= unfinished.path.size()) {
        errno = ENAMETOOLONG;
        return -1;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    unfinished.is_being_made.store(true);
    path.copy(unfinished.path.data(), path.size());
    unfinished.path[path.size()] = '\0';
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int error = errno;
    unfinished.exists.store(fd >= 0);
    unfinished.is_being_made.store(false);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return fd;
}

void forget_unfinished() noexcept {
    unfinished.exists.store(false);
}

MappingGuard::MappingGuard(const void* begin, std::size_t bytes,
                           const std::string& label) noexcept {
    for (std::size_t i = 0; i < mappings.size() && slot_ < 0; ++i) {
        Mapping& mapping = mappings[i];
        if (!mapping.taken.exchange(true)) {
            const std::size_t length = std::min(label.size(), mapping.label.size() - 1);
            label.copy(mapping.label.data(), length);
            mapping.label[length] = '\0';
            mapping.begin.store(reinterpret_cast<std::uintptr_t>(begin));
            mapping.bytes.store(bytes);
            slot_ = static_cast<int>(i);
        }
    }
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
    if (this != &other) {
        release();
        slot_ = std::exchange(other.slot_, -1);
    }
    return *this;
}

void MappingGuard::release() noexcept {
    if (slot_ >= 0) {
        Mapping& mapping = mappings[static_cast<std::size_t>(std::exchange(slot_, -1))];
        mapping.bytes.store(0);
        mapping.taken.store(false);
    }
}

}  // namespace quatt::tools

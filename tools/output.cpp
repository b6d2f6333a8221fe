#include "output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "files.hpp"
#include "signals.hpp"

namespace quatt::tools {
namespace {

// 0, or the errno of the write that failed.
int write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return errno;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

bool reader_is_gone = false;

}  // namespace

void print(std::string_view text) {
    if (const int error = write_all(STDOUT_FILENO, text); error == EPIPE) {
        reader_is_gone = true;
    } else if (error != 0) {
        throw Error("cannot write to standard output: " + errno_text(error));
    }
}

void print_error(std::string_view message) {
    std::string text;
    while (!message.empty()) {
        const std::string_view line = message.substr(0, message.find('\n'));
        message.remove_prefix(line.size());
        message.remove_prefix(message.empty() ? 0 : 1);
        text += "quatt: " + std::string(line) + "\n";
    }
    (void)write_all(STDERR_FILENO, text);  // there is nobody left to tell
}

void prepare_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
            // The lowest free number is this one. Standard output is opened so that writing fails.
            (void)::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int finish_streams(int status) {
    if (!reader_is_gone || status != 0) {
        return status;
    }
    if (closed_pipe_ends()) {
        std::signal(SIGPIPE, SIG_DFL);
        std::raise(SIGPIPE);
    }
    print_error("cannot write to standard output: " + errno_text(EPIPE));
    return 1;
}

}  // namespace quatt::tools

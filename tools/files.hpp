// File descriptors, and files that appear in one step.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "error.hpp"

namespace quatt::tools {

[[nodiscard]] inline std::string errno_text(int error) {
    return std::generic_category().message(error);
}

class FileDescriptor {
public:
    explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
    ~FileDescriptor() { close(); }
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        if (this != &other) {
            reset(std::exchange(other.fd_, -1));
        }
        return *this;
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
    void reset(int fd) noexcept {
        close();
        fd_ = fd;
    }
    // Some file systems report a failed write only here.
    int close() noexcept { return fd_ < 0 ? 0 : ::close(std::exchange(fd_, -1)); }

private:
    int fd_;
};

// Writes the pieces, one behind the other, to a temporary file beside `path`, flushes it to the
// disk and renames it. On failure, and where a signal ends the program, `path` is as before and the
// temporary file is gone. An existing file keeps its permissions, and a link keeps pointing at what
// it did, whether that exists or not. A file of another user or without the right to be written is
// replaced by `force` only. Throws Error.
void write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces,
                bool force = false);
// Returns "wrote PATH (12 kB)", with its newline.
std::string write_text_file(const std::string& path, std::string_view text, bool force = false);

// Throws the Error that write_file would meet at its start, so that no work is done in vain.
void probe_file(const std::string& path, bool force = false);

// The name that a path's links end at; nothing need stand there.
[[nodiscard]] std::string behind_links(std::string path);

// Whether both names stand for one file, links included.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

}  // namespace quatt::tools

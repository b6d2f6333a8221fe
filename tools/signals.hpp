// What signals mean to the program: none that ends it leaves half a file behind, and a file that
// another program cuts short while it is mapped is a failure that says so.
#pragma once

#include <cstddef>
#include <string>

namespace quatt::tools {

// Once, at the start of the program:
// - Signals that would end it (Ctrl-C, a closed terminal, a batch system's) first remove the file
//   that create_unfinished made. What was ignored at the start stays ignored (nohup).
// - A closed pipe and the limit on the size of files are errors of the write.
// - Reading behind the end of a guarded mapping ends the program with status 1 and a message.
void prepare_signals();

// Whether a write to a closed pipe would have ended the program at its start.
[[nodiscard]] bool closed_pipe_ends() noexcept;

// Creates a file that must not stay as it is; removed where a signal ends the program. Returns its
// descriptor, or -1 with errno. One at a time.
[[nodiscard]] int create_unfinished(const std::string& path) noexcept;
// The file has its own name now, or is gone.
void forget_unfinished() noexcept;

// While it lives, a mapped file; `label` names it in the message. There may be eight at a time;
// another one is not guarded.
class MappingGuard {
public:
    MappingGuard() = default;
    MappingGuard(const void* begin, std::size_t bytes, const std::string& label) noexcept;
    ~MappingGuard() { release(); }
    MappingGuard(MappingGuard&& other) noexcept;
    MappingGuard& operator=(MappingGuard&& other) noexcept;
    MappingGuard(const MappingGuard&) = delete;
    MappingGuard& operator=(const MappingGuard&) = delete;

private:
    void release() noexcept;

    int slot_ = -1;
};

}  // namespace quatt::tools

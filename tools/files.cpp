#include "files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <random>

#include "signals.hpp"

namespace quatt::tools {
namespace {

// A new file in `directory`; removed again unless it is renamed to its final place.
class TemporaryFile {
public:
    TemporaryFile(const std::string& directory, std::string label) : label_(std::move(label)) {
        std::random_device random;
        for (int attempt = 0; !fd_.valid(); ++attempt) {
            // NOTE: open() applies the umask, which mkstemp() does not; the name does not contain
            // the target's, which may be as long as a name can be.
            path_ = directory + "/.quatt-" + std::to_string(random()) + std::to_string(random()) +
                    ".tmp";
            fd_.reset(create_unfinished(path_));
            if (!fd_.valid() && (errno != EEXIST || attempt == 100)) {
                const int error = errno;
                throw Error(label_ + ": cannot create a file in '" + printable(directory, 200) +
                            "': " + errno_text(error));
            }
        }
    }
    ~TemporaryFile() {
        if (!path_.empty()) {
            ::unlink(path_.c_str());
            forget_unfinished();
        }
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    void set_mode(mode_t mode) { check(::fchmod(fd_.get(), mode), "set the permissions of"); }

    void write(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) {
                continue;
            }
            check(written < 0 ? -1 : 0, "write");
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }

    void rename_to(const std::string& target) {
        check(::fsync(fd_.get()), "flush");
        check(fd_.close(), "close");
        check(::rename(path_.c_str(), target.c_str()), "replace");
        forget_unfinished();
        path_.clear();
    }

private:
    void check(int result, std::string_view action) const {
        if (result != 0) {
            const int error = errno;
            throw Error(label_ + ": cannot " + std::string(action) +
                        " the file: " + errno_text(error));
        }
    }

    std::string label_;
    std::string path_;
    FileDescriptor fd_{-1};
};

std::string directory_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
}

// Where to write so that a link at `path` survives, and what stands there now.
struct Target {
    std::string path;
    std::optional<mode_t> mode;

    Target(const std::string& given, bool force, const std::string& label)
        : path(behind_links(given)) {
        struct stat info {};
        if (::stat(given.c_str(), &info) != 0) {
            if (errno != ENOENT) {
                const int error = errno;
                throw Error(label + ": cannot write there: " + errno_text(error));
            }
            return;
        }
        // Renaming onto a device such as /dev/null would replace the device.
        if (!S_ISREG(info.st_mode)) {
            throw Error(label + ": exists and is not a regular file");
        }
        mode = info.st_mode & 0777;
        // Renaming asks for the right to write to the folder only.
        if (!force && info.st_uid != ::geteuid()) {
            throw Error(label + ": belongs to another user; --force replaces it");
        }
        if (!force && (info.st_mode & S_IWUSR) == 0) {
            throw Error(label + ": is write-protected; --force replaces it");
        }
    }
};

}  // namespace

std::string behind_links(std::string path) {
    constexpr int kMostLinks = 40;  // the kernel's own limit
    for (int i = 0; i < kMostLinks; ++i) {
        std::array<char, PATH_MAX> text{};
        const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
        if (length <= 0) {
            break;
        }
        const std::string to(text.data(), static_cast<std::size_t>(length));
        path = to[0] == '/' ? to : directory_of(path) + "/" + to;
    }
    return path;
}

void write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces,
                bool force) {
    const std::string label = printable(path, 200);
    const Target target(path, force, label);
    const std::string directory = directory_of(target.path);
    TemporaryFile file(directory, label);
    if (target.mode) {
        file.set_mode(*target.mode);
    }
    for (const std::span<const std::byte> piece : pieces) {
        file.write(piece);
    }
    file.rename_to(target.path);
    // The new name itself survives a crash only once the directory is flushed. The file is complete
    // either way, and not every file system can do it, so a failure here is none of ours.
    const FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid()) {
        ::fsync(folder.get());
    }
}

std::string write_text_file(const std::string& path, std::string_view text, bool force) {
    const std::span<const std::byte> piece = std::as_bytes(std::span(text));
    write_file(path, std::span(&piece, 1), force);
    return "wrote " + printable(path, 200) + " (" + std::to_string((text.size() + 500) / 1000) +
           " kB)\n";
}

void probe_file(const std::string& path, bool force) {
    const std::string label = printable(path, 200);
    const Target target(path, force, label);
    const TemporaryFile file(directory_of(target.path), label);
}

bool same_file(const std::string& a, const std::string& b) {
    struct stat x {};
    struct stat y {};
    return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

}  // namespace quatt::tools

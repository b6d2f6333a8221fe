// quatt bench --peers: hands over to bench/peers.py.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "files.hpp"

namespace quatt::tools {
namespace {

namespace fs = std::filesystem;

// Where it is installed, seen from the program, or in the source tree that the program was built
// in.
fs::path peers_script() {
    std::error_code error;
    const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    fs::path installed = (folder / QUATT_BENCH_FROM_BIN / "peers.py").lexically_normal();
    if (fs::is_regular_file(installed, error)) {
        return installed;
    }
    for (fs::path up = folder; up.has_relative_path(); up = up.parent_path()) {
        if (fs::is_regular_file(up / "bench/peers.py", error) &&
            fs::is_regular_file(up / "include/quatt/quatt.h", error)) {
            return up / "bench/peers.py";
        }
    }
    throw Error("bench --peers needs peers.py, which is neither " +
                printable(installed.string(), 300) + " nor in a source tree around the program");
}

// The file that holds the library that this program calls.
std::string library_path() {
    Dl_info info{};
    void* function = ::dlsym(RTLD_DEFAULT, "quatt_version");
    std::error_code error;
    if (function == nullptr || ::dladdr(function, &info) == 0 || info.dli_fname == nullptr) {
        throw Error(
            "bench --peers needs the shared library; this program holds the library itself");
    }
    return fs::absolute(info.dli_fname, error).string();
}

}  // namespace

void run_bench_peers(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {"python3", peers_script().string(), library_path()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    ::execvp(argv.front(), argv.data());
    throw Error("bench --peers needs python3 (with torch) in PATH: " + errno_text(errno));
}

}  // namespace quatt::tools

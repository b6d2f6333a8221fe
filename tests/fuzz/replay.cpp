// Runs a fuzz target on files, and on all their truncations: what every build can do with the
// corpus, whatever its compiler.
//
// usage: replay_TARGET FILE_OR_FOLDER...
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "bytes.hpp"

int main(int argc, char** argv) {
    namespace fs = std::filesystem;
    std::vector<fs::path> files;
    for (int i = 1; i < argc; i++) {
        if (fs::is_directory(argv[i])) {
            for (const auto& entry : fs::directory_iterator(argv[i])) {
                files.push_back(entry.path());
            }
        } else {
            files.emplace_back(argv[i]);
        }
    }
    for (const fs::path& file : files) {
        std::ifstream in(file, std::ios::binary);
        if (!in) {
            std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
            return 1;
        }
        std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
        // Named before it runs, so that the last line says which one ended the program.
        std::printf("%s, %zu bytes\n", file.c_str(), bytes.size());
        std::fflush(stdout);
        for (std::size_t size = 0; size <= bytes.size(); size++) {
            // A copy of its own, so that reading past it is seen.
            const std::vector<std::uint8_t> part(bytes.data(), bytes.data() + size);
            (void)LLVMFuzzerTestOneInput(part.data(), part.size());
        }
    }
    if (files.empty()) {
        std::fprintf(stderr, "replay: no files\n");
        return 1;
    }
    return 0;
}

#include "core/struct_size.hpp"

#include <algorithm>
#include <cstring>

#include "core/text.hpp"

namespace quatt::core {
namespace {

std::string too_small(const char* name, std::size_t size, std::size_t known, const char* remedy) {
    return text(name, ".struct_size is ", size, "; it must be at least ", known,
                ", the size in this version of the library (", remedy, " sets it)");
}

std::string too_large(const std::string& what, std::size_t size) {
    return text(what, " is ", size, "; no version has a struct of more than ", kMaxStructBytes,
                " bytes");
}

}  // namespace

std::string wrong_input_size(const char* name, const void* data, std::size_t size,
                             std::size_t known, const char* remedy) {
    if (size < known) {
        return too_small(name, size, known, remedy);
    }
    if (size > kMaxStructBytes) {
        return too_large(text(name, ".struct_size"), size);
    }
    const auto* bytes = static_cast<const unsigned char*>(data);
    const auto* used = std::find_if(bytes + known, bytes + size, [](unsigned char b) { return b; });
    if (used != bytes + size) {
        return text(name, ".struct_size is ", size, " and byte ", used - bytes,
                    " of it is not 0; this version of the library knows ", known,
                    " bytes, and what lies behind them must be 0");
    }
    return {};
}

std::string wrong_inner_size(const char* name, std::size_t size, std::size_t known,
                             const char* remedy) {
    if (size < known) {
        return too_small(name, size, known, remedy);
    }
    if (size > known) {
        return text(name, ".struct_size is ", size, "; it must be ", known,
                    ", the size in this version of the library, since the struct lies inside "
                    "another");
    }
    return {};
}

std::string wrong_output_size(const char* what, std::size_t size, std::size_t known) {
    if (size < known) {
        return text(what, " is ", size, "; it must be at least ", known,
                    ", the struct's sizeof in this version of the library");
    }
    return size > kMaxStructBytes ? too_large(what, size) : std::string();
}

void clear_beyond(void* data, std::size_t size, std::size_t known) {
    std::memset(static_cast<unsigned char*>(data) + known, 0, size - known);
}

}  // namespace quatt::core

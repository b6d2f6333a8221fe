// Small helpers for messages: every one names the argument, its value and what is allowed.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <locale>
#include <sstream>
#include <string>
#include <vector>

namespace quatt::core {

using Reasons = std::vector<std::string>;

template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
    std::ostringstream out;
    out.imbue(std::locale::classic());  // a program's std::locale may group digits
    // Without this a stream that gets no memory ends its text early and says nothing.
    out.exceptions(std::ios::badbit);
    (out << ... << parts);
    return out.str();
}

[[nodiscard]] inline std::string join(const Reasons& reasons) {
    std::string all;
    for (const std::string& r : reasons) {
        all += (all.empty() ? "" : "\n") + r;
    }
    return all;
}

}  // namespace quatt::core

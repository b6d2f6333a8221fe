// How many schedules a test goes through.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace quatt::test {

// 24: every pair of completion and warp order, twice. QUATT_TEST_SCALE makes it fewer in the
// sanitizer runs, but never less than one of each completion.
inline std::uint64_t seeds() {
    const char* scale = std::getenv("QUATT_TEST_SCALE");
    const double wanted = scale != nullptr ? 24 * std::strtod(scale, nullptr) : 24;
    return static_cast<std::uint64_t>(std::clamp(wanted, 3.0, 1e6));
}

}  // namespace quatt::test

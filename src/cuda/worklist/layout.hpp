// Extents of the segment table and of the list of work. Plain C++: the host knows them too.
//
// The list of work, words [4 + 2 * segments]: a header, then for the segments longest first the
// running sum of items, then which segment that is. An item is some query rows of one head.
// kUsedRows: rows of the packed stream before its tail.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::worklist {

inline constexpr std::uint32_t kNextItem = 0, kItems = 1, kUsedRows = 2, kHeaderWords = 4;
inline constexpr std::int64_t kSegmentBytes = 64;  // of an entry of the table

[[nodiscard]] QUATT_HD constexpr std::int64_t list_words(std::int64_t segments) {
    return kHeaderWords + 2 * segments;
}

}  // namespace quatt::worklist

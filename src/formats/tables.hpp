// Decode tables of the formats whose codes fit a byte, for host code that decodes whole tiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/e5m2.hpp"
#include "formats/int8.hpp"
#include "formats/ue4m3.hpp"
#include "formats/ue8m0.hpp"

namespace quatt::formats {

// Indexed by the code's bit pattern as an unsigned byte; 256 entries for every format, so that any
// byte is a valid index (padding bits are ignored as decode ignores them).
template <class Format>
[[nodiscard]] constexpr std::array<float, 256> decode_table() noexcept {
    using Code = typename Format::Code;
    static_assert(sizeof(Code) == 1, "decode tables are for codes of one byte");
    std::array<float, 256> table{};
    for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = Format::decode(static_cast<Code>(i));
    }
    return table;
}

// One object a format in the whole program.
template <class Format>
inline constexpr std::array<float, 256> kDecodeTable = decode_table<Format>();

}  // namespace quatt::formats

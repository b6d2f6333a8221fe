// The executor's model of a tensor map (CUtensorMap): which bytes of global memory a box covers,
// and where in shared memory each of them goes.
#pragma once

#include <cstdint>

namespace quatt::simt {

// How the 16-byte chunks of a row are permuted: chunk bits of the shared address are XORed with
// the address bits three above them, within 32, 64 or 128 bytes.
enum class Swizzle : std::uint8_t { kNone, k32B, k64B, k128B };

[[nodiscard]] constexpr std::uint32_t swizzled(Swizzle swizzle, std::uint32_t address) {
    switch (swizzle) {
        case Swizzle::kNone:
            break;
        case Swizzle::k32B:
            return address ^ (address >> 3 & 0x10u);
        case Swizzle::k64B:
            return address ^ (address >> 3 & 0x30u);
        case Swizzle::k128B:
            return address ^ (address >> 3 & 0x70u);
    }
    return address;
}
[[nodiscard]] constexpr std::uint32_t span_bytes(Swizzle swizzle) {
    return swizzle == Swizzle::kNone ? 0 : 16u << static_cast<unsigned>(swizzle);
}

// Tiled mode, no interleave, element strides of 1, zeros out of bounds. Dimension 0 is contiguous.
struct TensorMap {
    static constexpr int kMaxRank = 5;

    std::uint8_t* base = nullptr;
    std::uint32_t rank = 0;
    std::uint32_t element_bytes = 0;
    std::uint64_t extent[kMaxRank] = {};        // elements
    std::uint64_t stride_bytes[kMaxRank] = {};  // [0] is not used
    std::uint32_t box[kMaxRank] = {};           // elements
    Swizzle swizzle = Swizzle::kNone;

    [[nodiscard]] std::uint32_t box_row_bytes() const { return box[0] * element_bytes; }
    [[nodiscard]] std::uint32_t box_bytes() const;
    // What cuTensorMapEncodeTiled would refuse, or nullptr.
    [[nodiscard]] const char* invalid() const;

    // Copies the box at `origin` to or from `shared`, which starts at address `address` of shared
    // memory. Out of bounds, a load gives zeros and a store writes nothing.
    void load(std::uint8_t* shared, std::uint32_t address, const std::int32_t* origin) const;
    void store(const std::uint8_t* shared, std::uint32_t address, const std::int32_t* origin) const;

private:
    template <class Use>
    void each_element(std::uint32_t address, const std::int32_t* origin, Use use) const;
};

}  // namespace quatt::simt

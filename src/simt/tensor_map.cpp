#include "simt/tensor_map.hpp"

#include <cstring>

namespace quatt::simt {

std::uint32_t TensorMap::box_bytes() const {
    std::uint32_t bytes = element_bytes;
    for (std::uint32_t d = 0; d < rank; d++)
        bytes *= box[d];
    return bytes;
}

const char* TensorMap::invalid() const {
    if (rank < 1 || rank > kMaxRank) return "the rank is not 1 to 5";
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4 && element_bytes != 8)
        return "the element size is not 1, 2, 4 or 8 bytes";
    if (reinterpret_cast<std::uintptr_t>(base) % 16 != 0) return "the base is not 16-byte aligned";
    for (std::uint32_t d = 0; d < rank; d++) {
        if (extent[d] == 0 || extent[d] > (std::uint64_t{1} << 32))
            return "an extent is not 1 to 2^32";
        if (box[d] == 0 || box[d] > 256) return "a box extent is not 1 to 256";
        if (d > 0 && (stride_bytes[d] % 16 != 0 || stride_bytes[d] >= (std::uint64_t{1} << 40)))
            return "a stride is not a multiple of 16 bytes below 2^40";
    }
    if (box_row_bytes() % 16 != 0) return "a row of the box is not a multiple of 16 bytes";
    if (swizzle != Swizzle::kNone && box_row_bytes() > span_bytes(swizzle))
        return "a row of the box is wider than the swizzle";
    return nullptr;
}

template <class Use>
void TensorMap::each_element(std::uint32_t address, const std::int32_t* origin, Use use) const {
    std::uint32_t at[kMaxRank] = {};
    const std::uint32_t count = box_bytes() / element_bytes;
    for (std::uint32_t i = 0; i < count; i++) {
        const std::uint32_t offset = swizzled(swizzle, address + i * element_bytes) - address;
        bool inside = true;
        std::int64_t from = 0;
        for (std::uint32_t d = 0; d < rank; d++) {
            const std::int64_t index = std::int64_t{origin[d]} + at[d];
            inside = inside && index >= 0 && static_cast<std::uint64_t>(index) < extent[d];
            const std::uint64_t stride = d == 0 ? element_bytes : stride_bytes[d];
            from += index * static_cast<std::int64_t>(stride);
        }
        use(offset, inside ? base + from : nullptr);
        for (std::uint32_t d = 0; d < rank && ++at[d] == box[d]; d++)
            at[d] = 0;
    }
}

void TensorMap::load(std::uint8_t* shared, std::uint32_t address,
                     const std::int32_t* origin) const {
    each_element(address, origin, [&](std::uint32_t offset, const std::uint8_t* global) {
        if (global != nullptr)
            std::memcpy(shared + offset, global, element_bytes);
        else
            std::memset(shared + offset, 0, element_bytes);
    });
}

void TensorMap::store(const std::uint8_t* shared, std::uint32_t address,
                      const std::int32_t* origin) const {
    each_element(address, origin, [&](std::uint32_t offset, std::uint8_t* global) {
        if (global != nullptr) std::memcpy(global, shared + offset, element_bytes);
    });
}

}  // namespace quatt::simt

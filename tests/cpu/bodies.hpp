// The instructions of cpu/instructions.hpp as functions of memory, each body in a file of its own
// (bodies/*.cpp), compiled for what it needs.
#pragma once
#include <cstdint>

namespace quatt::test {

struct Fp16Body {
    // d [32] = a * b + c, fp16
    void (*fma)(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c,
                std::uint16_t* d);
};

struct AmxBody {
    // c [16, 16] += a [16, 16 units of 4 bytes] . b [16 units, 16]
    void (*dot_bytes)(const std::uint8_t* a, const std::int8_t* b, std::int32_t* c);
    void (*dot_bf16)(const std::uint16_t* a, const std::uint16_t* b, float* c);
    // to [16, 16], rows `to_stride` bytes apart = from, rows `from_stride` bytes apart
    void (*copy)(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                 std::int64_t to_stride);
    void (*zero)(std::uint32_t* to);  // [16, 16], by tilezero of a tile that held other numbers
};

extern const Fp16Body kSoftwareFp16, kNativeFp16;
extern const AmxBody kSoftwareAmx, kNativeAmx;

}  // namespace quatt::test

// Included by a file that defines QUATT_AMX_BODY, the name of its table.
#pragma once
#include "cpu/bodies.hpp"
#include "cpu/instructions.hpp"

namespace quatt::test {
namespace {

// Eight tiles of 16 rows of 64 bytes, as the kernels have them, for the time of a call.
template <class Do>
void with_tiles(Do&& f) {
    cpu::TileConfig config{};
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.rows[t] = 16;
        config.row_bytes[t] = 64;
    }
    cpu::tile_configure(config);
    f();
    cpu::tile_release();
}

void dot_bytes(const std::uint8_t* a, const std::int8_t* b, std::int32_t* c) {
    with_tiles([&] {
        cpu::tile_load<0>(c, 64);
        cpu::tile_load<4>(a, 64);
        cpu::tile_load<6>(b, 64);
        cpu::tile_dot_bytes<0, 4, 6>();
        cpu::tile_store<0>(c, 64);
    });
}

void dot_bf16(const std::uint16_t* a, const std::uint16_t* b, float* c) {
    with_tiles([&] {
        cpu::tile_load<3>(c, 64);
        cpu::tile_load<5>(a, 64);
        cpu::tile_load<7>(b, 64);
        cpu::tile_dot_bf16<3, 5, 7>();
        cpu::tile_store<3>(c, 64);
    });
}

void copy(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
          std::int64_t to_stride) {
    with_tiles([&] {
        cpu::tile_load<1>(from, from_stride);
        cpu::tile_store<1>(to, to_stride);
    });
}

void zero(std::uint32_t* to) {
    with_tiles([&] {
        cpu::tile_load<2>(to, 64);
        cpu::tile_zero<2>();
        cpu::tile_store<2>(to, 64);
    });
}

}  // namespace

const AmxBody QUATT_AMX_BODY = {dot_bytes, dot_bf16, copy, zero};

}  // namespace quatt::test

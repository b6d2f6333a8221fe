// Included by a file that defines QUATT_FP16_BODY, the name of its table.
#pragma once
#include "cpu/bodies.hpp"
#include "cpu/instructions.hpp"

namespace quatt::test {
namespace {

void fma(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, std::uint16_t* d) {
    _mm512_storeu_si512(
        d, cpu::fma_f16(_mm512_loadu_si512(a), _mm512_loadu_si512(b), _mm512_loadu_si512(c)));
}

}  // namespace

const Fp16Body QUATT_FP16_BODY = {fma};

}  // namespace quatt::test

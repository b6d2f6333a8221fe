// mma.sync: d += a b, with fp32 accumulators. A is 16 x K, row-major; B is K x 8, column-major.
//
// With g = lane / 4 and t = lane % 4, and E elements of a register side by side (2 of 16 bits, 4
// of 8 bits):
//     a[0] row g,     k = E t ...          b0  k = E t ...          column g
//     a[1] row g + 8, k = E t ...          b1  k = E (t + 4) ...    column g
//     a[2] row g,     k = E (t + 4) ...    d[0], d[1] row g,     columns 2 t, 2 t + 1
//     a[3] row g + 8, k = E (t + 4) ...    d[2], d[3] row g + 8, columns 2 t, 2 t + 1
#pragma once

#include "cuda/ptx/convert.hpp"
#include "cuda/ptx/exchange.hpp"
#include "formats/ue8m0.hpp"

#if !defined(__CUDACC__)
#include "cuda/ptx/mma_host.hpp"
#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32. PTX ISA 9.7.14.5.14
QUATT_DEV void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                        [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    host::mma<host::Bf16Element>("mma bf16", d, a, b0, b1, site);
#endif
}

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32. PTX ISA 9.7.14.5.14
QUATT_DEV void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                       [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    host::mma<host::F16Element>("mma f16", d, a, b0, b1, site);
#endif
}

// mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32. PTX ISA 9.7.14.5.14
// Below sm_89 through two f16 mma's: E4M3 is exact in f16, and along K the order is free as long
// as A and B agree, so bytes 0, 1 of a register go to k = 2t.. and bytes 2, 3 to k = 2(t + 4)...
QUATT_DEV void mma_e4m3(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                        [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_E4M3_MMA
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const auto low = [](u32 codes) { return e4m3x2_to_f16x2(static_cast<u16>(codes)); };
    const auto high = [](u32 codes) { return e4m3x2_to_f16x2(static_cast<u16>(codes >> 16)); };
    const u32 first[4] = {low(a[0]), low(a[1]), high(a[0]), high(a[1])};
    const u32 second[4] = {low(a[2]), low(a[3]), high(a[2]), high(a[3])};
    mma_f16(d, first, low(b0), high(b0));
    mma_f16(d, second, low(b1), high(b1));
#endif
#else
    host::mma<host::E4m3Element>("mma e4m3", d, a, b0, b1, site);
#endif
}

// mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32
// .ue8m0: every row of A and every column of B has a scale, 2^(code - 127); 0xFF is NaN.
// The scales are in byte `ByteA` of `scale_a`: row g's in lane 4g + 2 ThreadA, row g + 8's in the
// lane after it; and in byte `ByteB` of `scale_b`: column g's in lane 4g + ThreadB.
// PTX ISA 9.7.14.3 (block scaling), 9.7.14.5.14
// Elsewhere than on sm_120f through the plain form: the products are summed, scaled and added to d
// in fp32, so d is rounded twice, and a product of scales beyond the range of fp32 is lost.
template <u32 ByteA = 0, u32 ThreadA = 0, u32 ByteB = 0, u32 ThreadB = 0>
QUATT_DEV void mma_e4m3_block_scaled(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 scale_a,
                                     u32 scale_b, [[maybe_unused]] Site site = Site::current()) {
    static_assert(ByteA < 4 && ThreadA < 2 && ByteB < 4 && ThreadB < 4);
#if defined(__CUDACC__)
#if QUATT_HAS_BLOCK_SCALED_MMA
    asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
        ".f32.e4m3.e4m3.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, "
        "{%10}, {%11, %12}, {%13}, {%14, %15};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(scale_a),
          "h"(static_cast<u16>(ByteA)), "h"(static_cast<u16>(ThreadA)), "r"(scale_b),
          "h"(static_cast<u16>(ByteB)), "h"(static_cast<u16>(ThreadB)));
#else
    const auto scale = [](u32 codes, u32 byte, u32 lane) {
        return formats::Ue8m0::decode(static_cast<u8>(shfl_idx(codes, lane) >> (8 * byte)));
    };
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    const u32 g = lane / 4, t = lane % 4;
    const float row[2] = {scale(scale_a, ByteA, 4 * g + 2 * ThreadA),
                          scale(scale_a, ByteA, 4 * g + 2 * ThreadA + 1)};
    const float column[2] = {scale(scale_b, ByteB, 8 * t + ThreadB),
                             scale(scale_b, ByteB, 8 * t + 4 + ThreadB)};
    float sum[4] = {0, 0, 0, 0};
    mma_e4m3(sum, a, b0, b1);
    for (int i = 0; i < 4; i++)
        d[i] = __fmaf_rn(sum[i] * row[i / 2], column[i % 2], d[i]);
#endif
#else
    host::mma_block_scaled(d, a, b0, b1, scale_a >> (8 * ByteA) & 0xFFu,
                           scale_b >> (8 * ByteB) & 0xFFu, ThreadA, ThreadB, site);
#endif
}

// The E4M3 product at the GPU's best rate: on sm_120f the block-scaled form with scales of 1,
// which gives the same bits as the plain form and runs at twice its rate on GeForce; elsewhere the
// plain form. PTX ISA 9.7.14.5.14
QUATT_DEV void mma_e4m3_fast(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                             [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__) && QUATT_HAS_BLOCK_SCALED_MMA
    mma_e4m3_block_scaled(d, a, b0, b1, 0x7F7F7F7Fu, 0x7F7F7F7Fu);
#else
    mma_e4m3(d, a, b0, b1, site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx

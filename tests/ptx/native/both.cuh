// Kernels that write down what instructions give, so that a GPU and the executor can be compared.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {

using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

inline constexpr u32 kExactWords = 34, kFloats = 20, kApproximate = 3;

struct BothParams {
    tile::Global<const u8> bytes;      // [warps, 1024]
    tile::Global<const float> floats;  // [warps, 32, 8]
    tile::Global<u32> exact;           // [warps, 32, kExactWords]: bit for bit
    tile::Global<float> sums;          // [warps, 32, kFloats]: within the rounding of sums
    tile::Global<float> approximate;   // [warps, 32, kApproximate]: within 2 ulp
};

// One warp a block.
QUATT_KERNEL(32) record(const BothParams p) {
    const tile::Shared shared = ptx::dynamic_shared(1024);
    const u32 lane = ptx::lane_id();
    const i64 warp = ptx::block_x();
    const auto bytes = p.bytes.sub(warp * 1024, 1024);
    const auto floats = p.floats.sub((warp * 32 + lane) * 8, 8);
    ptx::cp_async<16>(shared, 16 * lane, bytes, 16 * lane, 16 - lane % 3);
    ptx::cp_async<8>(shared, 512 + 8 * lane, bytes, 512 + 8 * lane);
    ptx::cp_async<4>(shared, 768 + 4 * lane, bytes, 768 + 4 * lane, lane % 5);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    ptx::syncwarp();

    u32 out[kExactWords], r1[1], r2[2], r4[4], s1[1], s2[2], s4[4];
    ptx::ldmatrix_x1(r1, shared, 16 * (lane % 8));
    ptx::ldmatrix_x2(r2, shared, 16 * (lane % 16));
    ptx::ldmatrix_x4(r4, shared, 16 * (31 - lane));
    ptx::ldmatrix_x1_trans(s1, shared, 16 * (lane % 8) + 512);
    ptx::ldmatrix_x2_trans(s2, shared, 16 * (lane % 16) + 512);
    ptx::ldmatrix_x4_trans(s4, shared, 16 * lane);
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        out[i] = r4[i];
        out[4 + i] = s4[i];
        out[8 + i] = i < 2 ? r2[i] : s2[i - 2];
    }
    out[12] = r1[0];
    out[13] = s1[0];
    out[14] = shared.load<u32>(768 + 4 * lane);
    out[15] = ptx::shfl_xor(r4[0], 5) ^ ptx::shfl_idx(r4[1], lane * 7 % 32);
    out[16] = ptx::shfl_up(r4[2], 3);
    out[17] = ptx::shfl_down(r4[3], 9);
    out[18] = ptx::ballot(r4[0] % 3 == 0);
    out[19] = ptx::any(r4[0] % 16 == 0) + 2 * ptx::all(r4[0] % 2 == 0);
    float f[8];
    QUATT_UNROLL
    for (u32 i = 0; i < 8; i++)
        f[i] = floats.load(i);
    out[20] = ptx::pack_e4m3x4(f[0], f[1], f[2], f[3]);
    out[21] = ptx::pack_bf16x2(f[4], f[5]);
    out[22] = ptx::pack_f16x2(f[6], f[7]);
    const ptx::F32x2 e = ptx::unpack_e4m3x2(static_cast<u16>(r4[0])), h = ptx::unpack_f16x2(r4[1]);
    const ptx::F32x2 b = ptx::unpack_bf16x2(r4[2]);
    // NaN payloads are free: make them one.
    const auto bits = [](float x) { return x == x ? formats::bit_cast<u32>(x) : 0x7FFFFFFFu; };
    out[23] = bits(e.x);
    out[24] = bits(e.y);
    out[25] = bits(h.x);
    out[26] = bits(h.y);
    out[27] = bits(b.x);
    out[28] = bits(b.y);
    out[29] = bits(ptx::max(f[0], f[1]));
    out[30] = bits(ptx::min(f[2], f[3]));
    out[31] = bits(ptx::ceil(f[4]));
    out[32] = bits(ptx::fma(f[4], f[5], f[6]));
    out[33] = ptx::e4m3x2_to_f16x2(static_cast<u16>(r4[3] & 0x7777u));
    const auto exact = p.exact.sub((warp * 32 + lane) * kExactWords, kExactWords);
    QUATT_UNROLL
    for (u32 i = 0; i < kExactWords; i++)
        exact.store(i, out[i]);

    // Operands without NaN and infinity: the top exponent bit of each element is cleared.
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++)
        r4[i] &= 0xBFBFBFBFu;
    r2[0] &= 0xBFBFBFBFu;
    r2[1] &= 0xBFBFBFBFu;
    float d[5][4];
    QUATT_UNROLL
    for (u32 i = 0; i < 20; i++)
        d[i / 4][i % 4] = f[4 + i % 4];
    ptx::mma_bf16(d[0], r4, r2[0], r2[1]);
    ptx::mma_f16(d[1], r4, r2[0], r2[1]);
    ptx::mma_e4m3(d[2], r4, r2[0], r2[1]);
    ptx::mma_e4m3_fast(d[3], r4, r2[0], r2[1]);
    const u32 scales = 0x7C7D7E7Fu + (lane % 3) * 0x01010101u;
    ptx::mma_e4m3_block_scaled<1, 1, 2, 3>(d[4], r4, r2[0], r2[1], scales, scales);
    const auto sums = p.sums.sub((warp * 32 + lane) * kFloats, kFloats);
    QUATT_UNROLL
    for (u32 i = 0; i < kFloats; i++)
        sums.store(i, d[i / 4][i % 4]);

    const auto approximate = p.approximate.sub((warp * 32 + lane) * kApproximate, kApproximate);
    const float x = ptx::max(f[7], -f[7]) + 0.25f;
    approximate.store(0, ptx::ex2(f[7]));
    approximate.store(1, ptx::lg2(x));
    approximate.store(2, ptx::rcp(x));
}

}  // namespace QUATT_ABI
}  // namespace quatt::test

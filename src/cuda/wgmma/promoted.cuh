// A warp's own shared memory: the fp32 accumulator that its O is promoted to, and at the end of an
// item its rows of out on their way to memory. Registers of O as in kernel.cuh.
#pragma once

#include "cuda/wgmma/config.hpp"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

template <class C>
struct PromotedAccumulator {
    ptx::Shared memory;  // [kDim / 8][32 lanes] x 16 bytes, or [16 rows, kRowPitch bytes]
    u32 lane;
    float exponent_offset[2];  // w - m of its rows, as in RowState
    bool is_there = false;     // since the item's first promotion

    // The copies of the item before have read its rows.
    QUATT_DEV void reuse() const {
        ptx::bulk_wait_read<0>();
        ptx::syncwarp();
    }

    // What lies beside o[4 n] to o[4 n + 3].
    [[nodiscard]] QUATT_DEV ptx::F32x4 load(u32 n) const {
        return is_there ? memory.load<ptx::F32x4>((n * 32 + lane) * 16) : ptx::F32x4{0, 0, 0, 0};
    }
    QUATT_DEV void store(u32 n, ptx::F32x4 y) const { memory.store((n * 32 + lane) * 16, y); }

    // O times its pending rescale joins under this accumulator's m, which follows only a large
    // rise, and starts again.
    QUATT_DEV void promote(float (&o)[C::kOutRegisters], const float (&pending)[2],
                           const float (&offset)[2]) {
        QUATT_UNROLL
        for (u32 i = 0; i < C::kOutRegisters; i++) {
            ptx::optimizer_barrier(o[i]);
        }
        if (!is_there) {
            reuse();
            exponent_offset[0] = offset[0];
            exponent_offset[1] = offset[1];
        }
        // The row's m above this one's.
        float add[2] = {exponent_offset[0] - offset[0], exponent_offset[1] - offset[1]};
        if (ptx::any(add[0] > C::kPromotedRise || add[1] > C::kPromotedRise)) {
            float keep[2];
            QUATT_UNROLL
            for (u32 r = 0; r < 2; r++) {
                keep[r] = ptx::ex2(-ptx::max(add[r], 0.0f));
                exponent_offset[r] = ptx::min(exponent_offset[r], offset[r]);
                add[r] = ptx::min(add[r], 0.0f);
            }
            QUATT_NO_UNROLL
            for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
                const ptx::F32x4 y = load(n);
                store(n, {y.x * keep[0], y.y * keep[0], y.z * keep[1], y.w * keep[1]});
            }
        }
        add[0] = ptx::ex2(add[0]) * pending[0];
        add[1] = ptx::ex2(add[1]) * pending[1];
        QUATT_UNROLL
        for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
            float* x = &o[4 * n];
            const ptx::F32x4 y = load(n);
            store(n, {ptx::fma(x[0], add[0], y.x), ptx::fma(x[1], add[0], y.y),
                      ptx::fma(x[2], add[1], y.z), ptx::fma(x[3], add[1], y.w)});
            x[0] = x[1] = x[2] = x[3] = 0;
        }
        is_there = true;
    }

    // What brings row r to the exponents of O, whose offset this is.
    [[nodiscard]] QUATT_DEV float factor(u32 r, float offset) const {
        return is_there ? ptx::ex2(offset - exponent_offset[r]) : 0.0f;
    }

    // Sends the warp's rows of out, of which the first lies at `at` and `rows` are the segment's.
    // NOTE: what waits for the copies is the next `reuse`, and the end of the block.
    QUATT_DEV void send_rows(const float (&o)[C::kOutRegisters], const epilogue::Output& out,
                             i64 at, i32 rows) const {
        if (!is_there) {
            reuse();
        } else {
            ptx::syncwarp();  // all lanes have read theirs
        }
        const u32 g = lane / 4, t = lane % 4;
        QUATT_UNROLL
        for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
            QUATT_UNROLL
            for (u32 r = 0; r < 2; r++) {
                memory.store((g + 8 * r) * C::kRowPitch + 16 * n + 4 * t,
                             epilogue::pack_out(out.type, o[4 * n + 2 * r], o[4 * n + 2 * r + 1]));
            }
        }
        ptx::fence_proxy_async();
        ptx::syncwarp();
        if (lane < 16 && i32(lane) < rows) {
            const u32 bytes = 2 * out.channels;
            ptx::bulk_store(out.out16.sub(at + lane * out.strides.token, out.channels),
                            memory.sub(lane * C::kRowPitch, bytes), bytes);
        }
        ptx::bulk_commit();
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma

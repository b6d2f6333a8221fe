// The matrix products of a warp's rows: Q as it keeps it, S = Q K^T, O += P V. Fragments as in
// kernel.cuh.
#pragma once

#include "cuda/warp_mma/tiles.cuh"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

template <class C>
QUATT_DEV void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                        ptx::Site site = ptx::Site::current()) {
    if constexpr (C::Recipe::kQFormat == QUATT_FORMAT_BF16) {
        ptx::mma_bf16(d, a, b0, b1, site);
    } else if constexpr (C::Recipe::kQFormat == QUATT_FORMAT_F16) {
        ptx::mma_f16(d, a, b0, b1, site);
    } else if constexpr (C::kIsBlockScaled) {
        ptx::mma_e4m3_block_scaled(d, a, b0, b1, 0x7F7F7F7Fu, 0x7F7F7F7Fu, site);
    } else {
        ptx::mma_e4m3_fast(d, a, b0, b1, site);
    }
}

template <class C, bool IsPacked = C::kIsPacked>
struct Products;

// Packed operands: Q in registers, K and V^T as they come.
template <class C>
struct Products<C, true> {
    u32 q[C::kKSteps][4];  // A fragments
    // Where this lane's row of the first ldmatrix is; the others are a constant away.
    u32 k_lanes[C::kKSteps / 2], v_row;

    template <class RowOf>
    QUATT_DEV Products(const schedule::AttendParams& p, const worklist::SegmentEntry& segment,
                       u32 segment_index, u32 head, ptx::Shared, RowOf&& row_of) {
        const u32 lane = ptx::lane_id(), t = lane % 4;
        const i64 q_at = (i64(head) * p.packed.q_tiles +
                          tile::first_tile(segment.q_row, segment_index, tile::kQueryTile)) *
                         (tile::kQueryTile * C::kDim);
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            const bool is_real = row_of(r) < segment.q_len;
            // This lane's 4 bytes of a chunk of the row. NOTE: both so, or what they are made of
            // takes registers in the loop over tiles, which sm_120 does not have.
            const i64 codes = is_real ? q_at + i64(row_of(r)) * C::kDim + 4 * t : 0;
            u32 row_in_8 = lane / 4;
            ptx::optimizer_barrier(row_in_8);
            QUATT_UNROLL
            for (u32 s = 0; s < C::kKSteps; s++) {
                QUATT_UNROLL
                for (u32 half = 0; half < 2; half++) {
                    const u32 chunk = tile::swizzled_chunk(C::kDim, row_in_8, 2 * s + half);
                    u32& a = q[s][2 * half + r];
                    a = 0;
                    if (is_real) {
                        a = p.packed.q.template load<u32>(codes + 16 * chunk);
                    }
                }
            }
        }
        QUATT_UNROLL
        for (u32 i = 0; i < C::kKSteps / 2; i++) {
            k_lanes[i] = chunk_at<C::kPitch>(lane % 8, 4 * i + lane / 8);
        }
        v_row = chunk_at<64>(lane % 8, lane / 8);
        // NOTE: pinned, or the compiler computes them anew in each tile.
        QUATT_UNROLL
        for (u32& x : k_lanes) {
            ptx::optimizer_barrier(x);
        }
        ptx::optimizer_barrier(v_row);
    }

    QUATT_DEV void qk(float (&s)[1][C::kScoreTiles][4], ptx::Shared k) const {
        QUATT_UNROLL
        for (u32 n = 0; n < C::kScoreTiles; n++) {
            QUATT_UNROLL
            for (u32 i = 0; i < C::kKSteps / 2; i++) {
                u32 b[4];  // 8 keys x 64 channels
                ptx::ldmatrix_x4(b, k, k_lanes[i] + 8 * n * C::kPitch);
                multiply<C>(s[0][n], q[2 * i], b[0], b[1]);
                multiply<C>(s[0][n], q[2 * i + 1], b[2], b[3]);
            }
        }
    }
    QUATT_DEV void pv(float (&o)[1][C::kOutTiles][4], const u32 (&p)[1][C::kPSteps][4],
                      ptx::Shared v) const {
        QUATT_UNROLL
        for (u32 n = 0; n < C::kOutTiles; n++) {
            u32 b[4];  // 8 channels x 64 keys
            ptx::ldmatrix_x4(b, v, v_row + 8 * n * 64);
            multiply<C>(o[0][n], p[0][0], b[0], b[1]);
            multiply<C>(o[0][n], p[0][1], b[2], b[3]);
        }
    }
};

// Rows of 16-bit numbers: Q in registers, or where a warp has 32 rows in shared memory.
template <class C>
struct Products<C, false> {
    u32 q[C::kSharedQ ? 1 : C::kKSteps][4];  // A fragments
    ptx::Shared q_shared;
    u32 q_lane, k_lane, v_lane;  // this lane's row of the first ldmatrix

    template <class RowOf>
    QUATT_DEV Products(const schedule::AttendParams& p, const worklist::SegmentEntry& segment, u32,
                       u32 head, ptx::Shared shared, RowOf&& row_of)
        : q_shared(
              shared.sub(offsetof(SharedPlan<C>, q), C::kSharedQ ? C::kRows * C::kPitch : 16)) {
        const u32 lane = ptx::lane_id(), warp = ptx::warp_id(), t = lane % 4;
        const i64 q_at = (p.rows.is_copy ? segment.q_row * p.rows.q_strides.token : segment.q) +
                         head * p.rows.q_strides.head;
        if constexpr (C::kSharedQ) {
            constexpr u32 kChunks = C::kRowBytes / 16;
            const i32 item_row = row_of(0) - i32(16 * C::kBlocks * warp + lane / 4);
            QUATT_UNROLL
            for (u32 i = 0; i < C::kRows * kChunks / C::kThreads; i++) {
                const u32 index = ptx::thread_x() + i * C::kThreads, row = index / kChunks,
                          chunk = index % kChunks;
                const bool is_real = item_row + i32(row) < segment.q_len;
                const i64 at = q_at + (item_row + i64(row)) * p.rows.q_strides.token + 8 * chunk;
                ptx::cp_async<16>(q_shared, chunk_at<C::kPitch>(row, chunk), p.rows.q,
                                  is_real ? at : 0, is_real ? 16 : 0);
            }
        } else {
            QUATT_UNROLL
            for (u32 r = 0; r < 2; r++) {
                const bool is_real = row_of(r) < segment.q_len;
                QUATT_UNROLL
                for (u32 s = 0; s < C::kKSteps; s++) {
                    QUATT_UNROLL
                    for (u32 half = 0; half < 2; half++) {
                        u32& a = q[s][2 * half + r];
                        a = 0;
                        if (is_real) {
                            a = p.rows.q.template load<u32>(q_at +
                                                            row_of(r) * p.rows.q_strides.token +
                                                            16 * s + 8 * half + 2 * t);
                        }
                    }
                }
            }
        }
        q_lane = chunk_at<C::kPitch>(16 * warp * C::kBlocks + lane % 16, lane / 16);
        k_lane = chunk_at<C::kPitch>(8 * (lane / 16) + lane % 8, lane / 8 % 2);
        v_lane = chunk_at<C::kPitch>(lane % 16, lane / 16);
    }

    QUATT_DEV void qk(float (&s)[C::kBlocks][C::kScoreTiles][4], ptx::Shared k) const {
        QUATT_UNROLL
        for (u32 step = 0; step < C::kKSteps; step++) {
            u32 a[C::kBlocks][4];
            QUATT_UNROLL
            for (u32 b = 0; b < C::kBlocks; b++) {
                if constexpr (C::kSharedQ) {
                    ptx::ldmatrix_x4(a[b], q_shared, q_lane + 16 * b * C::kPitch + 32 * step);
                } else {
                    QUATT_UNROLL
                    for (u32 i = 0; i < 4; i++) {
                        a[b][i] = q[step][i];
                    }
                }
            }
            QUATT_UNROLL
            for (u32 n = 0; n < C::kScoreTiles; n += 2) {
                u32 b[4];  // 16 keys x 16 channels
                ptx::ldmatrix_x4(b, k, k_lane + 8 * n * C::kPitch + 32 * step);
                QUATT_UNROLL
                for (u32 i = 0; i < C::kBlocks; i++) {
                    multiply<C>(s[i][n], a[i], b[0], b[1]);
                    multiply<C>(s[i][n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
    QUATT_DEV void pv(float (&o)[C::kBlocks][C::kOutTiles][4],
                      const u32 (&p)[C::kBlocks][C::kPSteps][4], ptx::Shared v) const {
        QUATT_UNROLL
        for (u32 step = 0; step < C::kPSteps; step++) {
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutTiles; n += 2) {
                u32 b[4];  // 16 keys x 16 channels
                ptx::ldmatrix_x4_trans(b, v, v_lane + 16 * step * C::kPitch + 16 * n);
                QUATT_UNROLL
                for (u32 i = 0; i < C::kBlocks; i++) {
                    multiply<C>(o[i][n], p[i][step], b[0], b[1]);
                    multiply<C>(o[i][n + 1], p[i][step], b[2], b[3]);
                }
            }
        }
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma

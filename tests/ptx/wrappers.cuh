// Kernels that use every wrapper once: compiled by nvcc for each architecture, and by the host
// compiler.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/view.hpp"

namespace quatt::test {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::u16;
using ptx::u32;
using ptx::u8;

struct WrapperParams {
    tile::Global<const u8> in;
    tile::Global<u32> out;
    tile::Global<float> sums;
};

// What any GPU from sm_80 on has.
QUATT_KERNEL(64) use_common(const WrapperParams p) {
    const tile::Shared shared = ptx::dynamic_shared(4096);
    const u32 thread = ptx::thread_x() + ptx::thread_y() + ptx::thread_z(), lane = ptx::lane_id();
    ptx::cp_async<16>(shared, 16 * thread, p.in, 16 * thread, 8);
    ptx::cp_async<8>(shared, 1024 + 8 * thread, p.in, 8 * thread, 8);
    ptx::cp_async<4>(shared, 2048 + 4 * thread, p.in, 4 * thread);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    ptx::barrier_sync();
    if (ptx::warp_id() == 0)
        ptx::barrier_arrive(1, 64);
    else
        ptx::barrier_sync(1, 64);

    u32 r1[1], r2[2], r4[4], s1[1], s2[2], s4[4];
    ptx::ldmatrix_x1(r1, shared, 16 * (lane % 8));
    ptx::ldmatrix_x2(r2, shared, 16 * (lane % 16));
    ptx::ldmatrix_x4(r4, shared, 16 * lane);
    ptx::ldmatrix_x1_trans(s1, shared, 16 * (lane % 8));
    ptx::ldmatrix_x2_trans(s2, shared, 16 * (lane % 16));
    ptx::ldmatrix_x4_trans(s4, shared, 16 * lane);
    float d[4] = {};
    ptx::mma_bf16(d, r4, r2[0], r2[1]);
    ptx::mma_f16(d, s4, s2[0], s2[1]);
    ptx::mma_e4m3(d, r4, r2[0], s2[1]);
    ptx::mma_e4m3_fast(d, r4, r2[0], s2[1]);
    ptx::mma_e4m3_block_scaled(d, r4, r1[0], s1[0], lane, 127 + lane);
    ptx::mma_e4m3_block_scaled<1, 1, 2, 3>(d, s4, r1[0], s1[0], lane << 8, lane << 16);

    ptx::barrier_sync();
    shared.store(thread, static_cast<u8>(lane));
    shared.store(256 + 2 * thread, static_cast<u16>(lane));
    shared.store(512 + 4 * thread, lane);
    shared.store(1024 + 8 * thread, ptx::F32x2{d[0], d[1]});
    shared.store(2048 + 16 * thread, ptx::U32x4{r4[0], r4[1], r4[2], r4[3]});
    ptx::syncwarp();
    const u32 next = thread ^ 1;
    u32 sum = shared.load<u8>(next) + shared.load<u16>(256 + 2 * next);
    sum += shared.load<u32>(512 + 4 * next);
    const auto two = shared.load<ptx::F32x2>(1024 + 8 * next);
    const auto four = shared.load<ptx::U32x4>(2048 + 16 * next);
    sum += four.x + four.w + ptx::shfl_xor(sum, 1) + ptx::shfl_idx(sum, 3) + ptx::shfl_up(sum, 2) +
           ptx::shfl_down(sum, 2) + ptx::ballot(sum > 5);
    if (ptx::any(sum > 7)) sum++;
    if (ptx::all(sum > 7)) sum++;

    float x = ptx::ex2(two.x) + ptx::lg2(two.y) + ptx::rcp(d[2]) + ptx::fma(d[0], d[1], d[2]);
    ptx::optimizer_barrier(x);
    ptx::optimizer_barrier(sum);
    x = ptx::max(x, ptx::min(d[3], ptx::ceil(x)));
    x = ptx::max_or_nan(x, d[2]);
    sum = ptx::max_u16x2(sum, four.y);
    sum ^= ptx::pack_e4m3x4(d[0], d[1], d[2], d[3]) ^ ptx::pack_bf16x2(d[0], d[1]) ^
           ptx::pack_f16x2(d[2], d[3]);
    const ptx::F32x2 e = ptx::unpack_e4m3x2(static_cast<u16>(sum));
    const ptx::F32x2 b = ptx::unpack_bf16x2(sum), h = ptx::unpack_f16x2(sum);
    x += e.x + e.y + b.x + b.y + h.x + h.y;

    const u32 block = ptx::block_x() + ptx::block_y() + ptx::block_z() + ptx::blocks_x() +
                      ptx::blocks_y() + ptx::blocks_z() + ptx::threads_x();
    sum += ptx::atomic_add(p.out, 0, 1) + ptx::atomic_max(p.out, 1, sum) + block;
    ptx::atomic_add(p.sums, 0, x);
    ptx::atomic_max(p.sums, 1, x);
    p.out.store(2 + thread, sum);
    p.sums.sub(2, 128).store(2 * thread, ptx::F32x2{x, d[3]});
}

#if !defined(QUATT_COMMON_ONLY)

struct BulkParams {
    ptx::TensorMap in2, in3, in4, out2, out3, out4;
    tile::Global<const u8> in;
    tile::Global<u8> out;
};

// What needs sm_90: one thread copies in, all touch, one thread copies out.
QUATT_KERNEL(32) use_bulk(QUATT_GRID_CONSTANT(BulkParams) p) {
    const tile::Shared shared = ptx::dynamic_shared(16384 + 8);
    const tile::Shared barrier = shared.sub(16384, 8);
    const bool is_leader = ptx::lane_id() == 0;
    const auto part = [&](u32 i) { return shared.sub(4096 * i, 4096); };
    ptx::grid_wait();
    ptx::grid_launch_dependents();
    if (is_leader) {
        ptx::mbarrier_init(barrier, 2);
        ptx::fence_mbarrier_init();
    }
    ptx::syncwarp();
    if (is_leader) {
        ptx::mbarrier_expect_tx(barrier, 4096);
        ptx::mbarrier_arrive_expect_tx(barrier, 3 * 4096);
        ptx::tensor_load_2d(part(0), p.in2, 0, 0, barrier);
        ptx::tensor_load_3d(part(1), p.in3, 0, 0, 0, barrier);
        ptx::tensor_load_4d(part(2), p.in4, 0, 0, 0, 0, barrier);
        ptx::bulk_load(part(3), p.in, 4096, barrier);
        ptx::mbarrier_arrive(barrier);
    }
    if (!ptx::mbarrier_test_wait(barrier, 0)) {
        ptx::mbarrier_wait(barrier, 0);
    }
    for (u32 i = 0; i < 4; i++) {
        const u32 at = 4 * ptx::lane_id();
        part(i).store(at, part(i).load<u32>(at) + 1);
    }
    ptx::fence_proxy_async();
    ptx::syncwarp();
    if (is_leader) {
        ptx::tensor_store_2d(p.out2, 0, 0, part(0));
        ptx::tensor_store_3d(p.out3, 0, 0, 0, part(1));
        ptx::tensor_store_4d(p.out4, 0, 0, 0, 0, part(2));
        ptx::bulk_store(p.out, part(3), 4096);
        ptx::bulk_commit();
        ptx::bulk_wait_read<0>();
    }
}

#endif

#if defined(QUATT_WITH_WGMMA)

// What only sm_90a has: one warpgroup.
QUATT_KERNEL(128, 1) use_wgmma(const WrapperParams p) {
    const tile::Shared shared = ptx::dynamic_shared(65536);
    const u32 thread = ptx::thread_x();
    u32 a[4] = {p.out.load(0), p.out.load(1), p.out.load(2), p.out.load(3)};
    float x[32], y[64], z[96];
    ptx::setmaxnreg_dec<240>();
    ptx::setmaxnreg_inc<248>();
    ptx::wgmma_fence();
    ptx::wgmma_e4m3<64>(x, ptx::k_major<128>(shared), ptx::k_major<64>(shared), false);
    ptx::wgmma_e4m3<128>(y, ptx::k_major<128>(shared), ptx::k_major<32>(shared), false);
    ptx::wgmma_e4m3<192>(z, ptx::k_major<128>(shared), ptx::k_major<128>(shared), false);
    ptx::wgmma_e4m3<64>(x, a, ptx::k_major<64>(ptx::k_major<128>(shared), 4096), true);
    ptx::wgmma_commit();
    ptx::wgmma_e4m3<128>(y, a, ptx::k_major<64>(shared), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_wait<0>();
    float sum = 0;
    QUATT_UNROLL
    for (u32 i = 0; i < 96; i++)
        sum += z[i] + y[i % 64] + x[i % 32];
    p.sums.store(thread, sum);
}

// Clusters of two blocks.
QUATT_KERNEL(32) use_cluster(const WrapperParams p) {
    const tile::Shared shared = ptx::dynamic_shared(1024 + 16);
    const tile::Shared full = shared.sub(1024, 8), other = shared.sub(1032, 8);
    const bool is_leader = ptx::lane_id() == 0;
    if (is_leader) {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_init(other, 1);
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
    const u32 rank = ptx::cluster_rank();
    if (is_leader) {
        ptx::mbarrier_arrive_expect_tx(full, 1024);
        ptx::bulk_load_multicast(shared.sub(512 * rank, 512), p.in.sub(512 * rank, 512), 512, full,
                                 u16(3));
        ptx::mbarrier_arrive_at(other, rank ^ 1);
    }
    ptx::mbarrier_wait(full, 0);
    ptx::mbarrier_wait(other, 0);
    p.out.store(ptx::thread_x(), shared.load<u32>(4 * ptx::thread_x()));
    ptx::cluster_sync();
}

#endif

}  // namespace QUATT_ABI
}  // namespace quatt::test

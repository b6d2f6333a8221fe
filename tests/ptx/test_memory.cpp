// Views, ldmatrix, copies and atomics: what ends up where.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "warp.hpp"
#include "wrappers.cuh"

namespace quatt::test {
namespace {

template <class T>
Global<T> view(std::vector<T>& v) {
    return {v.data(), static_cast<i64>(v.size())};
}

std::vector<u8> random_bytes(std::size_t n, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<u8> bytes(n);
    for (u8& b : bytes)
        b = static_cast<u8>(generator());
    return bytes;
}

TEST(Views, LoadsAndStoresOfEveryWidth) {
    std::vector<u8> in = random_bytes(512, 1), out(512, 0);
    run_warp(
        [&] {
            const Global<const u8> from = view(in);
            const Global<u8> to = view(out);
            const Shared shared = dynamic_shared(512);
            const u32 lane = lane_id();
            const auto move = [&](auto type, u32 at, u32 index) {
                using T = decltype(type);
                const u32 i = at + index * sizeof(T);
                shared.store(i, from.load<T>(i));
                to.store(i, shared.load<T>(i));
            };
            if (lane < 16) move(U32x4{}, 0, lane);
            if (lane < 16) move(F32x2{}, 256, lane);
            if (lane >= 16) move(u32{}, 384, lane - 16);
            if (lane < 16) move(u16{}, 448, lane);
            move(u8{}, 480, lane);
        },
        512);
    EXPECT_EQ(in, out);
}

// Element (row, column) of matrix m as 16-bit words, straight from the definition of the layout.
template <int Count, bool IsTransposed, class Load>
void check_ldmatrix(Load load) {
    const std::vector<u8> rows = random_bytes(Count * 8 * 16, Count);
    run_warp(
        [&] {
            const Shared shared = dynamic_shared(2048);
            const u32 lane = lane_id();
            // Rows lie apart and in reverse.
            const auto place = [](u32 row) { return (Count * 8 - 1 - row) * 48; };
            for (u32 i = lane; i < rows.size(); i += 32)
                shared.store(place(i / 16) + i % 16, rows[i]);
            syncwarp();
            u32 r[Count];
            load(r, shared, place(lane % (Count * 8)));
            for (u32 m = 0; m < Count; m++)
                for (u32 half = 0; half < 2; half++) {
                    u32 row = lane / 4, column = lane % 4 * 2 + half;
                    if (IsTransposed) std::swap(row, column);
                    u16 expected;
                    std::memcpy(&expected, &rows[(m * 8 + row) * 16 + column * 2], 2);
                    EXPECT_EQ(r[m] >> (16 * half) & 0xFFFF, expected);
                }
        },
        2048);
}

TEST(Ldmatrix, AllForms) {
    check_ldmatrix<1, false>([](auto& r, Shared s, u32 at) { ldmatrix_x1(r, s, at); });
    check_ldmatrix<2, false>([](auto& r, Shared s, u32 at) { ldmatrix_x2(r, s, at); });
    check_ldmatrix<4, false>([](auto& r, Shared s, u32 at) { ldmatrix_x4(r, s, at); });
    check_ldmatrix<1, true>([](auto& r, Shared s, u32 at) { ldmatrix_x1_trans(r, s, at); });
    check_ldmatrix<2, true>([](auto& r, Shared s, u32 at) { ldmatrix_x2_trans(r, s, at); });
    check_ldmatrix<4, true>([](auto& r, Shared s, u32 at) { ldmatrix_x4_trans(r, s, at); });
}

TEST(CpAsync, MovesAndFillsWithZeros) {
    std::vector<u8> in = random_bytes(1024, 3);
    run_warp(
        [&] {
            const Global<const u8> from = view(in);
            const Shared shared = dynamic_shared(1024);
            const u32 lane = lane_id();
            cp_async<16>(shared, 16 * lane, from, 16 * lane, lane % 17);
            cp_async<8>(shared, 512 + 8 * lane, from, 512 + 8 * lane, lane % 9);
            cp_async<4>(shared, 768 + 4 * lane, from, 768 + 4 * lane);
            cp_async_commit();
            cp_async_wait<0>();
            for (u32 i = 0; i < 16; i++)
                EXPECT_EQ(shared.load<u8>(16 * lane + i), i < lane % 17 ? in[16 * lane + i] : 0);
            for (u32 i = 0; i < 8; i++)
                EXPECT_EQ(shared.load<u8>(512 + 8 * lane + i),
                          i < lane % 9 ? in[512 + 8 * lane + i] : 0);
            u32 word;
            std::memcpy(&word, &in[768 + 4 * lane], 4);
            EXPECT_EQ(shared.load<u32>(768 + 4 * lane), word);
        },
        1024);
}

TEST(CpAsync, WaitLeavesTheNewestGroups) {
    std::vector<u8> in = random_bytes(64, 4);
    for (std::uint64_t seed = 0; seed < 12; seed++) {
        const simt::Result result = simt::launch({"groups", {1}, {32}, 64}, {.seed = seed}, [&] {
            const Global<const u8> from = view(in);
            const Shared shared = dynamic_shared(64);
            if (lane_id() == 0) {
                for (u32 group = 0; group < 3; group++) {
                    cp_async<16>(shared, 16 * group, from, 16 * group);
                    cp_async_commit();
                }
                cp_async_wait<1>();
                EXPECT_EQ(shared.load<u8>(0), in[0]);
                EXPECT_EQ(shared.load<u8>(31), in[31]);
                (void)shared.load<u8>(32);  // the third group
                cp_async_wait<0>();
            }
        });
        ASSERT_EQ(result.reports.size(), 1u) << result.summary();
        EXPECT_EQ(result.reports[0].fault, simt::Fault::kInFlight);
    }
}

// Where a swizzle puts a byte: the 16-byte chunks of each 128-byte line are permuted by the line's
// index in the pattern, within 128, 64 or 32 bytes.
u32 swizzled_offset(simt::Swizzle swizzle, u32 offset) {
    const u32 line = offset / 128, chunk = offset / 16 % 8, byte = offset % 16;
    u32 flip = 0;
    if (swizzle == simt::Swizzle::k128B) flip = line % 8;
    if (swizzle == simt::Swizzle::k64B) flip = line % 4;
    if (swizzle == simt::Swizzle::k32B) flip = line % 2;
    return line * 128 + (chunk ^ flip) * 16 + byte;
}

struct TensorCase {
    simt::Swizzle swizzle;
    u32 element_bytes;
    std::vector<u32> extent, box;
    std::vector<i32> origin;
};

void check_tensor(const TensorCase& test) {
    const u32 rank = static_cast<u32>(test.extent.size());
    simt::TensorMap map;
    map.rank = rank;
    map.element_bytes = test.element_bytes;
    map.swizzle = test.swizzle;
    std::size_t bytes = test.element_bytes, box_bytes = test.element_bytes;
    for (u32 d = 0; d < rank; d++) {
        map.extent[d] = test.extent[d];
        map.box[d] = test.box[d];
        map.stride_bytes[d] = bytes;
        bytes = (bytes * test.extent[d] + 31) / 16 * 16;  // some padding between rows
        box_bytes *= test.box[d];
    }
    std::vector<u8> in = random_bytes(bytes + 16, 7);
    const auto aligned = [](std::vector<u8>& v) {
        return v.data() + (16 - reinterpret_cast<std::uintptr_t>(v.data()) % 16) % 16;
    };
    map.base = aligned(in);
    ASSERT_EQ(map.invalid(), nullptr) << map.invalid();

    // The box as it should lie in shared memory.
    std::vector<u8> expected(box_bytes);
    std::vector<bool> is_inside(box_bytes);
    for (std::size_t i = 0; i < box_bytes / test.element_bytes; i++) {
        std::size_t rest = i, from = 0;
        bool inside = true;
        for (u32 d = 0; d < rank; d++) {
            const std::int64_t index =
                test.origin[d] + static_cast<std::int64_t>(rest % test.box[d]);
            rest /= test.box[d];
            inside = inside && index >= 0 && index < test.extent[d];
            if (inside) from += static_cast<std::size_t>(index) * map.stride_bytes[d];
        }
        for (u32 b = 0; b < test.element_bytes; b++) {
            const u32 at =
                swizzled_offset(test.swizzle, static_cast<u32>(i * test.element_bytes + b));
            expected[at] = inside ? map.base[from + b] : 0;
            is_inside[at] = inside;
        }
    }

    std::vector<u8> out(in.size(), 0xAB);
    simt::TensorMap to = map;
    to.base = aligned(out);
    run_warp(
        [&] {
            const Shared shared = dynamic_shared(static_cast<u32>(box_bytes) + 8);
            const Shared barrier = shared.sub(static_cast<u32>(box_bytes), 8);
            const Shared box = shared.sub(0, static_cast<u32>(box_bytes));
            const std::vector<i32>& o = test.origin;
            if (lane_id() == 0) {
                mbarrier_init(barrier, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(barrier, static_cast<u32>(box_bytes));
                if (rank == 2) tensor_load_2d(box, map, o[0], o[1], barrier);
                if (rank == 3) tensor_load_3d(box, map, o[0], o[1], o[2], barrier);
                if (rank == 4) tensor_load_4d(box, map, o[0], o[1], o[2], o[3], barrier);
                mbarrier_wait(barrier, 0);
                for (u32 i = 0; i < box_bytes; i++)
                    ASSERT_EQ(box.load<u8>(i), expected[i]) << "byte " << i;
                if (rank == 2) tensor_store_2d(to, o[0], o[1], box);
                if (rank == 3) tensor_store_3d(to, o[0], o[1], o[2], box);
                if (rank == 4) tensor_store_4d(to, o[0], o[1], o[2], o[3], box);
                bulk_commit();
                bulk_wait_read<0>();
            }
        },
        static_cast<u32>(box_bytes) + 8);
    // Stored back, the elements inside are there, and nothing else was touched.
    std::size_t inside_bytes = 0, same = 0;
    for (const bool inside : is_inside)
        inside_bytes += inside;
    for (std::size_t i = 0; i < bytes; i++) {
        if (to.base[i] == 0xAB) continue;
        EXPECT_EQ(to.base[i], map.base[i]) << i;
        same++;
    }
    EXPECT_LE(same, inside_bytes);
    EXPECT_GE(same + bytes / 64, inside_bytes);  // a byte may be 0xAB by chance
}

TEST(Tensor, BoxesOfEveryRankAndSwizzle) {
    using simt::Swizzle;
    check_tensor({Swizzle::kNone, 1, {64, 20}, {32, 8}, {16, 4}});
    check_tensor({Swizzle::k32B, 1, {64, 20}, {32, 16}, {0, 2}});
    check_tensor({Swizzle::k64B, 2, {64, 40}, {32, 24}, {32, 1}});
    check_tensor({Swizzle::k128B, 1, {256, 40}, {128, 32}, {128, 5}});
    check_tensor({Swizzle::k128B, 4, {40, 40}, {32, 32}, {3, 5}});
    check_tensor({Swizzle::k128B, 2, {64, 5, 9}, {64, 2, 8}, {0, 1, 1}});
    check_tensor({Swizzle::k64B, 1, {64, 5, 4, 3}, {64, 2, 2, 3}, {0, 2, 1, 0}});
}

TEST(Tensor, OutOfBoundsIsZerosAndIsNotWritten) {
    using simt::Swizzle;
    check_tensor({Swizzle::k128B, 1, {200, 40}, {128, 32}, {128, 20}});
    check_tensor({Swizzle::kNone, 4, {9, 7}, {8, 8}, {-3, -2}});
    check_tensor({Swizzle::k32B, 2, {24, 6, 3}, {16, 4, 2}, {16, 4, 2}});
    check_tensor({Swizzle::kNone, 1, {32, 4}, {32, 4}, {0, 100}});
}

TEST(Tensor, RefusesWhatTheDriverRefuses) {
    std::vector<u8> memory(4096);
    simt::TensorMap map;
    map.base = memory.data() + (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16) % 16;
    map.rank = 2;
    map.element_bytes = 1;
    map.extent[0] = 64;
    map.extent[1] = 8;
    map.stride_bytes[1] = 64;
    map.box[0] = 64;
    map.box[1] = 8;
    EXPECT_EQ(map.invalid(), nullptr);
    const auto broken = [&](auto change) {
        simt::TensorMap copy = map;
        change(copy);
        return copy.invalid() != nullptr;
    };
    EXPECT_TRUE(broken([](auto& m) { m.rank = 0; }));
    EXPECT_TRUE(broken([](auto& m) { m.element_bytes = 3; }));
    EXPECT_TRUE(broken([](auto& m) { m.base++; }));
    EXPECT_TRUE(broken([](auto& m) { m.stride_bytes[1] = 72; }));
    EXPECT_TRUE(broken([](auto& m) { m.box[1] = 257; }));
    EXPECT_TRUE(broken([](auto& m) { m.box[0] = 40; }));
    EXPECT_TRUE(broken([](auto& m) { m.swizzle = simt::Swizzle::k32B; }));
    EXPECT_TRUE(broken([](auto& m) { m.extent[1] = 0; }));
}

TEST(Atomics, AcrossBlocksAndWorkers) {
    std::vector<u32> counters(2, 0);
    std::vector<float> floats = {0, -1e30f, -1e30f};
    const simt::Result result = simt::launch({"atomics", {16}, {64}}, {.workers = 4}, [&] {
        const u32 id = block_x() * 64 + thread_x();
        atomic_add(view(counters), 0, 1);
        atomic_max(view(counters), 1, id * 7 % 1024);
        atomic_add(view(floats), 0, 0.5f);
        atomic_max(view(floats), 1, static_cast<float>(id) - 2000);
        atomic_max(view(floats), 2, static_cast<float>(id) - 5);
    });
    EXPECT_TRUE(result.ok()) << result.summary();
    EXPECT_EQ(counters[0], 1024u);
    EXPECT_EQ(counters[1], 1023u);
    EXPECT_EQ(floats[0], 512.0f);
    EXPECT_EQ(floats[1], -977.0f);
    EXPECT_EQ(floats[2], 1018.0f);
}

TEST(Atomics, ReturnWhatWasThere) {
    std::vector<u32> cells = {5, 9};
    (void)simt::launch({"atomics", {1}, {32}}, {}, [&] {
        if (lane_id() != 0) return;
        EXPECT_EQ(atomic_add(view(cells), 0, 3), 5u);
        EXPECT_EQ(atomic_max(view(cells), 1, 7), 9u);
        EXPECT_EQ(atomic_max(view(cells), 1, 11), 9u);
    });
    EXPECT_EQ(cells, (std::vector<u32>{8, 11}));
}

TEST(Wrappers, RunInTheExecutor) {
    std::vector<u8> in = random_bytes(4096, 11);
    std::vector<u32> out(66, 0);
    std::vector<float> sums(130, 0);
    const simt::Result common = simt::launch({"common", {1}, {64}, 4096}, {}, [&] {
        use_common({view(in), view(out), view(sums)});
    });
    EXPECT_TRUE(common.ok()) << common.summary();

    std::vector<u8> from(4096 + 16), results[4];
    u8* base = from.data() + (16 - reinterpret_cast<std::uintptr_t>(from.data()) % 16) % 16;
    for (u32 i = 0; i < 4096; i++)
        base[i] = static_cast<u8>(i * 37 % 255);
    const auto map = [](u8* p, std::vector<u32> extent) {
        simt::TensorMap m;
        m.base = p;
        m.rank = static_cast<u32>(extent.size());
        m.element_bytes = 1;
        u32 stride = 1;
        for (u32 d = 0; d < m.rank; d++) {
            m.extent[d] = m.box[d] = extent[d];
            m.stride_bytes[d] = stride;
            stride *= extent[d];
        }
        return m;
    };
    const auto target = [&](int i) {
        results[i].assign(4096 + 16, 0);
        return results[i].data() +
               (16 - reinterpret_cast<std::uintptr_t>(results[i].data()) % 16) % 16;
    };
    u8* targets[4] = {target(0), target(1), target(2), target(3)};
    const BulkParams params{map(base, {64, 64}),
                            map(base, {64, 16, 4}),
                            map(base, {64, 4, 4, 4}),
                            map(targets[0], {64, 64}),
                            map(targets[1], {64, 16, 4}),
                            map(targets[2], {64, 4, 4, 4}),
                            {base, 4096},
                            {targets[3], 4096}};
    for (std::uint64_t seed = 0; seed < 6; seed++) {
        const simt::Result bulk =
            simt::launch({"bulk", {1}, {32}, 16384 + 8}, {.seed = seed}, [&] { use_bulk(params); });
        EXPECT_TRUE(bulk.ok()) << bulk.summary();
        for (const u8* t : targets)
            for (u32 i = 0; i < 4096; i++)
                ASSERT_EQ(t[i], static_cast<u8>(base[i] + (i < 128 && i % 4 == 0 ? 1 : 0))) << i;
    }
}

}  // namespace
}  // namespace quatt::test

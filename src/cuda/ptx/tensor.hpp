// Tensor copies (TMA tiles) of 2 to 4 dimensions. Coordinates are in elements, the contiguous
// dimension first.
#pragma once

#include "cuda/ptx/mbarrier.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if defined(__CUDACC__)
// A CUtensorMap, which the launcher's cuTensorMapEncodeTiled fills. It reaches the kernel as a
// QUATT_GRID_CONSTANT(...) parameter or a member of one.
struct alignas(64) TensorMap {
    u64 opaque[16];
};
#if !QUATT_HAS_BULK_COPY
extern "C" __device__ void quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
using TensorMap = simt::TensorMap;

namespace host {

inline bool check_tensor(const TensorMap& map, u32 rank, const Shared& shared, Site site) {
    if (const char* why = map.invalid()) {
        simt::block().report(simt::Fault::kBadOperand, site, std::string("tensor map: ") + why);
        return false;
    }
    if (simt::self().fiber.is_on_stack(&map)) {
        simt::block().report(simt::Fault::kBadOperand, site,
                             "the tensor map is a copy: it has to be a grid constant");
        return false;
    }
    if (map.rank != rank) {
        simt::block().report(simt::Fault::kBadOperand, site,
                             "a map of " + std::to_string(map.rank) + " dimensions");
        return false;
    }
    // A swizzle repeats every 8 rows of its span, and the box has to start where it does.
    const u32 alignment = map.swizzle == simt::Swizzle::kNone ? 128 : 8 * span_bytes(map.swizzle);
    return shared.check(0, map.box_bytes(), alignment, "tensor copy", site);
}

template <class... Coordinates>
void tensor_load(Shared to, const TensorMap& map, Shared barrier, Site site,
                 Coordinates... coordinates) {
    const i32 origin[] = {coordinates...};
    if (check_tensor(map, sizeof...(coordinates), to, site))
        simt::block().tensor_load(to.address(), map, origin, barrier.address(), site);
}

template <class... Coordinates>
void tensor_store(const TensorMap& map, Shared from, Site site, Coordinates... coordinates) {
    const i32 origin[] = {coordinates...};
    if (check_tensor(map, sizeof...(coordinates), from, site))
        simt::block().tensor_store(map, origin, from.address(), site);
}

}  // namespace host
#endif

// cp.async.bulk.tensor, global to shared: one box, swizzled as the map says; what lies out of
// bounds is zeros and counts. `barrier` counts the bytes of the whole box. PTX ISA 9.7.9.25.5.2
// NOTE: shared::cta, not shared::cluster, for the reason in copy.hpp.
QUATT_DEV void tensor_load_2d(Shared to, const TensorMap& map, i32 x, i32 y, Shared barrier,
                              [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(to.address()),
        "l"(&map), "r"(barrier.address()), "r"(x), "r"(y)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_load(to, map, barrier, site, x, y);
#endif
}

QUATT_DEV void tensor_load_3d(Shared to, const TensorMap& map, i32 x, i32 y, i32 z, Shared barrier,
                              [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to.address()),
        "l"(&map), "r"(barrier.address()), "r"(x), "r"(y), "r"(z)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_load(to, map, barrier, site, x, y, z);
#endif
}

QUATT_DEV void tensor_load_4d(Shared to, const TensorMap& map, i32 x, i32 y, i32 z, i32 w,
                              Shared barrier, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to.address()),
        "l"(&map), "r"(barrier.address()), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_load(to, map, barrier, site, x, y, z, w);
#endif
}

// cp.async.bulk.tensor, shared to global, in this thread's open bulk group; nothing is written out
// of bounds. PTX ISA 9.7.9.25.5.2
QUATT_DEV void tensor_store_2d(const TensorMap& map, i32 x, i32 y, Shared from,
                               [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
            &map),
        "r"(from.address()), "r"(x), "r"(y)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_store(map, from, site, x, y);
#endif
}

QUATT_DEV void tensor_store_3d(const TensorMap& map, i32 x, i32 y, i32 z, Shared from,
                               [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], "
        "[%1];" ::"l"(&map),
        "r"(from.address()), "r"(x), "r"(y), "r"(z)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_store(map, from, site, x, y, z);
#endif
}

QUATT_DEV void tensor_store_4d(const TensorMap& map, i32 x, i32 y, i32 z, i32 w, Shared from,
                               [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
        "[%1];" ::"l"(&map),
        "r"(from.address()), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
#else
    quatt_cp_async_bulk_tensor_needs_sm_90();
#endif
#else
    host::tensor_store(map, from, site, x, y, z, w);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx

// Shuffles and votes of the full warp. They move registers and order no memory: syncwarp does.
#pragma once

#include "cuda/ptx/platform.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if !defined(__CUDACC__)
namespace host {

// `source(lane)` is the lane whose value `lane` gets.
template <class T, class Source>
T shuffle(const char* what, T value, Site site, Source source) {
    struct Operands {
        T value, result;
        u32 from;
    } mine{value, value, source(simt::self().thread % simt::kLanes)};
    simt::block().collective(what, site, mine, [](Operands* const* lanes) {
        for (u32 i = 0; i < simt::kLanes; i++)
            lanes[i]->result = lanes[lanes[i]->from]->value;
    });
    return mine.result;
}

}  // namespace host
#endif

// shfl.sync.bfly: the value of lane `lane ^ mask`. PTX ISA 9.7.9.6
template <class T>
[[nodiscard]] QUATT_DEV T shfl_xor(T value, u32 mask,
                                   [[maybe_unused]] Site site = Site::current()) {
    static_assert(sizeof(T) == 4, "shfl moves 32 bits");
#if defined(__CUDACC__)
    return __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(mask));
#else
    return host::shuffle("shfl.bfly", value, site, [=](u32 lane) { return (lane ^ mask) & 31u; });
#endif
}

// shfl.sync.idx: the value of lane `lane & 31`. PTX ISA 9.7.9.6
template <class T>
[[nodiscard]] QUATT_DEV T shfl_idx(T value, u32 lane,
                                   [[maybe_unused]] Site site = Site::current()) {
    static_assert(sizeof(T) == 4, "shfl moves 32 bits");
#if defined(__CUDACC__)
    return __shfl_sync(0xFFFFFFFFu, value, static_cast<int>(lane));
#else
    return host::shuffle("shfl.idx", value, site, [=](u32) { return lane & 31u; });
#endif
}

// shfl.sync.up: the value of the lane `delta` (0 to 31) below, one's own where there is none.
// PTX ISA 9.7.9.6
template <class T>
[[nodiscard]] QUATT_DEV T shfl_up(T value, u32 delta,
                                  [[maybe_unused]] Site site = Site::current()) {
    static_assert(sizeof(T) == 4, "shfl moves 32 bits");
#if defined(__CUDACC__)
    return __shfl_up_sync(0xFFFFFFFFu, value, delta);
#else
    return host::shuffle("shfl.up", value, site,
                         [=](u32 lane) { return lane >= delta ? lane - delta : lane; });
#endif
}

// shfl.sync.down: the value of the lane `delta` (0 to 31) above, one's own where there is none.
// PTX ISA 9.7.9.6
template <class T>
[[nodiscard]] QUATT_DEV T shfl_down(T value, u32 delta,
                                    [[maybe_unused]] Site site = Site::current()) {
    static_assert(sizeof(T) == 4, "shfl moves 32 bits");
#if defined(__CUDACC__)
    return __shfl_down_sync(0xFFFFFFFFu, value, delta);
#else
    return host::shuffle("shfl.down", value, site,
                         [=](u32 lane) { return lane + delta < 32u ? lane + delta : lane; });
#endif
}

// vote.sync.ballot: bit i is lane i's predicate. PTX ISA 9.7.13.9
[[nodiscard]] QUATT_DEV u32 ballot(bool predicate, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    return __ballot_sync(0xFFFFFFFFu, predicate);
#else
    struct Operands {
        bool predicate;
        u32 result;
    } mine{predicate, 0};
    simt::block().collective("vote", site, mine, [](Operands* const* lanes) {
        u32 bits = 0;
        for (u32 i = 0; i < simt::kLanes; i++)
            bits |= static_cast<u32>(lanes[i]->predicate) << i;
        for (u32 i = 0; i < simt::kLanes; i++)
            lanes[i]->result = bits;
    });
    return mine.result;
#endif
}

// vote.sync.any. PTX ISA 9.7.13.9
[[nodiscard]] QUATT_DEV bool any(bool predicate, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    return __any_sync(0xFFFFFFFFu, predicate) != 0;
#else
    return ballot(predicate, site) != 0;
#endif
}

// vote.sync.all. PTX ISA 9.7.13.9
[[nodiscard]] QUATT_DEV bool all(bool predicate, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    return __all_sync(0xFFFFFFFFu, predicate) != 0;
#else
    return ballot(predicate, site) == 0xFFFFFFFFu;
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx

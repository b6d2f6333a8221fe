// The executor's bodies of wgmma and setmaxnreg: src/simt/wgmma.cpp computes, at a moment of its
// own choice. The lanes leave where their registers lie.
#pragma once

#include "cuda/ptx/platform.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {
namespace host {

inline void wgmma_e4m3(float* d, u32 n, u64 a, u64 b, bool accumulate, Site site) {
    simt::block().wgmma({d, nullptr, n, a, b, accumulate}, site);
}

inline void wgmma_e4m3(float* d, u32 n, const u32 (&a)[4], u64 b, bool accumulate, Site site) {
    simt::block().wgmma({d, a, n, 0, b, accumulate}, site);
}

inline void wgmma_fence(Site site) {
    simt::block().wgmma_fence(site);
}

inline void wgmma_commit(Site site) {
    simt::block().wgmma_commit(site);
}

inline void wgmma_wait(u32 groups_left, Site site) {
    simt::block().wgmma_wait(groups_left, site);
}

inline void set_registers(u32 count, bool is_increase, Site site) {
    simt::block().set_registers(count, is_increase, site);
}

}  // namespace host
}  // namespace QUATT_ABI
}  // namespace quatt::ptx

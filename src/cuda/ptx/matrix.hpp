// ldmatrix: matrices of 8 rows of 16 bytes from shared memory into fragments. Lane i holds bytes
// 4(i % 4) to 4(i % 4) + 3 of row i / 4 of each; transposed, 16-bit elements (2(i % 4), i / 4) and
// (2(i % 4) + 1, i / 4). Lane i names the row of its own `offset`: lanes 0..7 for the first
// matrix, 8..15 for the second and so on.
#pragma once

#include "cuda/ptx/memory.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if !defined(__CUDACC__)
namespace host {

template <int Count, bool IsTransposed>
void ldmatrix(u32* into, Shared from, u32 offset, Site site) {
    struct Operands {
        u32* into;
        u32 row;
    } mine{into, from.address() + offset};
    // Lanes past the matrices' rows bring an address that is not used.
    const bool is_used = simt::self().thread % simt::kLanes < 8 * Count;
    if (is_used && !from.check(offset, 16, 16, "ldmatrix", site)) mine.row = ~0u;
    simt::block().collective("ldmatrix", site, mine, [&](Operands* const* lanes) {
        simt::Block& block = simt::block();
        const u32 warp = simt::self().actor / simt::kLanes * simt::kLanes;
        for (u32 m = 0; m < Count; m++) {
            u32 banks = 0;
            for (u32 r = 0; r < 8; r++) {
                const u32 row = lanes[8 * m + r]->row;
                if (row == ~0u) continue;
                const u32 bank = 1u << (row / 16 % 8);
                if (banks & bank) block.statistics().ldmatrix_conflicts++;
                banks |= bank;
                block.statistics().ldmatrix_rows++;
                for (u32 c = 0; c < 4; c++) {
                    if constexpr (IsTransposed) {
                        block.shadow().read(warp + 8 * c + r / 2, row + 4 * c, 4, site);
                        block.shadow().read(warp + 8 * c + 4 + r / 2, row + 4 * c, 4, site);
                    } else {
                        block.shadow().read(warp + 4 * r + c, row + 4 * c, 4, site);
                    }
                }
            }
            const auto element = [&](u32 row, u32 column) -> u32 {
                const u32 at = lanes[8 * m + row]->row;
                u16 value = 0xFFFF;
                if (at != ~0u) std::memcpy(&value, block.shared(at + 2 * column), sizeof value);
                return value;
            };
            for (u32 i = 0; i < simt::kLanes; i++) {
                const u32 a = i / 4, b = i % 4 * 2;
                lanes[i]->into[m] = IsTransposed ? element(b, a) | element(b + 1, a) << 16
                                                 : element(a, b) | element(a, b + 1) << 16;
            }
        }
    });
}

}  // namespace host
#endif

// ldmatrix.sync.aligned.m8n8.x1.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x1(u32 (&r)[1], Shared from, u32 offset,
                           [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<1, false>(r, from, offset, site);
#endif
}

// ldmatrix.sync.aligned.m8n8.x2.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x2(u32 (&r)[2], Shared from, u32 offset,
                           [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<2, false>(r, from, offset, site);
#endif
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x4(u32 (&r)[4], Shared from, u32 offset,
                           [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<4, false>(r, from, offset, site);
#endif
}

// ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x1_trans(u32 (&r)[1], Shared from, u32 offset,
                                 [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<1, true>(r, from, offset, site);
#endif
}

// ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x2_trans(u32 (&r)[2], Shared from, u32 offset,
                                 [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<2, true>(r, from, offset, site);
#endif
}

// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16. PTX ISA 9.7.14.5.15
QUATT_DEV void ldmatrix_x4_trans(u32 (&r)[4], Shared from, u32 offset,
                                 [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from.address() + offset)
                 : "memory");
#else
    host::ldmatrix<4, true>(r, from, offset, site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx

#include "cpu/level.hpp"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cerrno>
#include <system_error>

#include "core/device.hpp"
#include "core/text.hpp"

namespace quatt::cpu {
namespace {

// vdpbf16ps has twice the rate of fp32 FMA on Zen 5, half of it on Intel (docs/perf/cpu.md).
bool bf16_is_fast() {
    return __builtin_cpu_is("amd") != 0;
}

// bf16 holds every code, times its UE4M3 scale where there is one.
bool exact_in_bf16(quatt_format f) {
    return f == QUATT_FORMAT_BF16 || f == QUATT_FORMAT_E4M3 || f == QUATT_FORMAT_E2M1;
}

}  // namespace

bool has_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
           core::cpu_has_f16c();
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
}
bool has_avx512_vnni() {
    return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0;
}
bool has_avx512_bf16() {
    return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16") != 0;
}
bool has_avx512_fp16() {
    return has_avx512_vnni() && core::cpu_has_avx512_fp16();
}
bool has_amx() {
    return has_avx512_bf16() && core::cpu_has_amx();
}

// Linux keeps the 8 KB of AMX's tiles for a process that asked for them (since 5.16,
// Documentation/arch/x86/xstate.rst); without that the first tile instruction is a SIGILL. From
// then on sigaltstack refuses stacks that cannot hold them (some 11 KB), so it is asked for only
// where a plan will use them; with such a stack in the process, the answer is ENOSPC.
std::string ask_for_tiles() {
#if defined(__linux__)
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, ARCH_XCOMP_TILEDATA
    static const int error = syscall(SYS_arch_prctl, kRequest, kTileData) == 0 ? 0 : errno;
    return error == 0 ? std::string()
                      : core::text(
                            "the system refuses AMX's tiles to this process: arch_prctl("
                            "ARCH_REQ_XCOMP_PERM, 18): ",
                            std::generic_category().message(error),
                            error == ENOSPC ? " on a thread's alternative signal stack" : "");
#else
    return "AMX's tiles are asked for on Linux only";
#endif
}

bool if_it_uses_tiles(const Level& level, const quatt_recipe& r) {
    return qk_product_of(r, level) != Product::kF32 || pv_product_of(r, level) != Product::kF32;
}
// A fast vdpbf16ps has the rate of FP16 FMA, takes more formats and sums in fp32.
bool if_bf16_is_slow(const Level&, const quatt_recipe&) {
    return !(has_avx512_bf16() && bf16_is_fast());
}
bool if_bf16_is_fast(const Level&, const quatt_recipe&) {
    return bf16_is_fast();
}

Product qk_product_of(const quatt_recipe& r, const Level& level) {
    if (level.int8 && r.q.format == QUATT_FORMAT_INT8 && r.k.format == QUATT_FORMAT_INT8) {
        return Product::kInt8;
    }
    return level.bf16 && exact_in_bf16(r.q.format) && exact_in_bf16(r.k.format) ? Product::kBf16
                                                                                : Product::kF32;
}

Product pv_product_of(const quatt_recipe& r, const Level& level) {
    // An E4M3 code times an E4M3 code, and 64 of them, fit fp16 (level_kernels.hpp, MacF16). Scores
    // do not: channels of Q and K cancel, and a score's error moves codes of P (docs/perf/cpu.md).
    if (level.f16 && r.p_format == QUATT_FORMAT_E4M3 && r.v.format == QUATT_FORMAT_E4M3) {
        return Product::kF16;
    }
    return level.bf16 && exact_in_bf16(r.p_format) && exact_in_bf16(r.v.format) ? Product::kBf16
                                                                                : Product::kF32;
}

}  // namespace quatt::cpu

#include "core/device.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "core/struct_size.hpp"

namespace quatt::core {
namespace {

constexpr std::array kBackends = {"cpu", "reference", "emulate", "cuda", "simt", "emu"};
constexpr const char* kAllowed =
    "cpu, reference, emulate, cuda[:N], simt:ARCH or emu:ARCH[:N], where ARCH is one of ";

// Architectures that GPUs have; which of them have kernels is for the support table to say. The
// ending, where there may be one, names instructions of that architecture (a) or family (f) only;
// the device is the same with and without.
struct Arch {
    std::int32_t number;
    std::string_view endings;
};
constexpr std::array kArchs = {Arch{75, ""},    Arch{80, ""},    Arch{86, ""},    Arch{87, ""},
                               Arch{88, ""},    Arch{89, ""},    Arch{90, "a"},   Arch{100, "af"},
                               Arch{103, "af"}, Arch{110, "af"}, Arch{120, "af"}, Arch{121, "af"}};

std::string allowed_archs() {
    std::string all;
    for (const Arch& a : kArchs) {
        all += text(all.empty() ? "" : ", ", "sm_", a.number);
        for (const char ending : a.endings) {
            all += text(ending == a.endings.front() ? "[" : "|", ending);
        }
        all += a.endings.empty() ? "" : "]";
    }
    return all;
}

// Far above any GPU; 10 * major + minor then fits an int.
constexpr std::int32_t kMaxComputeMajor = 999;

bool parse_number(std::string_view s, std::int32_t& value) {
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    return error == std::errc() && end == s.data() + s.size() && !s.empty() && value >= 0;
}

// sm_90a -> 9, 0; sm_120 -> 12, 0
bool parse_arch(std::string_view s, quatt_device& d) {
    if (s.substr(0, 3) != "sm_") {
        return false;
    }
    s.remove_prefix(3);
    const char ending = !s.empty() && (s.back() == 'a' || s.back() == 'f') ? s.back() : '\0';
    if (ending != '\0') {
        s.remove_suffix(1);
    }
    // NOTE: as text, so that sm_090 is none.
    const auto known = std::find_if(kArchs.begin(), kArchs.end(), [&](const Arch& a) {
        return s == std::to_string(a.number) &&
               (ending == '\0' || a.endings.find(ending) != std::string_view::npos);
    });
    if (known == kArchs.end()) {
        return false;
    }
    d.compute_major = known->number / 10;
    d.compute_minor = known->number % 10;
    return true;
}

#if defined(__x86_64__) && defined(__GNUC__)

// Bits of EDX of CPUID leaf 7, as Intel's manual numbers them (volume 2A, CPUID).
// NOTE: not by __builtin_cpu_supports, whose names differ between compilers.
bool leaf7_edx_has(unsigned bits) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bits) == bits;
}

// XCR0, the registers that the system saves for a program; 0 where it does not say.
std::uint64_t saved_registers() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) {
        return 0;
    }
    asm("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return std::uint64_t{d} << 32 | a;
}

#endif

}  // namespace

Result<quatt_device> parse_device(std::string_view name) {
    quatt_device d{};
    d.struct_size = sizeof d;
    std::array<std::string_view, 3> part;
    std::size_t parts = 0;
    for (std::string_view rest = name; parts < part.size();) {
        const std::size_t colon = rest.find(':');
        part[parts++] = rest.substr(0, colon);
        if (colon == std::string_view::npos) {
            rest = {};
            break;
        }
        rest.remove_prefix(colon + 1);
        if (parts == part.size()) {
            parts++;  // a fourth part
        }
    }
    const auto known = std::find(kBackends.begin(), kBackends.end(), part[0]);
    d.backend = static_cast<quatt_backend>(known - kBackends.begin());
    bool ok = known != kBackends.end();
    switch (ok ? d.backend : -1) {
        case QUATT_BACKEND_CUDA:
            ok = parts == 1 || (parts == 2 && parse_number(part[1], d.ordinal));
            break;
        case QUATT_BACKEND_SIMT:
            ok = parts == 2 && parse_arch(part[1], d);
            break;
        case QUATT_BACKEND_EMU:
            ok = (parts == 2 || (parts == 3 && parse_number(part[2], d.ordinal))) &&
                 parse_arch(part[1], d);
            break;
        default:
            ok = ok && parts == 1;
    }
    if (!ok) {
        return Status(QUATT_INVALID_ARGUMENT,
                      text("device is \"", name, "\"; it must be ", kAllowed, allowed_archs()));
    }
    return d;
}

const char* backend_name(quatt_backend b) {
    return b >= 0 && b < static_cast<int>(kBackends.size()) ? kBackends[static_cast<std::size_t>(b)]
                                                            : "unknown";
}

std::string device_name(const quatt_device& d) {
    std::string name = backend_name(d.backend);
    if (d.backend == QUATT_BACKEND_SIMT || d.backend == QUATT_BACKEND_EMU) {
        name += text(":sm_", d.compute_major, d.compute_minor);
    }
    if (d.backend == QUATT_BACKEND_CUDA || (d.backend == QUATT_BACKEND_EMU && d.ordinal != 0)) {
        name += text(":", d.ordinal);
    }
    return name;
}

Reasons check_device(const quatt_device& d) {
    if (std::string wrong =
            wrong_input_size("device", &d, d.struct_size, sizeof d, "quatt_device_init");
        !wrong.empty()) {
        return {std::move(wrong)};
    }
    Reasons reasons;
    if (d.backend < 0 || d.backend >= static_cast<int>(kBackends.size())) {
        reasons.push_back(
            text("device.backend is ", d.backend, "; it must be 0 to ", kBackends.size() - 1));
    }
    if (d.ordinal < 0 || d.sm_count < 0 || d.compute_major < 0 ||
        d.compute_major > kMaxComputeMajor || d.compute_minor < 0 || d.compute_minor > 9) {
        reasons.push_back(text("device has ordinal ", d.ordinal, ", compute capability ",
                               d.compute_major, ".", d.compute_minor, ", sm_count ", d.sm_count,
                               "; none may be negative, the major number at most ",
                               kMaxComputeMajor, ", the minor number at most 9"));
    }
    return reasons;
}

bool cpu_has_f16c() {
#if defined(__x86_64__) && defined(__GNUC__)
    // NOTE: not by __builtin_cpu_supports, which knows the name in GCC only. And asked once: under
    // a hypervisor each CPUID leaves the machine, and every query comes by here.
    static const bool has = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    }();
    return has;
#else
    return false;
#endif
}

bool cpu_has_avx512_fp16() {
#if defined(__x86_64__) && defined(__GNUC__)
    static const bool has = __builtin_cpu_supports("avx512f") != 0 && leaf7_edx_has(1u << 23);
    return has;
#else
    return false;
#endif
}

bool cpu_has_amx() {
#if defined(__x86_64__) && defined(__GNUC__)
    constexpr std::uint64_t kTileConfigAndData = 3u << 17;
    static const bool has = leaf7_edx_has(1u << 22 | 1u << 24 | 1u << 25) &&
                            (saved_registers() & kTileConfigAndData) == kTileConfigAndData;
    return has;
#else
    return false;
#endif
}

const char* cpu_features() {
#if defined(__x86_64__) && defined(__GNUC__)
    // Not a string: the C interface hands it out, and may neither throw nor fail.
    static const std::array<char, 192> features = [] {
        __builtin_cpu_init();
        std::array<char, 192> all{};
        std::size_t used = 0;
        const auto add = [&](std::string_view name, int has) {
            if (has != 0 && used + name.size() + 1 < all.size()) {
                used += used == 0 ? 0 : 1;
                used += name.copy(all.data() + used, name.size());
                all[used] = ' ';
            }
        };
        add("SSE4.2", __builtin_cpu_supports("sse4.2"));
        add("AVX2", __builtin_cpu_supports("avx2"));
        add("FMA", __builtin_cpu_supports("fma"));
        add("F16C", cpu_has_f16c() ? 1 : 0);
        add("AVX512F", __builtin_cpu_supports("avx512f"));
        add("AVX512BW", __builtin_cpu_supports("avx512bw"));
        add("AVX512DQ", __builtin_cpu_supports("avx512dq"));
        add("AVX512VL", __builtin_cpu_supports("avx512vl"));
        add("AVX512VNNI", __builtin_cpu_supports("avx512vnni"));
        add("AVX512BF16", __builtin_cpu_supports("avx512bf16"));
        add("AVX512FP16", cpu_has_avx512_fp16() ? 1 : 0);
        for (const char* name : {"AMX-TILE", "AMX-INT8", "AMX-BF16"}) {
            add(name, cpu_has_amx() ? 1 : 0);
        }
        all[used] = 0;
        return all;
    }();
    return features.data();
#else
    return "";
#endif
}

}  // namespace quatt::core

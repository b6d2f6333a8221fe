// Device descriptors: names, and what a name means. No driver is asked.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <string>
#include <string_view>

#include "core/text.hpp"

namespace quatt::core {

[[nodiscard]] Result<quatt_device> parse_device(std::string_view name);
[[nodiscard]] std::string device_name(const quatt_device& d);
[[nodiscard]] const char* backend_name(quatt_backend b);
[[nodiscard]] Reasons check_device(const quatt_device& d);

[[nodiscard]] bool cpu_has_f16c();
[[nodiscard]] bool cpu_has_avx512_fp16();
[[nodiscard]] bool cpu_has_amx();  // tiles, INT8 and BF16, and the system keeps their registers
[[nodiscard]] const char* cpu_features();

}  // namespace quatt::core

#define QUATT_EMULATE_FP16
#define QUATT_EMULATE_AMX
#define QUATT_FP16_BODY kSoftwareFp16
#define QUATT_AMX_BODY kSoftwareAmx
#include "cpu/bodies/amx.hpp"
#include "cpu/bodies/fp16.hpp"

#define QUATT_EMULATE_FP16
#define QUATT_EMULATE_AMX
#define QUATT_FP16_BODY kEmulatedFp16
#define QUATT_AMX_BODY kEmulatedAmx
#include "cpu/bodies/amx.hpp"
#include "cpu/bodies/fp16.hpp"

#define QUATT_FP16_BODY kNativeFp16
#include "cpu/bodies/fp16.hpp"

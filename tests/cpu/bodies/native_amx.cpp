#define QUATT_AMX_BODY kNativeAmx
#include "cpu/bodies/amx.hpp"

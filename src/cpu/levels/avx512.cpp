#define QUATT_LEVEL kAvx512Kernels
#include "cpu/kernels.inl"

#define QUATT_LEVEL kAvx2Kernels
#include "cpu/kernels.inl"

#define QUATT_LEVEL kAvx512VnniKernels
#include "cpu/kernels.inl"

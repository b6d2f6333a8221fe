// Every wrapper and the test kernels, compiled natively: a body that ptxas refuses fails here.
#include "wrappers.cuh"

#if !defined(QUATT_COMMON_ONLY)
#include "simt/matmul_bulk.cuh"
#include "simt/matmul_copy.cuh"

template __global__ void quatt::test::bulk_kernel::matmul<>(
    QUATT_GRID_CONSTANT(quatt::test::bulk_kernel::Params));
template __global__ void quatt::test::copy_kernel::matmul<>(const quatt::test::copy_kernel::Params);
#endif

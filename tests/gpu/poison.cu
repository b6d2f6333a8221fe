// Fills the shared memory of every multiprocessor with 0xFF, NaN in every format: what the next
// kernel finds there where it reads what it did not write (gpu_check.py).
#include <cuda_runtime.h>

namespace {

__global__ void poison(unsigned words) {
    extern __shared__ unsigned memory[];
    volatile unsigned* to =
        memory;  // nobody reads it here: without volatile it would not be written
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        to[i] = 0xFFFFFFFFu;
    }
}

}  // namespace

// A cudaError_t.
extern "C" int quatt_test_poison_shared(void* stream) {
    static int bytes = 0, multiprocessors = 0;
    if (bytes == 0) {
        int device = 0, found = 0;
        cudaError_t e = cudaGetDevice(&device);
        e = e != cudaSuccess
                ? e
                : cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
        e = e != cudaSuccess
                ? e
                : cudaDeviceGetAttribute(&found, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        e = e != cudaSuccess
                ? e
                : cudaFuncSetAttribute(poison, cudaFuncAttributeMaxDynamicSharedMemorySize, found);
        if (e != cudaSuccess) {
            return e;
        }
        bytes = found;
    }
    // All of it, so that one block fits on a multiprocessor: as many blocks as multiprocessors
    // reach every one.
    poison<<<static_cast<unsigned>(multiprocessors), 512, static_cast<unsigned>(bytes),
             static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned>(bytes) / 4);
    return cudaGetLastError();
}

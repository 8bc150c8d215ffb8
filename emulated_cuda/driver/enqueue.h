// What the emulated libraries take from the driver.
#pragma once
#define EMULATED_CUDA_TYPES_ONLY
#include <functional>

#include "../include/cuda_runtime.h"

namespace emulated {

// Puts work of a library on a stream: it runs now, or whenever the graph does that the stream is
// capturing. Memory that it may not touch becomes a fault of the device. Returns CUDA's error code.
__attribute__((visibility("default"))) int call_library(cudaStream_t stream,
                                                        std::function<void()> work);

}  // namespace emulated

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
int cudaMemset(void* pointer, int value, size_t size);
int cudaGetDevice(int* device);
int cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
}

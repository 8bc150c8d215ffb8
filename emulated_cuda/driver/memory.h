// The device's memory: each allocation lies between pages that nobody may touch.
#pragma once
#include <cstddef>

namespace emulated {

enum MemoryType { HOST_MEMORY = 1, DEVICE_MEMORY = 2, MANAGED_MEMORY = 3 };  // CUDA's numbers

// These return CUDA's error codes.
int allocate(void** pointer, size_t size, MemoryType type);
int release(void* pointer, bool of_host = false);
int copy(void* to, const void* from, size_t size, int kind);
int copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
              size_t height, int kind);
int fill(void* to, int value, size_t size);

size_t used_memory(int device);

}  // namespace emulated

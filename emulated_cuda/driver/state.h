// What every call of the driver shares: one lock, the error of the context, the current device.
#pragma once
#include <mutex>

#define EMULATED_CUDA_TYPES_ONLY
#include "../include/cuda_runtime.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

namespace emulated {

// One call at a time, and so one kernel at a time: kernels run inside of the call that launches
// them.
extern std::recursive_mutex lock;
using Locked = std::lock_guard<std::recursive_mutex>;

// A fault in a kernel ends the context: each later call returns this code, until the process ends.
extern int context_fault;

extern thread_local int current_device;

// Remembers an error for cudaGetLastError, and returns it.
int reported(int code);

}  // namespace emulated

// How a call begins that a fault of the context has to fail.
#define ENTER                              \
  emulated::Locked locked(emulated::lock); \
  if (emulated::context_fault) return emulated::reported(emulated::context_fault)

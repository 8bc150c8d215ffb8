// What happened on which stream, in order, while somebody looks. emulated_cuda/log.py reads this.
#pragma once
#include <cstdint>

#define EMULATED_CUDA_TYPES_ONLY
#include "../include/cuda_runtime.h"

namespace emulated {

enum LogKind : int64_t {
  WORK_LOGGED,    // a kernel, a copy, a fill, a call of a library, or a graph
  RECORD_LOGGED,  // of an event on the stream
  WAIT_LOGGED,    // of the stream for an event
  STREAM_AWAITED,  // by the host
  EVENT_AWAITED,   // by the host
  DEVICE_AWAITED,  // by the host; the stream means nothing
};

// Adds an entry. Call it with the lock held.
void log(LogKind kind, cudaStream_t stream, const void* event = nullptr);

}  // namespace emulated

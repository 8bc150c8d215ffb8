// How often the device did what. emulated_cuda/counts.py reads these numbers, in this order.
#pragma once
#include <cstdint>

namespace emulated {

enum Counter {
  KERNELS,        // run, those of graphs included
  LIBRARY_CALLS,  // of cuBLAS, cuSOLVER, cuFFT, CUB and Thrust that ran, those of graphs included
  GRAPH_LAUNCHES,
  SYNCHRONIZATIONS,  // calls for which the host waits: of a stream, an event, the device, or a copy
  COPIES_TO_DEVICE,  // of copies by rows each row counts
  BYTES_TO_DEVICE,
  COPIES_TO_HOST,
  BYTES_TO_HOST,
  COPIES_ON_DEVICE,
  BYTES_ON_DEVICE,
  FILLS,
  BYTES_FILLED,
  ALLOCATIONS,
  BYTES_ALLOCATED,
  FREES,
  COUNTERS,
};

void count(Counter counter, uint64_t amount = 1);

}  // namespace emulated

#include "counts.h"

#include <atomic>

#include "state.h"

namespace emulated {

static std::atomic<uint64_t> totals[COUNTERS] = {};

void count(Counter counter, uint64_t amount) { totals[counter] += amount; }

}  // namespace emulated

// Writes as many of the counters as there is room for, and returns how many there are.
API emulated_cuda_counts(uint64_t* values, int room) {
  for (int i = 0; i < room && i < emulated::COUNTERS; i++) values[i] = emulated::totals[i];
  return emulated::COUNTERS;
}

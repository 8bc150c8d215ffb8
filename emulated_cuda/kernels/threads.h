// Threads, barriers, votes and shuffles: see driver/fibers.cpp.
#pragma once

extern "C" {
extern uint3 emulated_thread, emulated_block, emulated_block_size, emulated_grid_size;
extern char emulated_shared[];
void emulated_barrier();
int emulated_barrier_count(int value);
const uint64_t* emulated_exchange(unsigned mask, uint64_t value, unsigned* present);
[[noreturn]] void emulated_trap(int code);
}

#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_size
#define gridDim emulated_grid_size
constexpr int warpSize = 32;

#undef assert
#define assert(condition) ((condition) ? (void)0 : emulated_trap(710))
#define __trap() emulated_trap(719)

inline void __syncthreads() { emulated_barrier(); }
inline int __syncthreads_count(int value) { return emulated_barrier_count(value); }
inline int __syncthreads_or(int value) { return emulated_barrier_count(value) != 0; }
inline int __syncthreads_and(int value) { return emulated_barrier_count(!value) == 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

inline unsigned emulated_flat_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

inline unsigned emulated_lane() { return emulated_flat_thread() % warpSize; }

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  unsigned present;
  emulated_exchange(mask, 0, &present);
}

inline unsigned __ballot_sync(unsigned mask, int value) {
  unsigned present, ballot = 0;
  const uint64_t* votes = emulated_exchange(mask, value != 0, &present);
  for (int lane = 0; lane < warpSize; lane++)
    if (present >> lane & 1 && votes[lane]) ballot |= 1u << lane;
  return ballot;
}

inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
inline int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, !value) == 0; }
inline unsigned __activemask() { return 0xffffffffu; }

// Each lane gives its value; it gets that of another lane, or keeps its own.
template <class T>
T emulated_shuffle(unsigned mask, T value, int lane, bool takes) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  unsigned present;
  const uint64_t* values = emulated_exchange(mask, bits, &present);
  if (takes) memcpy(&value, &values[lane & (warpSize - 1)], sizeof value);
  return value;
}

// The first lane of the group of `width` lanes that this lane is in.
inline int emulated_group(int width) { return emulated_lane() & ~(width - 1); }

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  return emulated_shuffle(mask, value, emulated_group(width) + (lane & (width - 1)), true);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int from = int(emulated_lane()) - int(delta);
  return emulated_shuffle(mask, value, from, from >= emulated_group(width));
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int from = int(emulated_lane()) + int(delta);
  return emulated_shuffle(mask, value, from, from < emulated_group(width) + width);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
  const int from = int(emulated_lane()) ^ bits;
  return emulated_shuffle(mask, value, from, from < emulated_group(width) + width);
}

// Launches kernels: the blocks of a grid run one after another.
#include <string.h>

#include <algorithm>
#include <vector>

#include "counts.h"
#include "faults.h"
#include "fibers.h"
#include "kernels.h"
#include "log.h"
#include "settings.h"
#include "streams.h"

using namespace emulated;

extern "C" {
__attribute__((visibility("default"))) Dim3 emulated_thread, emulated_block, emulated_block_size,
    emulated_grid_size;
__attribute__((visibility("default"))) alignas(128) char emulated_shared[MOST_SHARED_MEMORY];
}

namespace {

const int GARBAGE = 0xCD;  // as in the device's memory

struct Shape {
  Dim3 grid, block;
  unsigned shared;  // bytes of dynamic shared memory

  bool is_allowed(const Function& function) const {
    const bool is_empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
    const bool fits = grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 &&
                      block.x <= 1024 && block.y <= 1024 && block.z <= 64;
    return !is_empty && fits && size_t(block.x) * block.y * block.z <= MOST_THREADS &&
           shared <= unsigned(function.most_shared);
  }
};

int run_block(const Function& function, unsigned shared, void** parameters) {
  if (shared) memset(emulated_shared, GARBAGE, shared);
  if (!function.has_barriers) {
    function.block(parameters);
    return 0;
  }
  return run_fibers(function, parameters) ? 0 : int(cudaErrorLaunchTimeout);
}

int run_grid(const Function& function, const Shape& shape, void** parameters) {
  Dim3& block = emulated_block;
  for (block.z = 0; block.z < shape.grid.z; block.z++)
    for (block.y = 0; block.y < shape.grid.y; block.y++)
      for (block.x = 0; block.x < shape.grid.x; block.x++)
        if (int code = run_block(function, shape.shared, parameters)) return code;
  return 0;
}

int run(const Function& function, const Shape& shape, void** parameters) {
  count(KERNELS);
  emulated_grid_size = shape.grid;
  emulated_block_size = shape.block;
  return guarded([&] { return run_grid(function, shape, parameters); }, function.flushes);
}

// A launch that is recorded copies its parameters, which are the caller's.
Work recorded(const Function* function, const Shape& shape, void** parameters) {
  std::vector<std::vector<char>> values;
  for (unsigned i = 0; i < function->sizes[0]; i++) {
    auto* value = static_cast<const char*>(parameters[i]);
    values.emplace_back(value, value + function->sizes[i + 1]);
  }
  return [=]() mutable {
    std::vector<void*> pointers;
    for (auto& value : values) pointers.push_back(value.data());
    return run(*function, shape, pointers.data());
  };
}

}  // namespace

API cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   cudaStream_t on, void** parameters, void** extra) {
  Locked locked(lock);
  if (context_fault) return context_fault;
  const auto* function = static_cast<Function*>(handle);
  const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
  if (!shape.is_allowed(*function) || extra) return cudaErrorInvalidValue;
  Stream* stream = stream_of(on);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (captures.empty()) {
    log(WORK_LOGGED, on);
    run(*function, shape, parameters);
    return 0;  // the next call returns a fault
  }
  return enqueue(on, recorded(function, shape, parameters));
}

// Blocks that run one after another cannot wait for each other.
API cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                              cudaStream_t stream, void** parameters) {
  if (size_t(grid_x) * grid_y * grid_z > 1) return cudaErrorNotSupported;
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                        parameters, nullptr);
}

enum FunctionAttribute {
  MAX_THREADS_PER_BLOCK = 0,
  REGISTERS = 4,
  PTX_VERSION = 5,
  BINARY_VERSION = 6,
  MAX_DYNAMIC_SHARED_SIZE = 8,
  PREFERRED_SHARED_CARVEOUT = 9,
};

API cuFuncGetAttribute(int* value, int attribute, void* handle) {
  switch (attribute) {
    case MAX_THREADS_PER_BLOCK: *value = MOST_THREADS; break;
    case REGISTERS: *value = 32; break;
    case PTX_VERSION:
    case BINARY_VERSION: *value = 90; break;
    case MAX_DYNAMIC_SHARED_SIZE: *value = static_cast<Function*>(handle)->most_shared; break;
    case PREFERRED_SHARED_CARVEOUT: *value = -1; break;
    default: *value = 0;
  }
  return 0;
}

API cuFuncSetAttribute(void* handle, int attribute, int value) {
  if (attribute != MAX_DYNAMIC_SHARED_SIZE) return 0;
  if (value < 0 || size_t(value) > MOST_SHARED_MEMORY) return cudaErrorInvalidValue;
  static_cast<Function*>(handle)->most_shared = value;
  return 0;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t) {
  *blocks = threads > 0 ? 2048 / threads : 0;
  return 0;
}

API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void*, void*, size_t, int limit) {
  *block = limit > 0 ? std::min(limit, MOST_THREADS) : MOST_THREADS;
  *grid = 2 * 132;
  return 0;
}

// Called by kernels, for failed asserts and traps.
EXPORT void emulated_trap(int code) { abandon(code); }

// g++ calls this where -fsanitize=alignment finds an access that is not aligned to its type.
EXPORT void __ubsan_handle_type_mismatch_v1_abort(void*, uintptr_t pointer) {
  abandon(pointer == 0 ? cudaErrorIllegalAddress : cudaErrorMisalignedAddress);
}

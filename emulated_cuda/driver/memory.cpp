#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "counts.h"
#include "faults.h"
#include "settings.h"
#include "state.h"

namespace emulated {
namespace {

// Addresses are taken from this range in ascending order and never again, so that an access after
// the end of an allocation's life is an illegal address too.
const size_t RESERVED = size_t(1) << 44;
const int MAPPING = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// CUDA promises no zeros, so a program that counts on them has to fail here as well.
const int GARBAGE = 0xCD;
const size_t MOST_GARBAGE = 1 << 20;  // beyond it, filling costs more than it finds

struct Allocation {
  size_t size, mapped;
  int device;
  MemoryType type;
};

std::map<uintptr_t, Allocation> allocations;
uintptr_t reserved = 0, next_free = 0;
size_t used[MOST_DEVICES] = {};

size_t rounded_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

bool reserve() {
  if (reserved) return true;
  void* space = mmap(nullptr, RESERVED, PROT_NONE, MAPPING, -1, 0);
  if (space == MAP_FAILED) return false;
  reserved = next_free = uintptr_t(space);
  return true;
}

bool is_reserved(const void* pointer) {
  return reserved && uintptr_t(pointer) >= reserved && uintptr_t(pointer) < reserved + RESERVED;
}

using Entry = std::pair<const uintptr_t, Allocation>;

const Entry* allocation_of(const void* pointer) {
  auto after = allocations.upper_bound(uintptr_t(pointer));
  if (after == allocations.begin()) return nullptr;
  const Entry& entry = *std::prev(after);
  size_t size = std::max<size_t>(entry.second.size, 1);
  return uintptr_t(pointer) < entry.first + size ? &entry : nullptr;
}

bool is_cudas(const void* pointer) { return is_reserved(pointer) || allocation_of(pointer); }

// Whether these bytes stay in one allocation. Of the host's own memory nothing is known.
bool stays_inside(const void* pointer, size_t size) {
  if (!is_reserved(pointer)) return true;
  const Entry* entry = allocation_of(pointer);
  return entry && uintptr_t(pointer) + size <= entry->first + entry->second.size;
}

int allocate_on_host(void** pointer, size_t size) {
  if (posix_memalign(pointer, PAGE, std::max<size_t>(size, 1))) return cudaErrorMemoryAllocation;
  allocations[uintptr_t(*pointer)] = {size, 0, current_device, HOST_MEMORY};
  return 0;
}

void count_copy(const void* to, const void* from, size_t size) {
  const bool to_device = is_reserved(to), from_device = is_reserved(from);
  if (to_device) {
    count(from_device ? COPIES_ON_DEVICE : COPIES_TO_DEVICE);
    count(from_device ? BYTES_ON_DEVICE : BYTES_TO_DEVICE, size);
  } else if (from_device) {
    count(COPIES_TO_HOST);
    count(BYTES_TO_HOST, size);
  }
}

}  // namespace

size_t used_memory(int device) { return used[device]; }

int allocate(void** pointer, size_t size, MemoryType type) {
  if (!pointer) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (type == HOST_MEMORY) return allocate_on_host(pointer, size);
  if (size == 0) return 0;
  const size_t memory = settings().memory;
  if (size > memory || used[current_device] > memory - size || !reserve())
    return cudaErrorMemoryAllocation;
  const size_t whole = rounded_up(size, settings().alignment), mapped = rounded_up(whole, PAGE);
  if (next_free + mapped + 2 * PAGE > reserved + RESERVED) return cudaErrorMemoryAllocation;
  void* pages = reinterpret_cast<void*>(next_free + PAGE);
  if (mmap(pages, mapped, PROT_READ | PROT_WRITE, MAPPING | MAP_FIXED, -1, 0) != pages)
    return cudaErrorMemoryAllocation;
  next_free += mapped + PAGE;
  // It ends where its pages end: most overruns run beyond the end of an array.
  char* start = static_cast<char*>(pages) + mapped - whole;
  if (whole <= MOST_GARBAGE) memset(pages, GARBAGE, mapped);
  allocations[uintptr_t(start)] = {size, mapped, current_device, type};
  used[current_device] += size;
  count(ALLOCATIONS);
  count(BYTES_ALLOCATED, size);
  *pointer = start;
  return 0;
}

int release(void* pointer, bool of_host) {
  if (!pointer) return 0;
  auto entry = allocations.find(uintptr_t(pointer));
  if (entry == allocations.end()) return cudaErrorInvalidValue;
  const Allocation& allocation = entry->second;
  if (of_host != (allocation.type == HOST_MEMORY)) return cudaErrorInvalidValue;
  if (of_host) {
    free(pointer);
  } else {
    uintptr_t end = uintptr_t(pointer) + rounded_up(allocation.size, settings().alignment);
    void* pages = reinterpret_cast<void*>(end - allocation.mapped);
    mmap(pages, allocation.mapped, PROT_NONE, MAPPING | MAP_FIXED, -1, 0);
    used[allocation.device] -= allocation.size;
    count(FREES);
  }
  allocations.erase(entry);
  return 0;
}

// Of a kind's two sides: host to host 0, host to device 1, device to host 2, device to device 3.
// With 4 the pointers say it.
int copy(void* to, const void* from, size_t size, int kind) {
  if (size == 0) return 0;
  if (kind < 0 || kind > 4) return cudaErrorInvalidMemcpyDirection;
  const bool to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
  if ((to_device && !is_cudas(to)) || (from_device && !is_cudas(from)))
    return cudaErrorInvalidValue;
  if (!stays_inside(to, size) || !stays_inside(from, size)) return cudaErrorInvalidValue;
  count_copy(to, from, size);
  return guarded([&] {
    memmove(to, from, size);
    return 0;
  });
}

int copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
              size_t height, int kind) {
  if (to_pitch < width || from_pitch < width) return cudaErrorInvalidValue;
  for (size_t row = 0; row < height; row++) {
    auto* target = static_cast<char*>(to) + row * to_pitch;
    auto* source = static_cast<const char*>(from) + row * from_pitch;
    if (int code = copy(target, source, width, kind)) return code;
  }
  return 0;
}

int fill(void* to, int value, size_t size) {
  if (size == 0) return 0;
  if (!is_cudas(to) || !stays_inside(to, size)) return cudaErrorInvalidValue;
  count(FILLS);
  count(BYTES_FILLED, size);
  memset(to, value, size);
  return 0;
}

}  // namespace emulated

API cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  using namespace emulated;
  ENTER;
  auto* address = const_cast<void*>(pointer);
  *attributes = {0, -2, nullptr, address};
  if (const Entry* entry = allocation_of(pointer)) {
    const Allocation& allocation = entry->second;
    void* on_host = allocation.type == DEVICE_MEMORY ? nullptr : address;
    *attributes = {allocation.type, allocation.device, address, on_host};
  }
  return 0;
}

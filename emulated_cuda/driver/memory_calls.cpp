// The runtime's calls that allocate, free, copy and fill.
#include <algorithm>

#include "counts.h"
#include "log.h"
#include "memory.h"
#include "settings.h"
#include "streams.h"

using namespace emulated;

namespace {

// Runs a call that a graph cannot hold, and for which no stream waits.
template <class Call>
int unless_captured(Call call) {
  ENTER;
  if (int code = refusal_of_unsafe_call()) return reported(code);
  return reported(call());
}

// Runs a call of the default stream.
template <class Call>
int synchronously(Call call) {
  ENTER;
  if (int code = refusal_of_synchronous_call()) return reported(code);
  log(WORK_LOGGED, nullptr);
  return reported(call());
}

// The same, if the host waits for it.
template <class Call>
int waiting_for(Call call) {
  count(SYNCHRONIZATIONS);
  return synchronously(call);
}

}  // namespace

API cudaMalloc(void** pointer, size_t size) {
  return unless_captured([=] { return allocate(pointer, size, DEVICE_MEMORY); });
}

API cudaMallocManaged(void** pointer, size_t size, unsigned) {
  return unless_captured([=] { return allocate(pointer, size, MANAGED_MEMORY); });
}

API cudaHostAlloc(void** pointer, size_t size, unsigned) {
  return unless_captured([=] { return allocate(pointer, size, HOST_MEMORY); });
}

API cudaFree(void* pointer) {
  return unless_captured([=] { return release(pointer); });
}

API cudaFreeHost(void* pointer) {
  return unless_captured([=] { return release(pointer, true); });
}

// A graph would allocate at each launch: here it keeps the one allocation of its capture.
API cudaMallocAsync(void** pointer, size_t size, cudaStream_t handle) {
  ENTER;
  FIND_STREAM(stream, handle);
  return reported(allocate(pointer, size, DEVICE_MEMORY));
}

API cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t, cudaStream_t stream) {
  return cudaMallocAsync(pointer, size, stream);
}

API cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return enqueue(stream, [=] { return release(pointer); });
}

API cudaHostRegister(void*, size_t, unsigned) { return 0; }
API cudaHostUnregister(void*) { return 0; }

API cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER;
  *total = settings().memory;
  *free = *total - used_memory(current_device);
  return 0;
}

API cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return waiting_for([=] { return copy(to, from, size, kind); });
}

API cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                    cudaStream_t stream) {
  return enqueue(stream, [=] { return copy(to, from, size, kind); });
}

API cudaMemcpyPeer(void* to, int, const void* from, int, size_t size) {
  return cudaMemcpy(to, from, size, 3);
}

API cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, 3, stream);
}

API cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                 size_t height, cudaMemcpyKind kind) {
  return waiting_for(
      [=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); });
}

API cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return enqueue(stream,
                 [=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); });
}

API cudaMemset(void* to, int value, size_t size) {
  return synchronously([=] { return fill(to, value, size); });
}

API cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return enqueue(stream, [=] { return fill(to, value, size); });
}

API cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, int, cudaStream_t) { return 0; }
API cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return 0; }

// -- memory pools: one, which is the device's memory itself --

static const auto THE_POOL = reinterpret_cast<cudaMemPool_t>(8);

API cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = THE_POOL;
  return 0;
}

API cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}

API cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps*) {
  return cudaDeviceGetDefaultMemPool(pool, current_device);
}

API cudaDeviceSetMemPool(int, cudaMemPool_t) { return 0; }
API cudaMemPoolDestroy(cudaMemPool_t) { return 0; }
API cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return 0; }

const cudaMemPoolAttr RELEASE_THRESHOLD = 4;  // the others that are read are bytes in use
static uint64_t release_threshold = 0;

API cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  if (attribute == RELEASE_THRESHOLD) release_threshold = *static_cast<uint64_t*>(value);
  return 0;
}

API cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  *static_cast<uint64_t*>(value) =
      attribute == RELEASE_THRESHOLD ? release_threshold : used_memory(current_device);
  return 0;
}

// Devices and contexts: as many H100s as the settings say, with less memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>

#include "settings.h"
#include "state.h"

using namespace emulated;

static const int CUDA_VERSION_NUMBER = 13000;
static const int PROCESSORS = 132, REGISTERS = 65536, L2_CACHE = 50 << 20;

static bool exists(int device) { return device >= 0 && device < settings().devices; }

// -- the driver's calls: a context is its device's number, counted from 1 --

API cuInit(unsigned) { return 0; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxDestroy_v2(void*) { return 0; }

API cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION_NUMBER;
  return 0;
}

API cuDeviceGetCount(int* count) {
  *count = settings().devices;
  return 0;
}

API cuDeviceGet(int* device, int index) {
  *device = index;
  return exists(index) ? 0 : int(cudaErrorInvalidDevice);
}

API cuCtxCreate_v2(void** context, unsigned, int device) {
  *context = reinterpret_cast<void*>(intptr_t(device + 1));
  return 0;
}

API cuCtxGetCurrent(void** context) { return cuCtxCreate_v2(context, 0, current_device); }
API cuStreamGetCtx(cudaStream_t, void** context) { return cuCtxGetCurrent(context); }

API cuCtxSetCurrent(void* context) {
  if (context) current_device = int(intptr_t(context)) - 1;
  return 0;
}

API cuCtxGetDevice(int* device) {
  *device = current_device;
  return 0;
}

// -- the runtime's calls --

API cudaDriverGetVersion(int* version) { return cuDriverGetVersion(version); }
API cudaRuntimeGetVersion(int* version) { return cuDriverGetVersion(version); }

API cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return *count ? 0 : reported(cudaErrorNoDevice);
}

API cudaGetDevice(int* device) {
  *device = current_device;
  return settings().devices ? 0 : reported(cudaErrorNoDevice);
}

API cudaSetDevice(int device) {
  if (!exists(device)) return reported(cudaErrorInvalidDevice);
  current_device = device;
  return 0;
}

// By CUDA's numbers of the attributes; 0 for all others.
API cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return reported(cudaErrorInvalidDevice);
  static const std::map<int, int> values = {
      {1, MOST_THREADS},  // threads of a block
      {2, 1024},
      {3, 1024},
      {4, 64},  // and by axis
      {5, 0x7fffffff},
      {6, 65535},
      {7, 65535},  // blocks of a grid, by axis
      {8, int(SHARED_MEMORY)},
      {9, 64 << 10},  // constant memory
      {10, WARP},
      {11, 0x7fffffff},  // pitch
      {12, REGISTERS},   // of a block
      {13, 1980000},     // kHz
      {14, 512},         // alignment of textures
      {15, 1},           // copies while kernels run
      {16, PROCESSORS},
      {19, 1},        // maps the host's memory
      {31, 1},        // kernels run at the same time
      {36, 2619000},  // kHz of the memory
      {37, 5120},     // bits of its bus
      {38, L2_CACHE},
      {39, 2048},  // threads of a processor
      {40, 3},     // copy engines
      {41, 1},     // one address space
      {75, settings().capability / 10},
      {76, settings().capability % 10},  // compute capability
      {78, 1},          // priorities of streams
      {81, 228 << 10},  // shared memory of a processor
      {82, REGISTERS},  // of a processor
      {83, 1},          // managed memory
      {89, 1},          // which the host may use at the same time
      {95, 1},          // cooperative launches
      {97, int(MOST_SHARED_MEMORY)},
      {106, 32},  // blocks of a processor
      {115, 1},   // memory pools
  };
  auto entry = values.find(attribute);
  *value = entry == values.end() ? 0 : entry->second;
  return 0;
}

API cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return reported(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  strcpy(p->name, "emulated CUDA device on a CPU");
  p->major = settings().capability / 10;
  p->minor = settings().capability % 10;
  p->totalGlobalMem = settings().memory;
  p->totalConstMem = 64 << 10;
  p->sharedMemPerBlock = SHARED_MEMORY;
  p->sharedMemPerBlockOptin = MOST_SHARED_MEMORY;
  p->l2CacheSize = L2_CACHE;
  p->regsPerBlock = p->regsPerMultiprocessor = REGISTERS;
  p->warpSize = WARP;
  p->multiProcessorCount = PROCESSORS;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsPerBlock = MOST_THREADS;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->managedMemory = p->concurrentKernels = p->canMapHostMemory = 1;
  return 0;
}

API cudaDeviceGetPCIBusId(char* id, int size, int device) {
  snprintf(id, size, "0000:%02x:00.0", device + 1);
  return 0;
}

API cudaDeviceGetByPCIBusId(int* device, const char* id) {
  const size_t domain = strlen("0000:");
  *device = strlen(id) > domain ? int(strtol(id + domain, nullptr, 16)) - 1 : -1;
  return exists(*device) ? 0 : reported(cudaErrorInvalidDevice);
}

API cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return 0;
}

API cudaDeviceEnablePeerAccess(int, unsigned) { return 0; }
API cudaDeviceDisablePeerAccess(int) { return 0; }

API cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = THREAD_STACK;
  return 0;
}

API cudaDeviceSetLimit(cudaLimit, size_t) { return 0; }
API cudaProfilerStart() { return 0; }
API cudaProfilerStop() { return 0; }

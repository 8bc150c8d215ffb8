// The CUDA runtime API as far as CuPy's runtime module calls it: types, and the calls that the emulated driver has.
// Values and layouts are those of the public API; the structs pass only between CuPy and the emulated driver.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUmemPool_st* cudaMemPool_t;
typedef struct cudaArray* cudaArray_t;
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
typedef void* cudaGraphNode_t;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

enum cudaError {
  cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9, cudaErrorInvalidDevicePointer = 17, cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101, cudaErrorInvalidKernelImage = 200,
  cudaErrorFileNotFound = 301,
  cudaErrorInvalidResourceHandle = 400, cudaErrorIllegalState = 401,
  cudaErrorSymbolNotFound = 500, cudaErrorNotReady = 600, cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701, cudaErrorLaunchTimeout = 702,
  cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorContextIsDestroyed = 709, cudaErrorAssert = 710, cudaErrorHardwareStackError = 714,
  cudaErrorMisalignedAddress = 716, cudaErrorLaunchFailure = 719, cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900, cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902, cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904, cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906, cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908, cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;
typedef int cudaDataType;
typedef int cudaDeviceAttr, cudaMemoryAdvise, cudaChannelFormatKind, cudaResourceType, cudaTextureAddressMode,
    cudaTextureFilterMode, cudaTextureReadMode, cudaMemcpyKind, cudaLimit, cudaStreamCaptureMode,
    cudaMemPoolAttr, cudaMemAllocationType, cudaMemAllocationHandleType, cudaMemLocationType;
typedef void* cudaStreamCaptureStatus;  // CuPy's declaration: an int written through a pointer
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void*);
typedef void (*cudaHostFn_t)(void*);
const int cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76;

struct cudaChannelFormatDesc { int x, y, z, w; cudaChannelFormatKind f; };
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr { void* ptr; size_t pitch, xsize, ysize; };
inline cudaExtent make_cudaExtent(size_t w, size_t h, size_t d) { return {w, h, d}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* d, size_t p, size_t x, size_t y) { return {d, p, x, y}; }
struct cudaMemcpy3DParms {
  cudaArray_t srcArray; cudaPos srcPos; cudaPitchedPtr srcPtr;
  cudaArray_t dstArray; cudaPos dstPos; cudaPitchedPtr dstPtr;
  cudaExtent extent; cudaMemcpyKind kind;
};
struct cudaResourceViewDesc { int format; };
struct cudaResourceDesc {
  cudaResourceType resType;
  union {
    struct { cudaArray_t array; } array;
    struct { cudaMipmappedArray_t mipmap; } mipmap;
    struct { void* devPtr; cudaChannelFormatDesc desc; size_t sizeInBytes; } linear;
    struct { void* devPtr; cudaChannelFormatDesc desc; size_t width, height, pitchInBytes; } pitch2D;
  } res;
};
struct cudaTextureDesc {
  cudaTextureAddressMode addressMode[3]; cudaTextureFilterMode filterMode; cudaTextureReadMode readMode;
  int sRGB; float borderColor[4]; int normalizedCoords; unsigned maxAnisotropy;
};
struct cudaIpcMemHandle_t { unsigned char reserved[64]; };
struct cudaIpcEventHandle_t { unsigned char reserved[64]; };
struct cudaUUID_t { char bytes[16]; };
struct cudaMemLocation { cudaMemLocationType type; int id; };
struct cudaMemPoolProps {
  cudaMemAllocationType allocType; cudaMemAllocationHandleType handleTypes; cudaMemLocation location;
  void* win32SecurityAttributes; size_t maxSize; unsigned short usage; unsigned char reserved[54];
};
struct cudaPointerAttributes { int type; int device; void* devicePointer; void* hostPointer; };
struct cudaDeviceProp {
  char         name[256];
  cudaUUID_t     uuid;
  char         luid[8];
  unsigned int luidDeviceNodeMask;
  size_t       totalGlobalMem;
  size_t       sharedMemPerBlock;
  int          regsPerBlock;
  int          warpSize;
  size_t       memPitch;
  int          maxThreadsPerBlock;
  int          maxThreadsDim[3];
  int          maxGridSize[3];
  size_t       totalConstMem;
  int          major;
  int          minor;
  size_t       textureAlignment;
  size_t       texturePitchAlignment;
  int          multiProcessorCount;
  int          integrated;
  int          canMapHostMemory;
  int          maxTexture1D;
  int          maxTexture1DMipmap;
  int          maxTexture2D[2];
  int          maxTexture2DMipmap[2];
  int          maxTexture2DLinear[3];
  int          maxTexture2DGather[2];
  int          maxTexture3D[3];
  int          maxTexture3DAlt[3];
  int          maxTextureCubemap;
  int          maxTexture1DLayered[2];
  int          maxTexture2DLayered[3];
  int          maxTextureCubemapLayered[2];
  int          maxSurface1D;
  int          maxSurface2D[2];
  int          maxSurface3D[3];
  int          maxSurface1DLayered[2];
  int          maxSurface2DLayered[3];
  int          maxSurfaceCubemap;
  int          maxSurfaceCubemapLayered[2];
  size_t       surfaceAlignment;
  int          concurrentKernels;
  int          ECCEnabled;
  int          pciBusID;
  int          pciDeviceID;
  int          pciDomainID;
  int          tccDriver;
  int          asyncEngineCount;
  int          unifiedAddressing;
  int          memoryBusWidth;
  int          l2CacheSize;
  int          persistingL2CacheMaxSize;
  int          maxThreadsPerMultiProcessor;
  int          streamPrioritiesSupported;
  int          globalL1CacheSupported;
  int          localL1CacheSupported;
  size_t       sharedMemPerMultiprocessor;
  int          regsPerMultiprocessor;
  int          managedMemory;
  int          isMultiGpuBoard;
  int          multiGpuBoardGroupID;
  int          hostNativeAtomicSupported;
  int          pageableMemoryAccess;
  int          concurrentManagedAccess;
  int          computePreemptionSupported;
  int          canUseHostPointerForRegisteredMem;
  int          cooperativeLaunch;
  size_t       sharedMemPerBlockOptin;
  int          pageableMemoryAccessUsesHostPageTables;
  int          directManagedMemAccessFromHost;
  int          maxBlocksPerMultiProcessor;
  int          accessPolicyMaxWindowSize;
  size_t       reservedSharedMemPerBlock;
  int          hostRegisterSupported;
  int          sparseCudaArraySupported;
  int          hostRegisterReadOnlySupported;
  int          timelineSemaphoreInteropSupported;
  int          memoryPoolsSupported;
  int          gpuDirectRDMASupported;
  unsigned int gpuDirectRDMAFlushWritesOptions;
  int          gpuDirectRDMAWritesOrdering;
  unsigned int memoryPoolSupportedHandleTypes;
  int          deferredMappingCudaArraySupported;
  int          ipcEventSupported;
  int          clusterLaunch;
  int          unifiedFunctionPointers;
  int          deviceNumaConfig;
  int          deviceNumaId;
  int          mpsEnabled;
  int          hostNumaId;
  unsigned int gpuPciDeviceID;
  unsigned int gpuPciSubsystemID;
  int          hostNumaMultinodeIpcSupported;
};

#ifndef EMULATED_CUDA_TYPES_ONLY
extern "C" {
  const char* cudaGetErrorName(cudaError_t error);
  const char* cudaGetErrorString(cudaError_t error);
  int cudaGetLastError();
  int cudaDriverGetVersion(int* driverVersion);
  int cudaRuntimeGetVersion(int* runtimeVersion);
  int cudaGetDevice(int* device);
  int cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device);
  int cudaDeviceGetByPCIBusId(int* device, const char* pciBusId);
  int cudaDeviceGetPCIBusId(char* pciBusId, int len, int device);
  int cudaGetDeviceProperties(cudaDeviceProp* prop, int device);
  int cudaGetDeviceCount(int* count);
  int cudaSetDevice(int device);
  int cudaDeviceSynchronize();
  int cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice);
  int cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags);
  int cudaDeviceDisablePeerAccess(int peerDevice);
  int cudaDeviceGetLimit(size_t* value, cudaLimit limit);
  int cudaDeviceSetLimit(cudaLimit limit, size_t value);
  int cudaIpcCloseMemHandle(void* devPtr);
  int cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event);
  int cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void* devPtr);
  int cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle);
  int cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags);
  int cudaMalloc(void** devPtr, size_t size);
  int cudaMallocManaged(void** devPtr, size_t size, unsigned int flags);
  int cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent, unsigned int flags);
  int cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t width, size_t height, unsigned int flags);
  int cudaMallocAsync(void**, size_t, cudaStream_t);
  int cudaMallocFromPoolAsync(void**, size_t, cudaMemPool_t, cudaStream_t);
  int cudaHostAlloc(void** ptr, size_t size, unsigned int flags);
  int cudaHostRegister(void *ptr, size_t size, unsigned int flags);
  int cudaHostUnregister(void *ptr);
  int cudaFree(void* devPtr);
  int cudaFreeHost(void* ptr);
  int cudaFreeArray(cudaArray_t array);
  int cudaFreeAsync(void*, cudaStream_t);
  int cudaMemGetInfo(size_t* free, size_t* total);
  int cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind);
  int cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream);
  int cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count);
  int cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count, cudaStream_t stream);
  int cudaMemcpy2DFromArray(void* dst, size_t dpitch, cudaArray_t src, size_t wOffset, size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind);
  int cudaMemcpy2DFromArrayAsync(void* dst, size_t dpitch, cudaArray_t src, size_t wOffset, size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream);
  int cudaMemcpy2DToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind);
  int cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream);
  int cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind);
  int cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream);
  int cudaMemcpy3D(cudaMemcpy3DParms* Memcpy3DParmsPtr);
  int cudaMemcpy3DAsync(cudaMemcpy3DParms* Memcpy3DParmsPtr, cudaStream_t stream);
  int cudaMemset(void* devPtr, int value, size_t count);
  int cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream);
  int cudaMemPrefetchAsync(const void *devPtr, size_t count, cudaMemLocation location, int flags, cudaStream_t stream);
  int cudaMemAdvise(const void *devPtr, size_t count, cudaMemoryAdvise advice, cudaMemLocation device);
  int cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int);
  int cudaDeviceGetMemPool(cudaMemPool_t*, int);
  int cudaDeviceSetMemPool(int, cudaMemPool_t);
  int cudaMemPoolCreate(cudaMemPool_t*, cudaMemPoolProps*);
  int cudaMemPoolDestroy(cudaMemPool_t);
  int cudaMemPoolTrimTo(cudaMemPool_t, size_t);
  int cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
  int cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
  int cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr);
  int cudaStreamCreate(cudaStream_t* pStream);
  int cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags);
  int cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority);
  int cudaStreamGetFlags(cudaStream_t pStream, unsigned int* flags);
  int cudaStreamGetPriority(cudaStream_t pStream, int* priority);
  int cudaStreamDestroy(cudaStream_t stream);
  int cudaStreamSynchronize(cudaStream_t stream);
  int cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* userData, unsigned int flags);
  int cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData);
  int cudaStreamQuery(cudaStream_t stream);
  int cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
  int cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
  int cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t*);
  int cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus*);
  int cudaEventCreate(cudaEvent_t* event);
  int cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
  int cudaEventDestroy(cudaEvent_t event);
  int cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
  int cudaEventQuery(cudaEvent_t event);
  int cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
  int cudaEventSynchronize(cudaEvent_t event);
  int cudaCreateTextureObject(cudaTextureObject_t* pTexObject, const cudaResourceDesc* pResDesc, const cudaTextureDesc* pTexDesc, const cudaResourceViewDesc* pResViewDesc);
  int cudaDestroyTextureObject(cudaTextureObject_t texObject);
  int cudaGetChannelDesc(cudaChannelFormatDesc* desc, cudaArray_t array);
  int cudaGetTextureObjectResourceDesc(cudaResourceDesc* desc, cudaTextureObject_t obj);
  int cudaGetTextureObjectTextureDesc(cudaTextureDesc* desc, cudaTextureObject_t obj);
  int cudaCreateSurfaceObject(cudaSurfaceObject_t* pSurObject, const cudaResourceDesc* pResDesc);
  int cudaDestroySurfaceObject(cudaSurfaceObject_t surObject);
  int cudaGraphDestroy(cudaGraph_t graph);
  int cudaGraphExecDestroy(cudaGraphExec_t graph);
  int cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
  int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
  int cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
  int cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned int);
}
#endif

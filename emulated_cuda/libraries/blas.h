// What the parts of the emulated cuBLAS share.
#pragma once
#include <complex>

#include "../driver/enqueue.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

namespace emulated {

enum BlasStatus {
  NOT_INITIALIZED = 1,
  ALLOC_FAILED = 3,
  INVALID_VALUE = 7,
  EXECUTION_FAILED = 13,
  NOT_SUPPORTED = 15
};

enum PointerMode { SCALARS_ON_HOST, SCALARS_ON_DEVICE };

struct Handle {
  cudaStream_t stream = nullptr;
  int pointer_mode = SCALARS_ON_HOST, math_mode = 0;
  void* memory = nullptr;  // which cuBLAS allocates with the handle
};

template <class Work>
int run(Handle* handle, Work work) {
  if (!handle) return NOT_INITIALIZED;
  return call_library(handle->stream, work) ? EXECUTION_FAILED : 0;
}

// A scalar of the host is read when the function is called, one of the device when the work runs.
template <class T>
class Scalar {
 public:
  Scalar(const Handle* handle, const T* pointer) : pointer_(pointer) {
    is_on_host_ = handle && handle->pointer_mode == SCALARS_ON_HOST;
    if (is_on_host_) value_ = *pointer;
  }
  T operator*() const { return is_on_host_ ? value_ : *pointer_; }

 private:
  const T* pointer_;
  bool is_on_host_;
  T value_ = T(0);
};

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

}  // namespace emulated

// Defines a function for each of BLAS's four types.
#define FOR_EACH_TYPE(DEFINE) \
  DEFINE(S, float)            \
  DEFINE(D, double)           \
  DEFINE(C, Complex64)        \
  DEFINE(Z, Complex128)

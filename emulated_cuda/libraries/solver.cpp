// libcusolver.so.12: LU and Cholesky. Eigenvalues, singular values and QR are not emulated.
#include <complex>

#include "../driver/enqueue.h"
#include "dense.h"

#define API extern "C" __attribute__((visibility("default"))) int

using namespace emulated;

namespace {

const int EXECUTION_FAILED = 6;

struct Handle {
  cudaStream_t stream = nullptr;
};

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

template <class Work>
int run(Handle* handle, Work work) {
  return call_library(handle->stream, work) ? EXECUTION_FAILED : 0;
}

int one_element(int* size) {
  *size = 1;  // of workspace, which nothing here needs
  return 0;
}

// Solves A X = B from the Cholesky factor of A.
template <class T>
void potrs(bool is_upper, int n, int columns, const T* a, int lda, T* b, int ldb) {
  const int first = is_upper ? ADJOINT : NONE, second = is_upper ? NONE : ADJOINT;
  trsm(true, is_upper, first, false, n, columns, T(1), a, lda, b, ldb);
  trsm(true, is_upper, second, false, n, columns, T(1), a, lda, b, ldb);
}

}  // namespace

API cusolverDnCreate(Handle** handle) {
  *handle = new Handle;
  return 0;
}

API cusolverDnDestroy(Handle* handle) {
  delete handle;
  return 0;
}

API cusolverDnSetStream(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return 0;
}

API cusolverDnGetStream(Handle* handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return 0;
}

API cusolverSpCreate(Handle** handle) { return cusolverDnCreate(handle); }
API cusolverSpDestroy(Handle* handle) { return cusolverDnDestroy(handle); }

API cusolverSpSetStream(Handle* handle, cudaStream_t stream) {
  return cusolverDnSetStream(handle, stream);
}

API cusolverSpGetStream(Handle* handle, cudaStream_t* stream) {
  return cusolverDnGetStream(handle, stream);
}

API cusolverGetProperty(int type, int* value) {
  *value = type == 0 ? 12 : 0;  // the major version, and the others
  return 0;
}

#define SYSTEMS(L, T)                                                                             \
  API cusolverDn##L##getrf_bufferSize(Handle*, int, int, T*, int, int* size) {                    \
    return one_element(size);                                                                     \
  }                                                                                               \
  API cusolverDn##L##potrf_bufferSize(Handle*, int, int, T*, int, int* size) {                    \
    return one_element(size);                                                                     \
  }                                                                                               \
  API cusolverDn##L##getrf(Handle* handle, int m, int n, T* a, int lda, T*, int* pivots,          \
                           int* info) {                                                           \
    return run(handle, [=] { *info = getrf(m, n, a, lda, pivots); });                             \
  }                                                                                               \
  API cusolverDn##L##getrs(Handle* handle, int op, int n, int columns, const T* a, int lda,       \
                           const int* pivots, T* b, int ldb, int* info) {                         \
    return run(handle, [=] {                                                                      \
      getrs(op, n, columns, a, lda, pivots, b, ldb);                                              \
      *info = 0;                                                                                  \
    });                                                                                           \
  }                                                                                               \
  API cusolverDn##L##potrf(Handle* handle, int is_upper, int n, T* a, int lda, T*, int,           \
                           int* info) {                                                           \
    return run(handle, [=] { *info = potrf(is_upper, n, a, lda); });                              \
  }                                                                                               \
  API cusolverDn##L##potrfBatched(Handle* handle, int is_upper, int n, T** a, int lda, int* info, \
                                  int count) {                                                    \
    return run(handle, [=] {                                                                      \
      for (int i = 0; i < count; i++) info[i] = potrf(is_upper, n, a[i], lda);                    \
    });                                                                                           \
  }                                                                                               \
  API cusolverDn##L##potrs(Handle* handle, int is_upper, int n, int columns, const T* a, int lda, \
                           T* b, int ldb, int* info) {                                            \
    return run(handle, [=] {                                                                      \
      potrs(is_upper, n, columns, a, lda, b, ldb);                                                \
      *info = 0;                                                                                  \
    });                                                                                           \
  }                                                                                               \
  API cusolverDn##L##potrsBatched(Handle* handle, int is_upper, int n, int columns, T** a,        \
                                  int lda, T** b, int ldb, int* info, int count) {                \
    return run(handle, [=] {                                                                      \
      for (int i = 0; i < count; i++) potrs<T>(is_upper, n, columns, a[i], lda, b[i], ldb);       \
      *info = 0;                                                                                  \
    });                                                                                           \
  }
SYSTEMS(S, float)
SYSTEMS(D, double)
SYSTEMS(C, Complex64)
SYSTEMS(Z, Complex128)

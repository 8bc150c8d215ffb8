// cuBLAS: triangular systems, and factorisations of batches.
#include "blas.h"
#include "dense.h"

using namespace emulated;

namespace {

// Of one triangle of C: alpha op(A) op(A)' + beta C
template <class T>
int syrk(Handle* handle, int is_upper, int op, int n, int k, const T* alpha, const T* a, int lda,
         const T* beta, T* c, int ldc) {
  const Scalar<T> scale(handle, alpha), keep(handle, beta);
  return run(handle, [=] {
    for (int j = 0; j < n; j++)
      for (int i = is_upper ? 0 : j; i < (is_upper ? j + 1 : n); i++) {
        T sum = T(0);
        for (int p = 0; p < k; p++) sum += at(a, lda, op, i, p) * at(a, lda, op, j, p);
        T& to = c[i + ptrdiff_t(j) * ldc];
        to = *keep == T(0) ? *scale * sum : *scale * sum + *keep * to;
      }
  });
}

const int* pivots_of(const int* pivots, int i, int n) {
  return pivots ? pivots + ptrdiff_t(i) * n : nullptr;
}

// The inverses, from the LU of each matrix.
template <class T>
int getri(Handle* handle, int n, const T* const* a, int lda, const int* pivots, T* const* c,
          int ldc, int* info, int count) {
  return run(handle, [=] {
    for (int b = 0; b < count; b++) {
      for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) c[b][i + ptrdiff_t(j) * ldc] = T(i == j);
      getrs(NONE, n, n, a[b], lda, pivots_of(pivots, b, n), c[b], ldc);
      info[b] = 0;
    }
  });
}

}  // namespace

#define SYSTEMS(L, T)                                                                              \
  API cublas##L##syrk_v2(Handle* handle, int is_upper, int op, int n, int k, const T* alpha,       \
                         const T* a, int lda, const T* beta, T* c, int ldc) {                      \
    return syrk(handle, is_upper, op, n, k, alpha, a, lda, beta, c, ldc);                          \
  }                                                                                                \
  API cublas##L##trsm_v2(Handle* handle, int on_right, int is_upper, int op, int is_unit, int m,   \
                         int n, const T* alpha, const T* a, int lda, T* b, int ldb) {              \
    const Scalar<T> scale(handle, alpha);                                                          \
    return run(handle,                                                                             \
               [=] { trsm<T>(!on_right, is_upper, op, is_unit, m, n, *scale, a, lda, b, ldb); });  \
  }                                                                                                \
  API cublas##L##trsmBatched(Handle* handle, int on_right, int is_upper, int op, int is_unit,      \
                             int m, int n, const T* alpha, const T* const* a, int lda,             \
                             T* const* b, int ldb, int count) {                                    \
    const Scalar<T> scale(handle, alpha);                                                          \
    return run(handle, [=] {                                                                       \
      for (int i = 0; i < count; i++)                                                              \
        trsm<T>(!on_right, is_upper, op, is_unit, m, n, *scale, a[i], lda, b[i], ldb);             \
    });                                                                                            \
  }                                                                                                \
  API cublas##L##getrfBatched(Handle* handle, int n, T* const* a, int lda, int* pivots, int* info, \
                              int count) {                                                         \
    return run(handle, [=] {                                                                       \
      for (int i = 0; i < count; i++)                                                              \
        info[i] = getrf(n, n, a[i], lda, const_cast<int*>(pivots_of(pivots, i, n)));               \
    });                                                                                            \
  }                                                                                                \
  API cublas##L##getrsBatched(Handle* handle, int op, int n, int columns, const T* const* a,       \
                              int lda, const int* pivots, T* const* b, int ldb, int* info,         \
                              int count) {                                                         \
    *info = 0;                                                                                     \
    return run(handle, [=] {                                                                       \
      for (int i = 0; i < count; i++)                                                              \
        getrs(op, n, columns, a[i], lda, pivots_of(pivots, i, n), b[i], ldb);                      \
    });                                                                                            \
  }                                                                                                \
  API cublas##L##getriBatched(Handle* handle, int n, const T* const* a, int lda,                   \
                              const int* pivots, T* const* c, int ldc, int* info, int count) {     \
    return getri(handle, n, a, lda, pivots, c, ldc, info, count);                                  \
  }
FOR_EACH_TYPE(SYSTEMS)

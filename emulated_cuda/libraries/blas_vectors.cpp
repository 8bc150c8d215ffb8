// cuBLAS: vectors, and matrices element by element.
#include "blas.h"
#include "dense.h"

using namespace emulated;

namespace {

template <class T>
int gemv(Handle* handle, int op, int m, int n, const T* alpha, const T* a, int lda, const T* x,
         int incx, const T* beta, T* y, int incy) {
  const Scalar<T> scale(handle, alpha), keep(handle, beta);
  return run(handle, [=] {
    for (int i = 0; i < (op ? n : m); i++) {
      T sum = T(0);
      for (int j = 0; j < (op ? m : n); j++) sum += at(a, lda, op, i, j) * x[ptrdiff_t(j) * incx];
      T& to = y[ptrdiff_t(i) * incy];
      to = *keep == T(0) ? *scale * sum : *scale * sum + *keep * to;
    }
  });
}

template <class T>
int axpy(Handle* handle, int n, const T* alpha, const T* x, int incx, T* y, int incy) {
  const Scalar<T> scale(handle, alpha);
  return run(handle, [=] {
    for (int i = 0; i < n; i++) y[ptrdiff_t(i) * incy] += *scale * x[ptrdiff_t(i) * incx];
  });
}

template <class T>
int scal(Handle* handle, int n, const T* alpha, T* x, int incx) {
  const Scalar<T> scale(handle, alpha);
  return run(handle, [=] {
    for (int i = 0; i < n; i++) x[ptrdiff_t(i) * incx] *= *scale;
  });
}

// C = alpha op(A) + beta op(B)
template <class T>
int geam(Handle* handle, int opa, int opb, int m, int n, const T* alpha, const T* a, int lda,
         const T* beta, const T* b, int ldb, T* c, int ldc) {
  const Scalar<T> of_a(handle, alpha), of_b(handle, beta);
  return run(handle, [=] {
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) {
        T sum = T(0);
        if (*of_a != T(0)) sum += *of_a * at(a, lda, opa, i, j);
        if (*of_b != T(0)) sum += *of_b * at(b, ldb, opb, i, j);
        c[i + ptrdiff_t(j) * ldc] = sum;
      }
  });
}

// C = A diag(x), or diag(x) A.
template <class T>
int dgmm(Handle* handle, int on_right, int m, int n, const T* a, int lda, const T* x, int incx,
         T* c, int ldc) {
  return run(handle, [=] {
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++)
        c[i + ptrdiff_t(j) * ldc] =
            a[i + ptrdiff_t(j) * lda] * x[ptrdiff_t(on_right ? j : i) * incx];
  });
}

template <class T>
T same(T x) {
  return x;
}

template <class T, T conjugated(T)>
int dot(Handle* handle, int n, const T* x, int incx, const T* y, int incy, T* result) {
  return run(handle, [=] {
    T sum = T(0);
    for (int i = 0; i < n; i++) sum += conjugated(x[ptrdiff_t(i) * incx]) * y[ptrdiff_t(i) * incy];
    *result = sum;
  });
}

// A += alpha x y'
template <class T, T conjugated(T)>
int ger(Handle* handle, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy,
        T* a, int lda) {
  const Scalar<T> scale(handle, alpha);
  return run(handle, [=] {
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++)
        a[i + ptrdiff_t(j) * lda] +=
            *scale * x[ptrdiff_t(i) * incx] * conjugated(y[ptrdiff_t(j) * incy]);
  });
}

// The Euclidean norm, and the sum of all parts' absolute values.
template <class Real, class T>
int norm(Handle* handle, int n, const T* x, int incx, Real* result) {
  return run(handle, [=] {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += std::norm(Complex128(x[ptrdiff_t(i) * incx]));
    *result = Real(std::sqrt(sum));
  });
}

template <class Real, class T>
int absolute_sum(Handle* handle, int n, const T* x, int incx, Real* result) {
  return run(handle, [=] {
    double sum = 0;
    for (int i = 0; i < n; i++) {
      const Complex128 value(x[ptrdiff_t(i) * incx]);
      sum += std::abs(value.real()) + std::abs(value.imag());
    }
    *result = Real(sum);
  });
}

}  // namespace

#define VECTORS(L, T)                                                                              \
  API cublas##L##gemv_v2(Handle* handle, int op, int m, int n, const T* alpha, const T* a,         \
                         int lda, const T* x, int incx, const T* beta, T* y, int incy) {           \
    return gemv(handle, op, m, n, alpha, a, lda, x, incx, beta, y, incy);                          \
  }                                                                                                \
  API cublas##L##axpy_v2(Handle* handle, int n, const T* alpha, const T* x, int incx, T* y,        \
                         int incy) {                                                               \
    return axpy(handle, n, alpha, x, incx, y, incy);                                               \
  }                                                                                                \
  API cublas##L##scal_v2(Handle* handle, int n, const T* alpha, T* x, int incx) {                  \
    return scal(handle, n, alpha, x, incx);                                                        \
  }                                                                                                \
  API cublas##L##geam(Handle* handle, int opa, int opb, int m, int n, const T* alpha, const T* a,  \
                      int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {                \
    return geam(handle, opa, opb, m, n, alpha, a, lda, beta, b, ldb, c, ldc);                      \
  }                                                                                                \
  API cublas##L##dgmm(Handle* handle, int on_right, int m, int n, const T* a, int lda, const T* x, \
                      int incx, T* c, int ldc) {                                                   \
    return dgmm(handle, on_right, m, n, a, lda, x, incx, c, ldc);                                  \
  }
FOR_EACH_TYPE(VECTORS)

#define DOT(name, T, conjugated)                                                                   \
  API cublas##name(Handle* handle, int n, const T* x, int incx, const T* y, int incy, T* result) { \
    return dot<T, conjugated>(handle, n, x, incx, y, incy, result);                                \
  }
DOT(Sdot_v2, float, same)
DOT(Ddot_v2, double, same)
DOT(Cdotu_v2, Complex64, same)
DOT(Zdotu_v2, Complex128, same)
DOT(Cdotc_v2, Complex64, conjugate)
DOT(Zdotc_v2, Complex128, conjugate)

#define GER(name, T, conjugated)                                                                   \
  API cublas##name(Handle* handle, int m, int n, const T* alpha, const T* x, int incx, const T* y, \
                   int incy, T* a, int lda) {                                                      \
    return ger<T, conjugated>(handle, m, n, alpha, x, incx, y, incy, a, lda);                      \
  }
GER(Sger_v2, float, same)
GER(Dger_v2, double, same)
GER(Cgeru_v2, Complex64, same)
GER(Zgeru_v2, Complex128, same)
GER(Cgerc_v2, Complex64, conjugate)
GER(Zgerc_v2, Complex128, conjugate)

#define NORMS(L, Real, T)                                                             \
  API cublas##L##nrm2_v2(Handle* handle, int n, const T* x, int incx, Real* result) { \
    return norm(handle, n, x, incx, result);                                          \
  }                                                                                   \
  API cublas##L##asum_v2(Handle* handle, int n, const T* x, int incx, Real* result) { \
    return absolute_sum(handle, n, x, incx, result);                                  \
  }
NORMS(S, float, float)
NORMS(D, double, double)
NORMS(Sc, float, Complex64)
NORMS(Dz, double, Complex128)

// Dense linear algebra on the host, by columns as BLAS and LAPACK have it.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

namespace emulated {

template <class T>
T conjugate(T x) {
  return x;
}
template <class T>
std::complex<T> conjugate(std::complex<T> x) {
  return std::conj(x);
}

// An operation on a matrix before it is used.
enum Operation { NONE, TRANSPOSED, ADJOINT };

template <class T>
T at(const T* a, ptrdiff_t lda, int op, ptrdiff_t i, ptrdiff_t j) {
  return op == NONE         ? a[i + j * lda]
         : op == TRANSPOSED ? a[j + i * lda]
                            : conjugate(a[j + i * lda]);
}

// C = alpha op(A) op(B) + beta C, computed in type S. Sums are taken in parts, which rounds less.
template <class S, class A, class B, class C>
void gemm(int opa, int opb, int m, int n, int k, S alpha, const A* a, ptrdiff_t lda, const B* b,
          ptrdiff_t ldb, S beta, C* c, ptrdiff_t ldc) {
  const int PART = 64;
  std::vector<S> left(size_t(m) * k), sum(m), part(m);
  for (int p = 0; p < k; p++)
    for (int i = 0; i < m; i++) {
      S x = S(opa == NONE ? a[i + p * lda] : a[p + i * lda]);
      left[size_t(p) * m + i] = opa == ADJOINT ? conjugate(x) : x;
    }
  for (int j = 0; j < n; j++) {
    std::fill(sum.begin(), sum.end(), S(0));
    for (int start = 0; start < k; start += PART) {
      std::fill(part.begin(), part.end(), S(0));
      for (int p = start; p < std::min(k, start + PART); p++) {
        S x = S(opb == NONE ? b[p + j * ldb] : b[j + p * ldb]);
        if (opb == ADJOINT) x = conjugate(x);
        const S* column = &left[size_t(p) * m];
        S* to = part.data();
        for (int i = 0; i < m; i++) to[i] += column[i] * x;
      }
      for (int i = 0; i < m; i++) sum[i] += part[i];
    }
    for (int i = 0; i < m; i++) {
      C& to = c[i + j * ldc];
      to = C(beta == S(0) ? alpha * sum[i] : alpha * sum[i] + beta * S(to));
    }
  }
}

// Solves op(A) X = alpha B (left) or X op(A) = alpha B for triangular A; X replaces B.
template <class T>
void trsm(bool left, bool upper, int op, bool unit, int m, int n, T alpha, const T* a,
          ptrdiff_t lda, T* b, ptrdiff_t ldb) {
  const int order = left ? m : n, others = left ? n : m;
  auto x = [&](int i, int j) -> T& { return left ? b[i + j * ldb] : b[j + i * ldb]; };
  auto entry = [&](int i, int j) { return left ? at(a, lda, op, i, j) : at(a, lda, op, j, i); };
  const bool lower = (upper != (op != NONE)) != left;  // of the system as it is solved
  for (int j = 0; j < others; j++)
    for (int step = 0; step < order; step++) {
      int i = lower ? step : order - 1 - step;
      T value = alpha * x(i, j);
      for (int p = lower ? 0 : i + 1; p < (lower ? i : order); p++) value -= entry(i, p) * x(p, j);
      x(i, j) = unit ? value : value / entry(i, i);
    }
}

// LU with partial pivoting, or without if there are no pivots to write; they count from 1. Returns
// which is the first zero pivot, or 0.
template <class T>
int getrf(int m, int n, T* a, ptrdiff_t lda, int* pivots) {
  int info = 0;
  for (int j = 0; j < std::min(m, n); j++) {
    int best = j;
    if (pivots)
      for (int i = j + 1; i < m; i++)
        if (std::abs(a[i + j * lda]) > std::abs(a[best + j * lda])) best = i;
    if (pivots) pivots[j] = best + 1;
    if (best != j)
      for (int p = 0; p < n; p++) std::swap(a[j + p * lda], a[best + p * lda]);
    if (a[j + j * lda] == T(0)) {
      if (!info) info = j + 1;
      continue;
    }
    for (int i = j + 1; i < m; i++) a[i + j * lda] /= a[j + j * lda];
    for (int p = j + 1; p < n; p++)
      for (int i = j + 1; i < m; i++) a[i + p * lda] -= a[i + j * lda] * a[j + p * lda];
  }
  return info;
}

// Solves op(A) X = B, from the LU of A; X replaces B.
template <class T>
void getrs(int op, int n, int columns, const T* a, ptrdiff_t lda, const int* pivots, T* b,
           ptrdiff_t ldb) {
  auto swap = [&](int i) {
    if (pivots && pivots[i] - 1 != i)
      for (int j = 0; j < columns; j++) std::swap(b[i + j * ldb], b[pivots[i] - 1 + j * ldb]);
  };
  if (op == NONE) {
    for (int i = 0; i < n; i++) swap(i);
    trsm(true, false, NONE, true, n, columns, T(1), a, lda, b, ldb);
    trsm(true, true, NONE, false, n, columns, T(1), a, lda, b, ldb);
  } else {
    trsm(true, true, op, false, n, columns, T(1), a, lda, b, ldb);
    trsm(true, false, op, true, n, columns, T(1), a, lda, b, ldb);
    for (int i = n - 1; i >= 0; i--) swap(i);
  }
}

// Cholesky, of the upper or lower triangle. Returns which is the first minor that is not positive,
// or 0.
template <class T>
int potrf(bool upper, int n, T* a, ptrdiff_t lda) {
  auto l = [&](int i, int j) -> T& { return upper ? a[j + i * lda] : a[i + j * lda]; };
  for (int j = 0; j < n; j++) {
    T pivot = l(j, j);
    for (int p = 0; p < j; p++) pivot -= l(j, p) * conjugate(l(j, p));
    if (!(std::real(pivot) > 0)) return j + 1;
    l(j, j) = std::sqrt(std::real(pivot));
    for (int i = j + 1; i < n; i++) {
      T value = l(i, j);
      for (int p = 0; p < j; p++) value -= l(i, p) * conjugate(l(j, p));
      l(i, j) = value / l(j, j);
    }
  }
  return 0;
}

}  // namespace emulated

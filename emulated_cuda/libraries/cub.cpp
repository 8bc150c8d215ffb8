// CuPy's functions that use CUB: reductions, scans and histograms. Sums are taken pairwise, in the
// array's type.
#include <algorithm>
#include <vector>

#include "../driver/enqueue.h"
#include "dtypes.h"

using namespace emulated;

namespace {

enum Reduction { SUM, MIN, MAX, ARGMIN, ARGMAX, CUMSUM, CUMPROD, PROD };

template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T>
T multiply(T a, T b) {
  return a * b;
}
inline bool add(bool a, bool b) { return a || b; }
inline bool multiply(bool a, bool b) { return a && b; }
inline half add(half a, half b) { return float(a) + float(b); }
inline half multiply(half a, half b) { return float(a) * float(b); }
template <class T>
bool has_nan(T x) {
  return is_nan(x);
}
template <class T>
bool has_nan(std::complex<T> x) {
  return is_nan(x.real()) || is_nan(x.imag());
}

// NaN is chosen wherever there is one.
template <class T>
bool before(T a, T b) {
  return has_nan(b) ? false : has_nan(a) || less(a, b);
}
template <class T>
bool after(T a, T b) {
  return has_nan(b) ? false : has_nan(a) || less(b, a);
}

template <class T, class Operation>
T pairwise(const T* x, size_t n, Operation operation) {
  if (n <= 16) {
    T total = x[0];
    for (size_t i = 1; i < n; i++) total = operation(total, x[i]);
    return total;
  }
  return operation(pairwise(x, n / 2, operation), pairwise(x + n / 2, n - n / 2, operation));
}

template <class T>
T reduce(const T* x, size_t n, int op) {
  switch (op) {
    case SUM: return n ? pairwise(x, n, [](T a, T b) { return add(a, b); }) : T(0.f);
    case PROD: return n ? pairwise(x, n, [](T a, T b) { return multiply(a, b); }) : T(1.f);
    case MIN: return pairwise(x, n, [](T a, T b) { return before(b, a) ? b : a; });
    default: return pairwise(x, n, [](T a, T b) { return after(b, a) ? b : a; });
  }
}

template <class T>
struct Pair {
  int key;
  alignas(sizeof(T)) T value;
};

}  // namespace

void cub_device_reduce(void*, size_t&, void* x, void* y, int n, cudaStream_t stream, int op,
                       int dtype) {
  with_type(dtype, [=](auto zero) {
    using T = decltype(zero);
    call_library(stream, [=] {
      const T* in = static_cast<T*>(x);
      if (op == ARGMIN || op == ARGMAX) {
        int best = 0;
        for (int i = 1; i < n; i++)
          if (op == ARGMIN ? before(in[i], in[best]) : after(in[i], in[best])) best = i;
        *static_cast<Pair<T>*>(y) = {best, in[best]};
      } else {
        *static_cast<T*>(y) = reduce(in, n, op);
      }
    });
  });
}

void cub_device_segmented_reduce(void*, size_t&, void* x, void* y, int segments, int size,
                                 cudaStream_t stream, int op, int dtype) {
  with_type(dtype, [=](auto zero) {
    using T = decltype(zero);
    call_library(stream, [=] {
      for (int i = 0; i < segments; i++)
        static_cast<T*>(y)[i] = reduce(static_cast<T*>(x) + size_t(i) * size, size, op);
    });
  });
}

void cub_device_scan(void*, size_t&, void* x, void* y, int n, cudaStream_t stream, int op,
                     int dtype) {
  with_type(dtype, [=](auto zero) {
    using T = decltype(zero);
    call_library(stream, [=] {
      T* in = static_cast<T*>(x);
      T* out = static_cast<T*>(y);
      T total = op == CUMSUM ? T(0.f) : T(1.f);
      for (int i = 0; i < n; i++)
        out[i] = total = op == CUMSUM ? add(total, in[i]) : multiply(total, in[i]);
    });
  });
}

namespace {

template <class T>
double as_number(T x) {
  return double(x);
}
template <class T>
double as_number(std::complex<T> x) {
  return double(x.real());
}
inline double as_number(half x) { return float(x); }

}  // namespace

void cub_device_histogram_range(void*, size_t&, void* x, void* y, int bins, void* edges, size_t n,
                                cudaStream_t stream, int dtype) {
  with_type(dtype, [=](auto zero) {
    using T = decltype(zero);
    call_library(stream, [=] {
      const T* in = static_cast<T*>(x);
      const T* edge = static_cast<T*>(edges);
      auto* counts = static_cast<long long*>(y);
      std::fill(counts, counts + bins - 1, 0);
      for (size_t i = 0; i < n; i++) {
        auto found = std::upper_bound(edge, edge + bins, in[i],
                                      [](const T& a, const T& b) { return less(a, b); });
        if (found != edge && found != edge + bins) counts[found - edge - 1]++;
      }
    });
  });
}

void cub_device_histogram_even(void*, size_t&, void* x, void* y, int bins, int lower, int upper,
                               size_t n, cudaStream_t stream, int dtype) {
  with_type(dtype, [=](auto zero) {
    using T = decltype(zero);
    call_library(stream, [=] {
      const T* in = static_cast<T*>(x);
      auto* counts = static_cast<long long*>(y);
      std::fill(counts, counts + bins - 1, 0);
      for (size_t i = 0; i < n; i++)
        if (as_number(in[i]) >= lower && as_number(in[i]) < upper)
          counts[size_t((as_number(in[i]) - lower) * (bins - 1) / (upper - lower))]++;
    });
  });
}

// CuPy allocates as many bytes of workspace for them, which nothing here needs.
size_t cub_device_reduce_get_workspace_size(void*, void*, int, cudaStream_t, int, int) { return 1; }
size_t cub_device_segmented_reduce_get_workspace_size(void*, void*, int, int, cudaStream_t, int,
                                                      int) {
  return 1;
}
size_t cub_device_scan_get_workspace_size(void*, void*, int, cudaStream_t, int, int) { return 1; }
size_t cub_device_histogram_range_get_workspace_size(void*, void*, int, void*, size_t, cudaStream_t,
                                                     int) {
  return 1;
}
size_t cub_device_histogram_even_get_workspace_size(void*, void*, int, int, int, size_t,
                                                    cudaStream_t, int) {
  return 1;
}

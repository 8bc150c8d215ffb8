// CuPy's functions that use Thrust: sort, argsort and lexsort, all of them stable.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "../driver/enqueue.h"
#include "dtypes.h"

using namespace emulated;

void thrust_sort(int dtype, void* data, size_t*, const std::vector<ptrdiff_t>& shape,
                 intptr_t stream, void*) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    call_library(reinterpret_cast<cudaStream_t>(stream), [=] {
      size_t size = 1, row = shape.back();
      for (auto n : shape) size *= n;
      for (T *start = static_cast<T*>(data), *end = start + size; start != end; start += row)
        std::stable_sort(start, start + row, [](const T& a, const T& b) { return less(a, b); });
    });
  });
}

void thrust_lexsort(int dtype, size_t* index, void* keys, size_t k, size_t n, intptr_t stream,
                    void*) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    call_library(reinterpret_cast<cudaStream_t>(stream), [=] {
      std::iota(index, index + n, size_t(0));
      for (size_t i = 0; i < k; i++) {
        const T* key = static_cast<T*>(keys) + i * n;
        std::stable_sort(index, index + n,
                         [&](size_t a, size_t b) { return less(key[a], key[b]); });
      }
    });
  });
}

void thrust_argsort(int dtype, size_t* index, void* data, void*,
                    const std::vector<ptrdiff_t>& shape, intptr_t stream, void*) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    call_library(reinterpret_cast<cudaStream_t>(stream), [=] {
      size_t size = 1, row = shape.back();
      for (auto n : shape) size *= n;
      for (size_t at = 0; at < size; at += row) {
        T* values = static_cast<T*>(data) + at;
        size_t* places = index + at;
        std::iota(places, places + row, size_t(0));
        std::stable_sort(places, places + row,
                         [&](size_t a, size_t b) { return less(values[a], values[b]); });
        // Thrust sorts the values too. No std::vector: that of bool has no array.
        const auto sorted = std::make_unique<T[]>(row);
        for (size_t i = 0; i < row; i++) sorted[i] = values[places[i]];
        std::copy(sorted.get(), sorted.get() + row, values);
      }
    });
  });
}

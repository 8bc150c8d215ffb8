// CUB's block-wide reduction, as CuPy's kernels use it: thread 0 gets the result. Items are folded
// pairwise.
#pragma once
namespace cub {
template <class T, int THREADS>
struct BlockReduce {
  struct TempStorage {
    alignas(T) char bytes[THREADS * sizeof(T)];
  };
  T* partial;
  explicit BlockReduce(TempStorage& storage) : partial(reinterpret_cast<T*>(storage.bytes)) {}
  template <class Op>
  T fold(int from, int count, Op op) const {
    return count == 1 ? partial[from]
                      : op(fold(from, count - count / 2, op),
                           fold(from + count - count / 2, count / 2, op));
  }
  template <int ITEMS, class Op>
  T Reduce(T (&items)[ITEMS], Op op) {
    T total = items[0];
    for (int i = 1; i < ITEMS; i++) total = op(total, items[i]);
    return Reduce(total, op);
  }
  template <class Op>
  T Reduce(T item, Op op) {
    const unsigned thread = emulated_flat_thread();
    partial[thread] = item;
    __syncthreads();
    return thread == 0 ? fold(0, THREADS, op) : item;
  }
};
}  // namespace cub

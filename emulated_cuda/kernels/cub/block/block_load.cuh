// CUB's block-wide load, as CuPy's kernels use it: each thread takes as many items in a row.
#pragma once
namespace cub {
enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT };
template <class T, int THREADS, int ITEMS, BlockLoadAlgorithm>
struct BlockLoad {
  struct TempStorage {};
  explicit BlockLoad(TempStorage&) {}
  template <class From>
  void Load(From* from, T (&items)[ITEMS], int valid, T otherwise) {
    for (int i = 0; i < ITEMS; i++) {
      const int at = threadIdx.x * ITEMS + i;
      items[i] = at < valid ? static_cast<T>(from[at]) : otherwise;
    }
  }
};
}  // namespace cub

// cuBLASLt: its handles and descriptions. The products are in blas_lt_products.cpp.
#include "blas_lt.h"

#include <cstring>

#include "blas.h"

using namespace emulated;

namespace {

// An attribute of exactly the size that it has.
template <class T>
int set(T& attribute, const void* value, size_t size) {
  if (!value || size != sizeof(T)) return INVALID_VALUE;
  std::memcpy(&attribute, value, size);
  return 0;
}

}  // namespace

API cublasLtCreate(void** handle) {
  void* memory;
  *handle = nullptr;
  if (cudaMalloc(&memory, 1024)) return ALLOC_FAILED;
  *handle = memory;
  return 0;
}

API cublasLtDestroy(void* handle) {
  if (!handle) return NOT_INITIALIZED;
  return cudaFree(handle) ? EXECUTION_FAILED : 0;
}

API cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *layout = new Layout;
  (*layout)->type = type;
  (*layout)->rows = rows;
  (*layout)->columns = columns;
  (*layout)->leading = leading;
  return 0;
}

API cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return 0;
}

API cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value,
                                     size_t size) {
  switch (attribute) {
    case 0: return set(layout->type, value, size);
    case 1: return set(layout->order, value, size);
    case 2: return set(layout->rows, value, size);
    case 3: return set(layout->columns, value, size);
    case 4: return set(layout->leading, value, size);
    case 5: return set(layout->count, value, size);
    case 6: return set(layout->stride, value, size);
    default: return INVALID_VALUE;
  }
}

EXPORT size_t cublasLtGetVersion() { return 130000; }

API cublasLtMatmulDescCreate(Description** description, int compute, int scale) {
  *description = new Description;
  (*description)->compute = compute;
  (*description)->scale = scale;
  return 0;
}

API cublasLtMatmulDescDestroy(Description* description) {
  delete description;
  return 0;
}

API cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* value,
                                   size_t size) {
  switch (attribute) {
    case 0: return set(description->compute, value, size);
    case 1: return set(description->scale, value, size);
    case 2: return set(description->pointer_mode, value, size);
    case 3: return set(description->transpose_a, value, size);
    case 4: return set(description->transpose_b, value, size);
    case 7: return set(description->epilogue, value, size);
    case 8: return set(description->bias, value, size);
    case 10: return set(description->bias_stride, value, size);
    case 17: return set(description->scale_a, value, size);
    case 18: return set(description->scale_b, value, size);
    case 20: return set(description->scale_d, value, size);
    case 25: return set(description->fast_sums, value, size);
    case 26: return set(description->bias_type, value, size);
    default: return INVALID_VALUE;
  }
}

API cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return 0;
}

API cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return 0;
}

API cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                         size_t size) {
  if (attribute == 1) return set(preference->workspace, value, size);
  if (attribute == 3) return set(preference->reductions, value, size);
  if (attribute < 5 || attribute > 8) return INVALID_VALUE;
  return set(preference->alignments[attribute - 5], value, size);
}

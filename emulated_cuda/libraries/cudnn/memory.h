// Elements of tensors in memory, as numbers of the host.
#pragma once
#include "../dtypes.h"
#include "graph.h"

namespace emulated::cudnn {

inline int64_t offset_of(int64_t place, const Tensor& tensor) {
  int64_t offset = 0;
  for (size_t axis = tensor.dims.size(); axis-- > 0; place /= tensor.dims[axis])
    offset += place % tensor.dims[axis] * tensor.strides[axis];
  return offset;
}

// Calls `work` with a value of the tensor's type.
template <class Work>
void with_data_type(int type, Work work) {
  switch (type) {
    case FLOAT: return work(float());
    case DOUBLE: return work(double());
    case HALF: return work(half());
    case BFLOAT16: return work(bfloat16());
    case INT8: return work(int8_t());
    case UINT8:
    case BOOLEAN: return work(uint8_t());
    case INT32: return work(int32_t());
    case INT64: return work(int64_t());
  }
  throw Failure(NOT_SUPPORTED, "tensors of this type are not emulated");
}

template <class T>
double widened(T x) {
  return double(x);
}
inline double widened(half x) { return double(float(x)); }
inline double widened(bfloat16 x) { return double(float(x)); }

template <class T>
T narrowed(double x) {
  return T(x);
}
template <>
inline half narrowed<half>(double x) {
  half result;
  result.value = _Float16(x);
  return result;
}
template <>
inline bfloat16 narrowed<bfloat16>(double x) {
  return bfloat16(float(x));
}

}  // namespace emulated::cudnn

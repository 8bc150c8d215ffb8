// cuBLASLt: products with an epilogue, and the heuristic, which knows what the library refuses.
#include <cmath>

#include "blas.h"
#include "blas_lt.h"
#include "blas_types.h"
#include "dense.h"
#include "dtypes.h"

using namespace emulated;

namespace {

const uint64_t MAGIC = 0x656d756c61746564;

struct Operands {
  const void *a, *b, *c, *bias;
  void* d;
};

// Everything that a product needs, copied when it is called.
struct Product {
  Description how;
  Layout a, b, c, d;

  int m() const { return int(d.rows); }
  int n() const { return int(d.columns); }
  int k() const { return int(how.transpose_a ? a.rows : a.columns); }

  static bool holds(const Layout& layout, bool transposed, int rows, int columns) {
    return int(transposed ? layout.columns : layout.rows) == rows &&
           int(transposed ? layout.rows : layout.columns) == columns &&
           layout.leading >= int64_t(layout.rows) && layout.order == BY_COLUMNS;
  }

  bool is_valid() const {
    return m() > 0 && n() > 0 && k() > 0 && holds(a, how.transpose_a, m(), k()) &&
           holds(b, how.transpose_b, k(), n()) && holds(c, false, m(), n()) &&
           holds(d, false, m(), n()) && c.type == d.type && a.count == d.count &&
           b.count == d.count && c.count == d.count;
  }

  bool has(Epilogue epilogue) const { return how.epilogue & epilogue; }

  bool is_supported() const {
    const uint32_t known = NO_EPILOGUE | RELU | BIAS | GELU;
    if ((how.epilogue & ~known) || (has(RELU) && has(GELU))) return false;
    if (!can_compute(how.compute, a.type, d.type)) return false;
    const bool is_plain = how.epilogue == NO_EPILOGUE;
    if (is_float8(a.type) && is_float8(b.type))
      return is_plain && how.scale == F32 && fits_float8();
    if (a.type != b.type) return false;
    if (a.type == I8) return is_plain && how.scale == I32 && d.type == I32 && fits_int8();
    if (a.type == F64) return is_plain && how.scale == F64 && d.type == F64;
    if (how.scale != F32 || (how.bias_type >= 0 && how.bias_type != int(d.type))) return false;
    if (a.type == F32) return d.type == F32;
    return (a.type == F16 || a.type == BF16) && (d.type == a.type || d.type == F32);
  }

  // Floats of 8 bits: as integers, but in units of 16 bytes, from compute capability 8.9 on.
  bool fits_float8() const {
    int device, major, minor;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    const int unit = d.type == F32 ? 4 : 8;  // elements of the result
    return major * 10 + minor >= 89 && !(a.type == F8_E5M2 && b.type == F8_E5M2) &&
           how.transpose_a && !how.transpose_b && m() % 16 == 0 && k() % 16 == 0 &&
           a.leading % 16 == 0 && b.leading % 16 == 0 && a.stride % 16 == 0 && b.stride % 16 == 0 &&
           d.leading % unit == 0 && d.stride % unit == 0;
  }

  // 8-bit integers: the left side transposed, the right side not, all sizes in fours.
  bool fits_int8() const {
    return how.transpose_a && !how.transpose_b && m() % 4 == 0 && k() % 4 == 0 &&
           a.leading % 4 == 0 && b.leading % 4 == 0 && d.leading % 4 == 0 && a.stride % 4 == 0 &&
           b.stride % 4 == 0;
  }
};

template <class S>
S finished(const Product& product, S x, S bias) {
  if (product.has(BIAS)) x += bias;
  if (product.has(RELU)) return x < S(0) ? S(0) : x;  // NaN stays
  if (product.has(GELU)) {
    const double y = double(x), inner = 0.7978845608028654 * (y + 0.044715 * y * y * y);
    return S(0.5 * y * (1 + std::tanh(inner)));
  }
  return x;
}

template <class S, class A, class B, class Out>
void compute(const Product& product, const Operands& at, S alpha, S beta) {
  const int m = product.m(), n = product.n();
  std::vector<S> sums(size_t(m) * n);
  for (const float* scale : {product.how.scale_a, product.how.scale_b})
    if (scale) alpha *= S(*scale);
  for (int i = 0; i < product.d.count; i++) {
    auto* a = static_cast<const A*>(at.a) + i * product.a.stride;
    auto* b = static_cast<const B*>(at.b) + i * product.b.stride;
    auto* c = static_cast<const Out*>(at.c) + i * product.c.stride;
    auto* d = static_cast<Out*>(at.d) + i * product.d.stride;
    auto* bias = static_cast<const Out*>(at.bias) + i * product.how.bias_stride;
    gemm<S>(product.how.transpose_a, product.how.transpose_b, m, n, product.k(), alpha, a,
            product.a.leading, b, product.b.leading, S(0), sums.data(), m);
    for (int column = 0; column < n; column++)
      for (int row = 0; row < m; row++) {
        S x = sums[size_t(column) * m + row];
        if (beta != S(0)) x += beta * S(c[column * product.c.leading + row]);
        const S added = product.has(BIAS) ? S(bias[row]) : S(0);
        d[column * product.d.leading + row] = Out(finished(product, x, added));
      }
  }
}

template <class S, class A, class B, class Out>
int multiply(cudaStream_t stream, const Product& product, const Operands& at, const void* alpha,
             const void* beta) {
  const S scale = *static_cast<const S*>(alpha), keep = *static_cast<const S*>(beta);
  const auto work = [=] { compute<S, A, B, Out>(product, at, scale, keep); };
  return call_library(stream, work) ? EXECUTION_FAILED : 0;
}

using Multiply = int (*)(cudaStream_t, const Product&, const Operands&, const void*, const void*);

template <class A, class B>
Multiply multiply_float8(int to) {
  switch (to) {
    case F32: return multiply<float, A, B, float>;
    case F16: return multiply<float, A, B, half>;
    case BF16: return multiply<float, A, B, bfloat16>;
    default: return nullptr;
  }
}

Multiply function_for(const Product& product) {
  const int to = product.d.type;
  switch (product.a.type * 100 + product.b.type) {
    case F8_E4M3 * 100 + F8_E4M3: return multiply_float8<float8_e4m3, float8_e4m3>(to);
    case F8_E4M3 * 100 + F8_E5M2: return multiply_float8<float8_e4m3, float8_e5m2>(to);
    case F8_E5M2 * 100 + F8_E4M3: return multiply_float8<float8_e5m2, float8_e4m3>(to);
  }
  if (product.a.type == F32 && to == F32) {
    if (product.how.compute == IN_F32_FAST_TF32) return multiply<float, AsTf32, AsTf32, float>;
    if (product.how.compute == IN_F32_FAST_BF16)
      return multiply<float, AsBfloat16, AsBfloat16, float>;
  }
  switch (product.a.type * 100 + to) {
    case F32 * 100 + F32: return multiply<float, float, float, float>;
    case F64 * 100 + F64: return multiply<double, double, double, double>;
    case F16 * 100 + F16: return multiply<float, half, half, half>;
    case F16 * 100 + F32: return multiply<float, half, half, float>;
    case BF16 * 100 + BF16: return multiply<float, bfloat16, bfloat16, bfloat16>;
    case BF16 * 100 + F32: return multiply<float, bfloat16, bfloat16, float>;
    case I8 * 100 + I32: return multiply<int32_t, int8_t, int8_t, int32_t>;
    default: return nullptr;
  }
}

int status_of(const Product& product) {
  if (!product.is_valid()) return INVALID_VALUE;
  const Description& how = product.how;
  const bool has_scales = how.scale_a || how.scale_b;
  if (how.scale_d || (has_scales && !is_float8(product.a.type))) return INVALID_VALUE;
  return product.is_supported() && function_for(product) ? 0 : NOT_SUPPORTED;
}

}  // namespace

API cublasLtMatmulAlgoGetHeuristic(void* handle, const Description* how, const Layout* a,
                                   const Layout* b, const Layout* c, const Layout* d,
                                   const Preference* preference, int most, Choice* choices,
                                   int* count) {
  *count = 0;
  if (!handle) return NOT_INITIALIZED;
  if (most < 1) return INVALID_VALUE;
  const Product product = {*how, *a, *b, *c, *d};
  if (int status = status_of(product)) return status;
  const uint32_t* alignments = preference->alignments;
  const int unit = is_float8(a->type) ? 16 : a->type == I8 ? 4 : 1;
  for (int i = 0; i < 4; i++)
    if (alignments[i] % unit) return NOT_SUPPORTED;
  Choice choice = {};
  choice.algorithm.magic = MAGIC;
  for (int i = 0; i < 4; i++) choice.algorithm.alignments[i] = alignments[i];
  choices[0] = choice;
  *count = 1;
  return 0;
}

API cublasLtMatmul(void* handle, const Description* how, const void* alpha, const void* a,
                   const Layout* layout_a, const void* b, const Layout* layout_b, const void* beta,
                   const void* c, const Layout* layout_c, void* d, const Layout* layout_d,
                   const Algorithm* algorithm, void* workspace, size_t size, cudaStream_t stream) {
  if (!handle) return NOT_INITIALIZED;
  const Product product = {*how, *layout_a, *layout_b, *layout_c, *layout_d};
  if (int status = status_of(product)) return status;
  if (how->pointer_mode != SCALARS_ON_HOST) return NOT_SUPPORTED;
  if (product.has(BIAS) && !how->bias) return INVALID_VALUE;
  if (uintptr_t(workspace) % 256 || (size && !workspace)) return INVALID_VALUE;
  if (algorithm) {
    if (algorithm->magic != MAGIC) return INVALID_VALUE;
    const void* operands[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
      if (uintptr_t(operands[i]) % algorithm->alignments[i]) return INVALID_VALUE;
  }
  return function_for(product)(stream, product, {a, b, c, how->bias, d}, alpha, beta);
}

// cuBLAS: its handles, and products of matrices of every type that it takes.
#include "blas.h"
#include "blas_types.h"
#include "dense.h"
#include "dtypes.h"

using namespace emulated;

namespace {

template <class T>
constexpr DataType TYPE_OF = F32;
template <>
constexpr DataType TYPE_OF<double> = F64;
template <>
constexpr DataType TYPE_OF<Complex64> = C64;
template <>
constexpr DataType TYPE_OF<Complex128> = C128;

template <class T>
constexpr ComputeType COMPUTE_OF = IN_F32;
template <>
constexpr ComputeType COMPUTE_OF<double> = IN_F64;
template <>
constexpr ComputeType COMPUTE_OF<Complex128> = IN_F64;

// C = alpha op(A) op(B) + beta C, by columns.
struct Product {
  int opa, opb, m, n, k, lda, ldb, ldc;

  bool is_valid() const {
    return m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, opa ? k : m) &&
           ldb >= std::max(1, opb ? n : k) && ldc >= std::max(1, m) && opa >= NONE &&
           opa <= ADJOINT && opb >= NONE && opb <= ADJOINT;
  }

  template <class S, class In, class Out>
  void compute(S alpha, const In* a, const In* b, S beta, Out* c) const {
    gemm<S>(opa, opb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
};

struct Batch {
  const void *a, *b;
  void* c;
  long long stride_a, stride_b, stride_c;  // in elements
  int count;
};

// Computes in type S, of which alpha and beta are.
template <class S, class In, class Out>
int multiply(Handle* handle, const Product& product, const void* alpha, const void* beta,
             const Batch& batch) {
  const Scalar<S> scale(handle, static_cast<const S*>(alpha));
  const Scalar<S> keep(handle, static_cast<const S*>(beta));
  return run(handle, [=] {
    auto *a = static_cast<const In*>(batch.a), *b = static_cast<const In*>(batch.b);
    auto* c = static_cast<Out*>(batch.c);
    for (int i = 0; i < batch.count; i++)
      product.compute<S>(*scale, a + i * batch.stride_a, b + i * batch.stride_b, *keep,
                         c + i * batch.stride_c);
  });
}

using Multiply = int (*)(Handle*, const Product&, const void*, const void*, const Batch&);

// Null if cuBLAS does not multiply matrices of these types.
Multiply function_for(int a, int b, int c, int compute) {
  if (a != b) return nullptr;
  if (a == F32 && c == F32 && compute == IN_F32_FAST_TF32) return multiply<float, AsTf32, float>;
  if (a == F32 && c == F32 && compute == IN_F32_FAST_BF16)
    return multiply<float, AsBfloat16, float>;
  switch (a * 100 + c) {
    case F32 * 100 + F32: return multiply<float, float, float>;
    case F64 * 100 + F64: return multiply<double, double, double>;
    case F16 * 100 + F16: return multiply<float, half, half>;
    case F16 * 100 + F32: return multiply<float, half, float>;
    case BF16 * 100 + BF16: return multiply<float, bfloat16, bfloat16>;
    case BF16 * 100 + F32: return multiply<float, bfloat16, float>;
    case I8 * 100 + I32: return multiply<int32_t, int8_t, int32_t>;
    case I8 * 100 + F32: return multiply<float, int8_t, float>;
    case C64 * 100 + C64: return multiply<Complex64, Complex64, Complex64>;
    case C128 * 100 + C128: return multiply<Complex128, Complex128, Complex128>;
    default: return nullptr;
  }
}

template <class T>
int multiply_each(Handle* handle, const Product& product, const T* alpha, const T* const* a,
                  const T* const* b, const T* beta, T* const* c, int count) {
  if (!product.is_valid() || count < 0) return INVALID_VALUE;
  const Scalar<T> scale(handle, alpha), keep(handle, beta);
  return run(handle, [=] {
    for (int i = 0; i < count; i++) product.compute<T>(*scale, a[i], b[i], *keep, c[i]);
  });
}

}  // namespace

// A handle has memory of the device, so that none can be created or destroyed during a capture.
API cublasCreate_v2(Handle** handle) {
  void* memory;
  *handle = nullptr;
  if (cudaMalloc(&memory, 1024)) return ALLOC_FAILED;
  *handle = new Handle;
  (*handle)->memory = memory;
  return 0;
}

API cublasDestroy_v2(Handle* handle) {
  if (!handle) return NOT_INITIALIZED;
  const int code = cudaFree(handle->memory);
  delete handle;
  return code ? EXECUTION_FAILED : 0;
}

// No product here needs it; what the library refuses is refused.
API cublasSetWorkspace_v2(Handle* handle, void* memory, size_t size) {
  if (!handle) return NOT_INITIALIZED;
  if (uintptr_t(memory) % 256 || (!memory && size)) return INVALID_VALUE;
  return 0;
}

API cublasGetVersion_v2(Handle*, int* version) {
  *version = 130000;
  return 0;
}

#define PROPERTY(name, Type, member)                 \
  API cublasSet##name(Handle* handle, Type value) {  \
    handle->member = value;                          \
    return 0;                                        \
  }                                                  \
  API cublasGet##name(Handle* handle, Type* value) { \
    *value = handle->member;                         \
    return 0;                                        \
  }
PROPERTY(Stream_v2, cudaStream_t, stream)
PROPERTY(PointerMode_v2, int, pointer_mode)
PROPERTY(MathMode, int, math_mode)

API cublasGemmStridedBatchedEx(Handle* handle, int opa, int opb, int m, int n, int k,
                               const void* alpha, const void* a, int type_a, int lda,
                               long long stride_a, const void* b, int type_b, int ldb,
                               long long stride_b, const void* beta, void* c, int type_c, int ldc,
                               long long stride_c, int count, int compute, int) {
  const Multiply function = function_for(type_a, type_b, type_c, compute);
  if (!function || !can_compute(compute, type_a, type_c)) return NOT_SUPPORTED;
  if ((uintptr_t(a) | uintptr_t(b)) % size_of(type_a) || uintptr_t(c) % size_of(type_c))
    return NOT_SUPPORTED;
  // 8-bit integers are multiplied in fours.
  if (type_a == I8 && ((uintptr_t(a) | uintptr_t(b) | lda | ldb | stride_a | stride_b) % 4))
    return NOT_SUPPORTED;
  const Product product = {opa, opb, m, n, k, lda, ldb, ldc};
  if (!product.is_valid() || count < 0) return INVALID_VALUE;
  return function(handle, product, alpha, beta, {a, b, c, stride_a, stride_b, stride_c, count});
}

API cublasGemmEx(Handle* handle, int opa, int opb, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                 const void* beta, void* c, int type_c, int ldc, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, opa, opb, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
                                    ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}

API cublasSgemmEx(Handle* handle, int opa, int opb, int m, int n, int k, const float* alpha,
                  const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                  const float* beta, void* c, int type_c, int ldc) {
  return cublasGemmEx(handle, opa, opb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c,
                      type_c, ldc, IN_F32, 0);
}

#define GEMM(L, T)                                                                                 \
  API cublas##L##gemm_v2(Handle* handle, int opa, int opb, int m, int n, int k, const T* alpha,    \
                         const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) { \
    const DataType type = TYPE_OF<T>;                                                              \
    return cublasGemmEx(handle, opa, opb, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c,     \
                        type, ldc, COMPUTE_OF<T>, 0);                                              \
  }                                                                                                \
  API cublas##L##gemmStridedBatched(Handle* handle, int opa, int opb, int m, int n, int k,         \
                                    const T* alpha, const T* a, int lda, long long stride_a,       \
                                    const T* b, int ldb, long long stride_b, const T* beta, T* c,  \
                                    int ldc, long long stride_c, int count) {                      \
    const DataType type = TYPE_OF<T>;                                                              \
    return cublasGemmStridedBatchedEx(handle, opa, opb, m, n, k, alpha, a, type, lda, stride_a, b, \
                                      type, ldb, stride_b, beta, c, type, ldc, stride_c, count,    \
                                      COMPUTE_OF<T>, 0);                                           \
  }                                                                                                \
  API cublas##L##gemmBatched(Handle* handle, int opa, int opb, int m, int n, int k,                \
                             const T* alpha, const T* const* a, int lda, const T* const* b,        \
                             int ldb, const T* beta, T* const* c, int ldc, int count) {            \
    return multiply_each<T>(handle, {opa, opb, m, n, k, lda, ldb, ldc}, alpha, a, b, beta, c,      \
                            count);                                                                \
  }
FOR_EACH_TYPE(GEMM)

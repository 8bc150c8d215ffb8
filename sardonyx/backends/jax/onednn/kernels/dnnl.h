// The part of oneDNN's C interface, series 3, that the kernels call: its package has no headers.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef struct dnnl_engine* dnnl_engine_t;
typedef struct dnnl_stream* dnnl_stream_t;
typedef struct dnnl_memory* dnnl_memory_t;
typedef struct dnnl_memory_desc* dnnl_memory_desc_t;
typedef const struct dnnl_memory_desc* const_dnnl_memory_desc_t;
typedef struct dnnl_primitive* dnnl_primitive_t;
typedef struct dnnl_primitive_desc* dnnl_primitive_desc_t;
typedef struct dnnl_primitive_attr* dnnl_primitive_attr_t;
typedef struct dnnl_post_ops* dnnl_post_ops_t;
typedef int64_t dnnl_dims_t[12];
typedef struct {
  int arg;
  dnnl_memory_t memory;
} dnnl_exec_arg_t;

typedef struct {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
} dnnl_version_t;

const dnnl_version_t* dnnl_version();
int dnnl_get_effective_cpu_isa();

int dnnl_set_primitive_cache_capacity(int count);
int dnnl_engine_create(dnnl_engine_t*, int kind, size_t index);
int dnnl_stream_create(dnnl_stream_t*, dnnl_engine_t, unsigned flags);

int dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t*, int ndims, const dnnl_dims_t dims,
                                         int data_type, const dnnl_dims_t strides);
int dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t*, int ndims, const dnnl_dims_t dims,
                                     int data_type, int tag);
int dnnl_memory_desc_clone(dnnl_memory_desc_t*, const_dnnl_memory_desc_t);
int dnnl_memory_desc_permute_axes(dnnl_memory_desc_t*, const_dnnl_memory_desc_t,
                                  const int* permutation);
int dnnl_memory_desc_destroy(dnnl_memory_desc_t);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t);
int dnnl_memory_desc_query(const_dnnl_memory_desc_t, int what, void* result);

int dnnl_memory_create(dnnl_memory_t*, const_dnnl_memory_desc_t, dnnl_engine_t, void* handle);
int dnnl_memory_set_data_handle(dnnl_memory_t, void* handle);
int dnnl_memory_destroy(dnnl_memory_t);

int dnnl_post_ops_create(dnnl_post_ops_t*);
int dnnl_post_ops_append_eltwise(dnnl_post_ops_t, int algorithm, float alpha, float beta);
int dnnl_post_ops_append_binary(dnnl_post_ops_t, int algorithm, const_dnnl_memory_desc_t);
int dnnl_post_ops_destroy(dnnl_post_ops_t);
int dnnl_primitive_attr_create(dnnl_primitive_attr_t*);
int dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t, dnnl_post_ops_t);
int dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t, int mode);
int dnnl_primitive_attr_destroy(dnnl_primitive_attr_t);

int dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int prop_kind, int algorithm,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_l, const dnnl_dims_t padding_r, dnnl_primitive_attr_t);
int dnnl_matmul_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    dnnl_primitive_attr_t);
int dnnl_inner_product_forward_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int prop_kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    dnnl_primitive_attr_t);
int dnnl_eltwise_forward_primitive_desc_create(
    dnnl_primitive_desc_t*, dnnl_engine_t, int prop_kind, int algorithm,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst, float alpha, float beta,
    dnnl_primitive_attr_t);
int dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t*, const_dnnl_memory_desc_t src,
                                       dnnl_engine_t, const_dnnl_memory_desc_t dst, dnnl_engine_t,
                                       dnnl_primitive_attr_t);
int dnnl_sgemm(char is_a_transposed, char is_b_transposed, int64_t m, int64_t n, int64_t k,
               float alpha, const float* a, int64_t a_pitch, const float* b, int64_t b_pitch,
               float beta, float* y, int64_t y_pitch);
int dnnl_primitive_desc_query(dnnl_primitive_desc_t, int what, int index, void* result);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(dnnl_primitive_desc_t, int what, int index);
int dnnl_primitive_desc_next_impl(dnnl_primitive_desc_t);
int dnnl_primitive_desc_destroy(dnnl_primitive_desc_t);

int dnnl_primitive_create(dnnl_primitive_t*, dnnl_primitive_desc_t);
int dnnl_primitive_execute(dnnl_primitive_t, dnnl_stream_t, int count, const dnnl_exec_arg_t*);
int dnnl_primitive_destroy(dnnl_primitive_t);

// Of OpenMP, which the library's build uses.
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace dnnl {

enum Status { kSuccess = 0 };
enum EngineKind { kCpu = 1 };
enum StreamFlags { kInOrder = 1 };
// The bit that all sets of instructions from AVX-512 on have.
enum Instructions { kAvx512 = 0x20 };
enum Tag { kAny = 1 };
enum FormatKind { kBlocked = 2 };
enum ScratchpadMode { kOfTheUser = 1 };
enum PropKind { kInference = 96 };
enum Algorithm {
  kDirectConvolution = 0x1,
  kRelu = 0x20,
  kTanh = 0x21,
  kElu = 0x22,
  kHardSigmoid = 0x28,
  kLogistic = 0x29,
  kGeluTanh = 0x2b,
  kSwish = 0x2c,
  kClip = 0x2e,
  kGeluErf = 0x31,
  kHardSwish = 0x34,
  kAdd = 0x1fff0,
};
enum Query {
  kImplementation = 8,
  kSourceDesc = 129,
  kWeightsDesc = 131,
  kScratchpadDesc = 136,
  // Of descriptions of arrays.
  kStrides = 14,
  kRank = 256,
  kDims = 257,
  kDataType = 258,
  kOffset = 259,
  kPaddedDims = 260,
  kPaddedOffsets = 261,
  kFormatKind = 262,
  kInnerBlocks = 263,
  kInnerBlockSizes = 264,
  kInnerBlockAxes = 265,
};
enum Argument {
  kSource = 1,
  kSecondSource = 2,
  kDestination = 17,
  kWeights = 33,
  kBias = 41,
  kScratchpad = 80,
  kPostOp = 32768,
};

}  // namespace dnnl

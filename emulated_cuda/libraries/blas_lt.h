// What describes a product to cuBLASLt.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulated {

enum Order { BY_COLUMNS = 0 };

struct Layout {
  uint32_t type = 0;
  int32_t order = BY_COLUMNS;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  int32_t count = 1;
  int64_t stride = 0;  // from one matrix of the stack to the next, in elements
};

enum Epilogue { NO_EPILOGUE = 1, RELU = 2, BIAS = 4, GELU = 32 };

struct Description {
  int32_t compute = 0, scale = 0, pointer_mode = 0;
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = NO_EPILOGUE;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;  // that of the result
  const float *scale_a = nullptr, *scale_b = nullptr, *scale_d = nullptr;  // of float8
  int8_t fast_sums = 0;                                                   // of float8, ignored here
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;  // how parts of a sum may be added; here there are no parts
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C and D
};

// What the heuristic chose: here only how the operands have to be aligned.
struct Algorithm {
  uint64_t magic;
  uint32_t alignments[4];
  uint64_t rest[5];
};
static_assert(sizeof(Algorithm) == 64, "as cublasLtMatmulAlgo_t");

struct Choice {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Choice) == 96, "as cublasLtMatmulHeuristicResult_t");

}  // namespace emulated

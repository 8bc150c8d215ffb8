// A graph of operations on tensors, and how it is computed.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "names.h"

namespace emulated::cudnn {

// Becomes cuDNN's status.
struct Failure : std::runtime_error {
  Failure(int status, const std::string& text) : std::runtime_error(text), status(status) {}
  int status;
};

inline void require(bool holds, int status, const char* text) {
  if (!holds) throw Failure(status, text);
}

using Sizes = std::vector<int64_t>;

inline int64_t product(const Sizes& sizes) {
  int64_t total = 1;
  for (int64_t size : sizes) total *= size;
  return total;
}

struct Tensor {
  int64_t uid = 0, alignment = 1;
  int type = FLOAT;
  Sizes dims, strides;
  bool is_virtual = false, is_by_value = false;
};

struct Convolution {
  Sizes strides, dilations, before, after;
  bool is_mirrored = false;
};

struct Operation {
  int kind = 0;  // the kind of its descriptor
  int function = 0;
  std::vector<Tensor> inputs;
  Tensor output;
  Convolution convolution;
  double low = 0, high = 0, slope = 0, beta = 1;
  int64_t axis = 0;
};

bool multiplies(const Operation& operation);

struct Graph {
  std::vector<Operation> operations;
};

// A tensor's elements, row by row.
struct Values {
  Sizes dims;
  std::vector<double> data;
};

// Refuses shapes that do not fit, and what is not emulated.
void check(const Operation& operation);

// Tensors by number. Those by value have their content, all others where they are.
struct Arguments {
  std::map<int64_t, void*> pointers;
  std::map<int64_t, Values> by_value;
};

Values loaded(const Tensor& tensor, const void* from);

// With `rounds_inputs`, float32 is multiplied as TF32.
void compute(const Graph& graph, const Arguments& arguments, bool rounds_inputs);

}  // namespace emulated::cudnn

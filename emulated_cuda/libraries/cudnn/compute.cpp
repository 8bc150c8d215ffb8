// The operations of cuDNN's graphs as plain loops, in float64, rounded once to each tensor's type.
#include <algorithm>
#include <cmath>

#include "memory.h"

namespace emulated::cudnn {
namespace {

double as_tf32(double x) {
  float narrow = float(x);
  uint32_t bits;
  memcpy(&bits, &narrow, 4);
  bits = (bits + 0x1000) & ~0x1fffu;
  memcpy(&narrow, &bits, 4);
  return narrow;
}

class Evaluation {
 public:
  Evaluation(const Arguments& arguments, bool rounds_inputs)
      : arguments_(arguments), rounds_inputs_(rounds_inputs) {}

  void run(const Operation& operation) {
    Values result{operation.output.dims, std::vector<double>(product(operation.output.dims))};
    switch (operation.kind) {
      case CONVOLUTION_FORWARD: convolve(operation, result); break;
      case MATMUL_OPERATION: multiply(operation, result); break;
      case REDUCTION_OPERATION: reduce(operation, result); break;
      case NORM_FORWARD: normalize(operation, result); break;
      default: point_by_point(operation, result);
    }
    store(operation.output, std::move(result));
  }

 private:
  Values read(const Tensor& tensor) const {
    if (tensor.is_virtual) return virtual_.at(tensor.uid);
    if (tensor.is_by_value) return arguments_.by_value.at(tensor.uid);
    return loaded(tensor, arguments_.pointers.at(tensor.uid));
  }

  Values read_factor(const Tensor& tensor) const {
    Values values = read(tensor);
    if (rounds_inputs_ && tensor.type == FLOAT)
      for (double& x : values.data) x = as_tf32(x);
    return values;
  }

  void store(const Tensor& tensor, Values values) {
    with_data_type(tensor.type, [&](auto sample) {
      using T = decltype(sample);
      if (tensor.is_virtual) {
        for (double& x : values.data) x = widened(narrowed<T>(x));
        virtual_[tensor.uid] = std::move(values);
        return;
      }
      T* to = static_cast<T*>(arguments_.pointers.at(tensor.uid));
      for (size_t i = 0; i < values.data.size(); i++)
        to[offset_of(i, tensor)] = narrowed<T>(values.data[i]);
    });
  }

  void convolve(const Operation& operation, Values& y) const {
    const Values x = read_factor(operation.inputs[0]), w = read_factor(operation.inputs[1]);
    const int64_t channels = x.dims[1], inner = w.dims[1], filters = w.dims[0];
    const int64_t per_group = filters / (channels / inner);
    const Sizes sizes(x.dims.begin() + 2, x.dims.end()), kernel(w.dims.begin() + 2, w.dims.end());
    const Sizes places(y.dims.begin() + 2, y.dims.end());
    const int64_t taps = product(kernel), count = product(places), area = product(sizes);
    for (int64_t n = 0; n < y.dims[0]; n++)
      for (int64_t m = 0; m < filters; m++)
        for (int64_t place = 0; place < count; place++) {
          double sum = 0;
          for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t from = source(operation.convolution, place, places, tap, kernel, sizes);
            for (int64_t c = 0; c < inner; c++) {
              const int64_t channel = m / per_group * inner + c;
              const double value = from < 0 ? 0 : x.data[(n * channels + channel) * area + from];
              sum += value * w.data[(m * inner + c) * taps + tap];
            }
          }
          y.data[(n * filters + m) * count + place] = sum;
        }
  }

  // Where a tap of the window at a place reads; -1 is the padding.
  static int64_t source(const Convolution& form, int64_t place, const Sizes& places, int64_t tap,
                        const Sizes& kernel, const Sizes& sizes) {
    int64_t from = 0, step = 1;
    for (size_t axis = sizes.size(); axis-- > 0;) {
      int64_t within = tap % kernel[axis];
      if (form.is_mirrored) within = kernel[axis] - 1 - within;
      const int64_t at = place % places[axis] * form.strides[axis] - form.before[axis] +
                         within * form.dilations[axis];
      if (at < 0 || at >= sizes[axis]) return -1;
      from += at * step;
      step *= sizes[axis];
      place /= places[axis];
      tap /= kernel[axis];
    }
    return from;
  }

  // Broadcasts: an axis of one element has the same one everywhere, and heads may share a matrix.
  static double at(const Values& values, int64_t place, const Sizes& dims) {
    int64_t from = 0, step = 1;
    for (size_t axis = dims.size(); axis-- > 0;) {
      const int64_t own = values.dims[axis];
      from += place % dims[axis] * own / dims[axis] * step;
      step *= own;
      place /= dims[axis];
    }
    return values.data[from];
  }

  void multiply(const Operation& operation, Values& c) const {
    const Values a = read_factor(operation.inputs[0]), b = read_factor(operation.inputs[1]);
    const size_t rank = c.dims.size();
    const int64_t rows = c.dims[rank - 2], columns = c.dims[rank - 1], depth = a.dims[rank - 1];
    Sizes as = c.dims, bs = c.dims;
    as[rank - 1] = bs[rank - 2] = depth;
    for (int64_t batch = 0; batch < product(c.dims) / (rows * columns); batch++)
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
          double sum = 0;
          for (int64_t k = 0; k < depth; k++)
            sum += at(a, (batch * rows + i) * depth + k, as) *
                   at(b, (batch * depth + k) * columns + j, bs);
          c.data[(batch * rows + i) * columns + j] = sum;
        }
  }

  void reduce(const Operation& operation, Values& y) const {
    const Values x = read(operation.inputs[0]);
    const bool adds = operation.function == REDUCE_ADD;
    std::fill(y.data.begin(), y.data.end(), adds ? 0 : -HUGE_VAL);
    for (size_t i = 0; i < x.data.size(); i++) {
      int64_t place = i, to = 0, step = 1;
      for (size_t axis = x.dims.size(); axis-- > 0; place /= x.dims[axis]) {
        if (y.dims[axis] > 1) to += place % x.dims[axis] * step;
        step *= y.dims[axis];
      }
      double& total = y.data[to];
      if (adds) total += x.data[i];
      else if (!(x.data[i] <= total)) total = x.data[i];  // NaN too
    }
  }

  // Over the axes of which the scale has more than one element; these are the last ones.
  void normalize(const Operation& operation, Values& y) const {
    const Values x = read(operation.inputs[0]), scale = read(operation.inputs[2]);
    const double epsilon = read(operation.inputs[1]).data.at(0);
    const int64_t length = product(scale.dims);
    for (size_t start = 0; start < x.data.size(); start += length) {
      double mean = 0, square = 0;
      if (operation.function == LAYER_NORM)
        for (int64_t i = 0; i < length; i++) mean += x.data[start + i] / length;
      for (int64_t i = 0; i < length; i++) {
        const double distance = x.data[start + i] - mean;
        square += distance * distance / length;
      }
      for (int64_t i = 0; i < length; i++)
        y.data[start + i] = (x.data[start + i] - mean) / std::sqrt(square + epsilon) *
                            scale.data[i];
    }
    if (operation.inputs.size() < 4) return;
    const Values bias = read(operation.inputs[3]);
    for (size_t i = 0; i < y.data.size(); i++) y.data[i] += bias.data[i % length];
  }

  void point_by_point(const Operation& operation, Values& y) const {
    std::vector<Values> inputs;
    for (const Tensor& tensor : operation.inputs) inputs.push_back(read(tensor));
    int64_t below = 1;
    for (size_t axis = operation.axis + 1; axis < y.dims.size(); axis++) below *= y.dims[axis];
    for (size_t i = 0; i < y.data.size(); i++) {
      double operands[3] = {};
      for (size_t k = 0; k < inputs.size(); k++) operands[k] = at(inputs[k], i, y.dims);
      const double index = double(int64_t(i) / below % y.dims[operation.axis]);
      y.data[i] = element(operation, operands[0], operands[1], operands[2], index);
    }
  }

  static double element(const Operation& operation, double x, double b, double t, double index) {
    switch (operation.function) {
      case ADD: return x + b;
      case MULTIPLY: return x * b;
      case MINIMUM: return x != x || x < b ? x : b;
      case MAXIMUM: return x != x || x > b ? x : b;
      case DIVIDE: return x / b;
      case SUBTRACT: return x - b;
      case SQUARE_ROOT: return std::sqrt(x);
      case ABSOLUTE: return std::abs(x);
      case EXPONENTIAL: return std::exp(x);
      case LOGARITHM: return std::log(x);
      case NEGATE: return -x;
      case ERROR_FUNCTION: return std::erf(x);
      case IDENTITY: return x;
      case RECIPROCAL: return 1 / x;
      case RELU: {
        if (x < operation.low)  // no product of a slope of 0 with an infinity
          return operation.slope ? operation.low + operation.slope * (x - operation.low)
                                 : operation.low;
        return x > operation.high ? operation.high : x;
      }
      case TANH: return std::tanh(x);
      case SIGMOID: return 1 / (1 + std::exp(-x));
      case GELU: return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5)));
      case SWISH: return x / (1 + std::exp(-operation.beta * x));
      case EQUAL: return x == b;
      case NOT_EQUAL: return x != b;
      case GREATER: return x > b;
      case GREATER_EQUAL: return x >= b;
      case LESS: return x < b;
      case LESS_EQUAL: return x <= b;
      case LOGICAL_AND: return x && b;
      case LOGICAL_OR: return x || b;
      case LOGICAL_NOT: return !x;
      case INDEX: return index;
      case SELECT: return t ? x : b;
    }
    throw Failure(NOT_SUPPORTED, "this function is not emulated");
  }

  const Arguments& arguments_;
  bool rounds_inputs_;
  std::map<int64_t, Values> virtual_;
};

void check_convolution(const Operation& operation) {
  const Sizes &x = operation.inputs[0].dims, &w = operation.inputs[1].dims;
  const Sizes& y = operation.output.dims;
  const Convolution& form = operation.convolution;
  require(x.size() == 4 || x.size() == 5, NOT_SUPPORTED, "convolutions have 4 or 5 axes");
  require(w.size() == x.size() && y.size() == x.size(), BAD_PARAM, "ranks differ");
  require(x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0, BAD_PARAM, "channels do not fit");
  require(y[0] == x[0] && y[1] == w[0], BAD_PARAM, "the result's batch or channels do not fit");
  for (size_t axis = 2; axis < x.size(); axis++) {
    const size_t i = axis - 2;
    const int64_t padded = x[axis] + form.before.at(i) + form.after.at(i);
    const int64_t extent = (w[axis] - 1) * form.dilations.at(i) + 1;
    require(padded >= extent && y[axis] == (padded - extent) / form.strides.at(i) + 1, BAD_PARAM,
            "the result's size does not fit");
  }
}

bool broadcasts(const Sizes& from, const Sizes& to) {
  if (from.size() != to.size()) return false;
  for (size_t axis = 0; axis < from.size(); axis++)
    if (from[axis] != to[axis] && from[axis] != 1) return false;
  return true;
}

void check_matmul(const Operation& operation) {
  const Sizes &a = operation.inputs[0].dims, &b = operation.inputs[1].dims;
  const Sizes& c = operation.output.dims;
  const size_t rank = c.size();
  require(rank >= 2 && a.size() == rank && b.size() == rank, BAD_PARAM, "ranks differ");
  const bool fits = a[rank - 1] == b[rank - 2] && a[rank - 2] == c[rank - 2] &&
                    b[rank - 1] == c[rank - 1];
  require(fits, BAD_PARAM, "the matrices do not fit");
  for (size_t axis = 0; axis + 2 < rank; axis++)
    require(c[axis] % a[axis] == 0 && c[axis] % b[axis] == 0, BAD_PARAM, "batches do not fit");
}

void check_norm(const Operation& operation) {
  const Sizes &x = operation.inputs[0].dims, &scale = operation.inputs[2].dims;
  require(operation.output.dims == x && scale.size() == x.size(), BAD_PARAM, "ranks differ");
  require(product(operation.inputs[1].dims) == 1, BAD_PARAM, "epsilon is not one number");
  require(operation.inputs.size() < 4 || operation.inputs[3].dims == scale, BAD_PARAM,
          "scale and bias differ");
  bool is_normalized = false;
  for (size_t axis = 0; axis < x.size(); axis++) {
    is_normalized |= scale[axis] > 1;
    require(scale[axis] == (is_normalized ? x[axis] : 1), NOT_SUPPORTED,
            "the scale is not that of the last axes");
  }
}

}  // namespace

void check(const Operation& operation) {
  std::vector<Tensor> tensors = operation.inputs;
  tensors.push_back(operation.output);
  for (const Tensor& tensor : tensors) {
    require(tensor.dims.size() == tensor.strides.size() && !tensor.dims.empty(), BAD_PARAM,
            "a tensor has not as many strides as sizes");
    for (int64_t size : tensor.dims) require(size > 0, BAD_PARAM, "a tensor is empty");
    with_data_type(tensor.type, [](auto) {});
  }
  switch (operation.kind) {
    case CONVOLUTION_FORWARD: return check_convolution(operation);
    case MATMUL_OPERATION: return check_matmul(operation);
    case NORM_FORWARD: return check_norm(operation);
    case REDUCTION_OPERATION:
      require(operation.function == REDUCE_ADD || operation.function == REDUCE_MAXIMUM,
              NOT_SUPPORTED, "this reduction is not emulated");
      return require(broadcasts(operation.output.dims, operation.inputs[0].dims), BAD_PARAM,
                     "the sizes of a reduction do not fit");
    default:
      for (const Tensor& tensor : operation.inputs)
        require(broadcasts(tensor.dims, operation.output.dims), BAD_PARAM,
                "the sizes of an elementwise operation do not fit");
  }
}

Values loaded(const Tensor& tensor, const void* from) {
  Values values{tensor.dims, std::vector<double>(product(tensor.dims))};
  with_data_type(tensor.type, [&](auto sample) {
    auto* elements = static_cast<const decltype(sample)*>(from);
    for (size_t i = 0; i < values.data.size(); i++)
      values.data[i] = widened(elements[offset_of(i, tensor)]);
  });
  return values;
}

void compute(const Graph& graph, const Arguments& arguments, bool rounds_inputs) {
  Evaluation evaluation(arguments, rounds_inputs);
  for (const Operation& operation : graph.operations) evaluation.run(operation);
}

}  // namespace emulated::cudnn

#include "descriptors.h"

namespace emulated::cudnn {
namespace {

void finish_tensor(Descriptor& descriptor) {
  Tensor& tensor = descriptor.tensor;
  tensor.uid = descriptor.one<int64_t>(TENSOR_UID);
  tensor.alignment = descriptor.one<int64_t>(TENSOR_ALIGNMENT);
  tensor.type = descriptor.one<int>(TENSOR_TYPE);
  tensor.dims = descriptor.all<int64_t>(TENSOR_DIMENSIONS);
  tensor.strides = descriptor.all<int64_t>(TENSOR_STRIDES);
  tensor.is_virtual = descriptor.one_or<char>(TENSOR_IS_VIRTUAL, 0) != 0;
  tensor.is_by_value = descriptor.one_or<char>(TENSOR_IS_BY_VALUE, 0) != 0;
}

// Of type double where the convolution is computed in it.
double scale_of(const Descriptor& descriptor, int name) {
  const bool is_double = descriptor.all<char>(name).size() == sizeof(double);
  return is_double ? descriptor.one<double>(name) : descriptor.one<float>(name);
}

void finish_convolution(const Descriptor& descriptor, Operation& operation) {
  const Descriptor& form = descriptor.part(FORWARD_CONVOLUTION);
  require(scale_of(descriptor, FORWARD_ALPHA) == 1 && scale_of(descriptor, FORWARD_BETA) == 0,
          NOT_SUPPORTED, "scaled convolutions are not emulated");
  operation.inputs = {descriptor.part(FORWARD_X).tensor, descriptor.part(FORWARD_W).tensor};
  operation.output = descriptor.part(FORWARD_Y).tensor;
  operation.convolution = {form.all<int64_t>(CONVOLUTION_STRIDES),
                           form.all<int64_t>(CONVOLUTION_DILATIONS),
                           form.all<int64_t>(CONVOLUTION_PRE_PADDINGS),
                           form.all<int64_t>(CONVOLUTION_POST_PADDINGS),
                           form.one<int>(CONVOLUTION_MODE) == 0};
}

void finish_pointwise(const Descriptor& descriptor, Operation& operation) {
  const Descriptor& form = descriptor.part(POINTWISE_DESCRIPTION);
  operation.function = form.one<int>(POINTWISE_MODE);
  for (int name : {POINTWISE_X, POINTWISE_B, POINTWISE_T})
    if (descriptor.has(name)) operation.inputs.push_back(descriptor.part(name).tensor);
  operation.output = descriptor.part(POINTWISE_Y).tensor;
  operation.low = form.one_or<double>(RELU_LOWER_CLIP, 0);
  operation.high = form.one_or<double>(RELU_UPPER_CLIP, 0);
  operation.slope = form.one_or<double>(RELU_SLOPE, 0);
  operation.beta = form.one_or<double>(SWISH_BETA, 1);
  operation.axis = form.one_or<int64_t>(POINTWISE_AXIS, 0);
}

void finish_norm(const Descriptor& descriptor, Operation& operation) {
  operation.function = descriptor.one<int>(NORM_MODE);
  const bool is_known = operation.function == LAYER_NORM || operation.function == RMS_NORM;
  require(is_known && descriptor.one<int>(NORM_PHASE) == NORM_INFERENCE, NOT_SUPPORTED,
          "this normalization is not emulated");
  for (int name : {NORM_X, NORM_EPSILON, NORM_SCALE, NORM_BIAS})
    if (descriptor.has(name)) operation.inputs.push_back(descriptor.part(name).tensor);
  require(operation.inputs.size() > 2, BAD_PARAM, "a normalization lacks an operand");
  operation.output = descriptor.part(NORM_Y).tensor;
}

void finish_operation(Descriptor& descriptor) {
  Operation& operation = descriptor.operation;
  operation.kind = descriptor.kind;
  if (descriptor.kind == CONVOLUTION_FORWARD) {
    finish_convolution(descriptor, operation);
  } else if (descriptor.kind == POINTWISE_OPERATION) {
    finish_pointwise(descriptor, operation);
  } else if (descriptor.kind == NORM_FORWARD) {
    finish_norm(descriptor, operation);
  } else if (descriptor.kind == MATMUL_OPERATION) {
    operation.inputs = {descriptor.part(MATMUL_A).tensor, descriptor.part(MATMUL_B).tensor};
    operation.output = descriptor.part(MATMUL_C).tensor;
  } else {
    operation.function = descriptor.part(REDUCTION_DESCRIPTION).one<int>(REDUCTION_OPERATOR);
    operation.inputs = {descriptor.part(REDUCTION_X).tensor};
    operation.output = descriptor.part(REDUCTION_Y).tensor;
  }
  check(operation);
}

void finish_graph(Descriptor& descriptor) {
  auto graph = std::make_shared<Graph>();
  for (const Descriptor* operation : descriptor.all<Descriptor*>(GRAPH_OPERATIONS)) {
    require(operation && operation->is_final, BAD_NOT_FINALIZED, "an operation is not final");
    graph->operations.push_back(operation->operation);
  }
  descriptor.graph = graph;
}

void finish_engine(Descriptor& descriptor) {
  descriptor.graph = descriptor.part(ENGINE_GRAPH).graph;
  descriptor.engine = descriptor.one<int64_t>(ENGINE_INDEX);
  require(descriptor.engine >= 0 && descriptor.engine < engine_count(*descriptor.graph), BAD_PARAM,
          "there is no such engine");
}

void take_engine(Descriptor& descriptor, const Descriptor& from) {
  descriptor.graph = from.graph;
  descriptor.engine = from.engine;
}

}  // namespace

bool multiplies(const Operation& operation) {
  return operation.kind == CONVOLUTION_FORWARD || operation.kind == MATMUL_OPERATION;
}

void finish(Descriptor& descriptor) {
  switch (descriptor.kind) {
    case TENSOR: finish_tensor(descriptor); break;
    case CONVOLUTION_FORWARD:
    case POINTWISE_OPERATION:
    case MATMUL_OPERATION:
    case NORM_FORWARD:
    case REDUCTION_OPERATION: finish_operation(descriptor); break;
    case OPERATION_GRAPH: finish_graph(descriptor); break;
    case HEURISTICS: descriptor.graph = descriptor.part(HEURISTICS_GRAPH).graph; break;
    case ENGINE: finish_engine(descriptor); break;
    case ENGINE_CONFIG: take_engine(descriptor, descriptor.part(CONFIG_ENGINE)); break;
    case PLAN: take_engine(descriptor, descriptor.part(PLAN_CONFIG)); break;
  }
  descriptor.is_final = true;
}

}  // namespace emulated::cudnn

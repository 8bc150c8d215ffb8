// cuDNN's graph API: handles, descriptors, and plans that run on a stream.
#include <algorithm>

#include "../../driver/enqueue.h"
#include "descriptors.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace emulated;
using namespace emulated::cudnn;

namespace {

constexpr size_t VERSION = 91002;

thread_local std::string last_error;

struct Handle {
  cudaStream_t stream = nullptr;
};

// Runs `work`; its failure becomes cuDNN's status.
template <class Work>
int guarded(Work work) {
  try {
    work();
    return SUCCESS;
  } catch (const Failure& failure) {
    last_error = failure.what();
    return failure.status;
  } catch (const std::exception& error) {
    last_error = error.what();
    return INTERNAL_ERROR;
  }
}

// Kinds that only hold attributes, and those that mean something here.
bool is_known(int kind) {
  switch (kind) {
    case POINTWISE:
    case CONVOLUTION:
    case ENGINE:
    case ENGINE_CONFIG:
    case HEURISTICS:
    case PLAN:
    case 7:  // a knob's choice, of which the engines here have none
    case CONVOLUTION_FORWARD:
    case POINTWISE_OPERATION:
    case OPERATION_GRAPH:
    case VARIANT_PACK:
    case TENSOR:
    case MATMUL:
    case MATMUL_OPERATION:
    case REDUCTION:
    case NORM_FORWARD:
    case REDUCTION_OPERATION: return true;
  }
  return false;
}

// Writes up to `room` values, and how many there are.
template <class T>
void answer(const std::vector<T>& values, int64_t room, int64_t* count, void* to) {
  if (count) *count = int64_t(values.size());
  const int64_t written = to ? std::min<int64_t>(room, values.size()) : 0;
  if (written) memcpy(to, values.data(), written * sizeof(T));
}

std::vector<int> numerical_notes(const Descriptor& engine) {
  const bool is_tf32 = engine.engine == 0 && has_tf32(*engine.graph);
  return is_tf32 ? std::vector<int>{NOTE_TENSOR_CORE, NOTE_DOWN_CONVERT_INPUTS}
                 : std::vector<int>{};
}

// The caller has created the descriptors that are filled here.
void answer_results(const Descriptor& heuristics, int64_t room, int64_t* count, void* to) {
  const int64_t engines = engine_count(*heuristics.graph);
  if (count) *count = to ? std::min(room, engines) : engines;
  for (int64_t i = 0; to && i < std::min(room, engines); i++) {
    Descriptor& config = *static_cast<Descriptor**>(to)[i];
    config.graph = heuristics.graph;
    config.engine = i;
    config.is_final = true;
  }
}

void answer_engine(const Descriptor& config, int64_t* count, void* to) {
  if (count) *count = 1;
  if (!to) return;
  Descriptor& engine = **static_cast<Descriptor**>(to);
  engine.graph = config.graph;
  engine.engine = config.engine;
  engine.is_final = true;
}

void get_attribute(const Descriptor& descriptor, int name, int64_t room, int64_t* count, void* to) {
  require(descriptor.is_final, BAD_NOT_FINALIZED, "the descriptor is not final");
  switch (name) {
    case HEURISTICS_RESULTS: return answer_results(descriptor, room, count, to);
    case CONFIG_ENGINE: return answer_engine(descriptor, count, to);
    case CONFIG_KNOBS:
    case ENGINE_KNOBS: return answer(std::vector<void*>{}, room, count, to);
    case CONFIG_SHARED_MEMORY: return answer(std::vector<int>{0}, room, count, to);
    case CONFIG_WORKSPACE_SIZE:
    case PLAN_WORKSPACE_SIZE:
      return answer(std::vector<int64_t>{WORKSPACE_SIZE}, room, count, to);
    case GRAPH_ENGINES:
      return answer(std::vector<int64_t>{engine_count(*descriptor.graph)}, room, count, to);
    case ENGINE_INDEX: return answer(std::vector<int64_t>{descriptor.engine}, room, count, to);
    case ENGINE_NUMERICAL_NOTES: return answer(numerical_notes(descriptor), room, count, to);
    case ENGINE_BEHAVIOR_NOTES: return answer(std::vector<int>{}, room, count, to);
  }
  throw Failure(NOT_SUPPORTED, "this attribute is not emulated");
}

// Finds each tensor of a graph that is not virtual in a variant pack.
Arguments arguments_of(const Graph& graph, const Descriptor& pack) {
  const auto uids = pack.all<int64_t>(PACK_UIDS);
  const auto pointers = pack.all<void*>(PACK_POINTERS);
  require(uids.size() == pointers.size(), BAD_PARAM, "not as many pointers as tensors");
  Arguments arguments;
  auto add = [&](const Tensor& tensor) {
    if (tensor.is_virtual) return;
    const auto found = std::find(uids.begin(), uids.end(), tensor.uid);
    require(found != uids.end(), BAD_PARAM, "a tensor has no pointer");
    void* pointer = pointers[found - uids.begin()];
    require(pointer != nullptr, BAD_NULL_POINTER, "a tensor's pointer is null");
    require(uintptr_t(pointer) % tensor.alignment == 0, BAD_MISALIGNED_POINTER,
            "a tensor's pointer is not aligned as its descriptor says");
    // Values lie on the host and are read now; all others lie on the device.
    if (tensor.is_by_value) arguments.by_value[tensor.uid] = loaded(tensor, pointer);
    else arguments.pointers[tensor.uid] = pointer;
  };
  for (const Operation& operation : graph.operations) {
    for (const Tensor& tensor : operation.inputs) add(tensor);
    add(operation.output);
  }
  return arguments;
}

void execute(Handle* handle, const Descriptor& plan, const Descriptor& pack) {
  require(handle != nullptr, BAD_NULL_POINTER, "the handle is null");
  require(plan.is_final && pack.is_final, BAD_NOT_FINALIZED, "a descriptor is not final");
  auto* workspace = static_cast<char*>(pack.one<void*>(PACK_WORKSPACE));
  require(workspace != nullptr, BAD_NULL_POINTER, "the workspace is null");
  const bool rounds_inputs = !numerical_notes(plan).empty();
  auto work = [graph = plan.graph, arguments = arguments_of(*plan.graph, pack), workspace,
               rounds_inputs] {
    memset(workspace, 0xff, WORKSPACE_SIZE);
    compute(*graph, arguments, rounds_inputs);
  };
  require(!call_library(handle->stream, work), EXECUTION_FAILED, "the device has failed");
}

}  // namespace

API size_t cudnnGetVersion() { return VERSION; }

API size_t cudnnGetCudartVersion() { return 13000; }

API const char* cudnnGetErrorString(int status) {
  switch (status) {
    case SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    case INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS_BAD_PARAM";
  }
}

API void cudnnGetLastErrorString(char* message, size_t size) {
  if (!size) return;
  strncpy(message, last_error.c_str(), size - 1);
  message[size - 1] = 0;
  last_error.clear();
}

API int cudnnCreate(Handle** handle) {
  *handle = new Handle;
  return SUCCESS;
}

API int cudnnDestroy(Handle* handle) {
  delete handle;
  return SUCCESS;
}

API int cudnnSetStream(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return SUCCESS;
}

API int cudnnGetStream(Handle* handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return SUCCESS;
}

API int cudnnBackendCreateDescriptor(int kind, Descriptor** descriptor) {
  return guarded([=] {
    require(is_known(kind), NOT_SUPPORTED, "this descriptor is not emulated");
    *descriptor = new Descriptor;
    (*descriptor)->kind = kind;
  });
}

API int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return SUCCESS;
}

API int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count,
                                 const void* elements) {
  return guarded([=] {
    require(descriptor && (elements || !count), BAD_NULL_POINTER, "a pointer is null");
    require(!descriptor->is_final, BAD_PARAM, "the descriptor is final");
    const auto* bytes = static_cast<const char*>(elements);
    descriptor->attributes[name].assign(bytes, bytes + count * width_of(type));
  });
}

API int cudnnBackendGetAttribute(const Descriptor* descriptor, int name, int type, int64_t room,
                                 int64_t* count, void* elements) {
  return guarded([=] {
    require(descriptor != nullptr, BAD_NULL_POINTER, "the descriptor is null");
    get_attribute(*descriptor, name, room, count, elements);
  });
}

API int cudnnBackendFinalize(Descriptor* descriptor) {
  return guarded([=] {
    require(descriptor != nullptr, BAD_NULL_POINTER, "the descriptor is null");
    finish(*descriptor);
  });
}

API int cudnnBackendExecute(Handle* handle, Descriptor* plan, Descriptor* pack) {
  return guarded([=] { execute(handle, *plan, *pack); });
}

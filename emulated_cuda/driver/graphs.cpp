// Stream capture, and the graphs that it records: lists of work, in the order of the calls.
#include "counts.h"
#include "streams.h"

using namespace emulated;

namespace {

using Shared = std::shared_ptr<Graph>;

template <class Handle>
Shared& graph_of(Handle handle) {
  return *reinterpret_cast<Shared*>(handle);
}

template <class Handle>
void give(Handle* handle, const Shared& graph) {
  *handle = reinterpret_cast<Handle>(new Shared(graph));
}

// Takes every stream out of the capture; true if one has work that the origin does not wait for.
bool leave(Stream& origin, Capture& capture) {
  bool unjoined = false;
  for (auto& [handle, has_work] : capture.joined) {
    unjoined |= has_work;
    if (Stream* stream = stream_of(handle)) stream->capture.reset();
  }
  origin.capture.reset();
  return unjoined;
}

}  // namespace

API cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  ENTER;
  FIND_STREAM(stream, handle);
  if (mode < 0 || mode > 2) return reported(cudaErrorInvalidValue);
  if (is_default(handle)) return reported(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return reported(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = handle;
  capture->mode = mode;
  capture->thread = pthread_self();
  stream->capture = capture;
  captures.insert(capture);
  return 0;
}

API cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  ENTER;
  FIND_STREAM(stream, handle);
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture) return reported(cudaErrorIllegalState);
  if (capture->origin != handle) return reported(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != 2 && !pthread_equal(capture->thread, pthread_self()))
    return reported(cudaErrorStreamCaptureWrongThread);
  captures.erase(capture);
  const bool unjoined = leave(*stream, *capture);
  if (capture->invalid) return reported(cudaErrorStreamCaptureInvalidated);
  if (unjoined) return reported(cudaErrorStreamCaptureUnjoined);
  give(graph, capture->graph);
  return 0;
}

API cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  ENTER;
  FIND_STREAM(stream, handle);
  *status = nullptr;
  if (is_default(handle)) {
    for (auto& capture : captures) {
      Stream* origin = stream_of(capture->origin);
      if (origin && origin->is_blocking()) return reported(cudaErrorStreamCaptureImplicit);
    }
    return 0;
  }
  const intptr_t active = 1, invalidated = 2;
  if (stream->capture)
    *status = reinterpret_cast<void*>(stream->capture->invalid ? invalidated : active);
  return 0;
}

API cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  ENTER;
  give(executable, graph_of(graph));
  return 0;
}

API cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Shared graph = graph_of(executable);
  return enqueue(stream, [graph] {
    count(GRAPH_LAUNCHES);
    for (auto& node : graph->nodes)
      if (int code = node()) return code;
    return 0;
  });
}

API cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return 0;
}

API cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete &graph_of(executable);
  return 0;
}

API cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return 0; }

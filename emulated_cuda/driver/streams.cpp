#include "streams.h"

#include "counts.h"
#include "enqueue.h"
#include "faults.h"
#include "log.h"

namespace emulated {

std::set<Stream*> streams;
std::set<std::shared_ptr<Capture>> captures;

static Stream default_stream;

enum CaptureMode { GLOBAL = 0, OF_THREAD = 1, RELAXED = 2 };

bool is_default(cudaStream_t handle) {
  return uintptr_t(handle) <= 2;  // null, the legacy stream, and the thread's own
}

Stream* stream_of(cudaStream_t handle) {
  if (is_default(handle)) return &default_stream;
  auto* stream = reinterpret_cast<Stream*>(handle);
  return streams.count(stream) ? stream : nullptr;
}

bool Capture::forbids_unsafe_calls() const {
  return mode == GLOBAL || (mode == OF_THREAD && pthread_equal(thread, pthread_self()));
}

int refusal_of_unsafe_call() {
  for (auto& capture : captures)
    if (capture->forbids_unsafe_calls()) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  return 0;
}

int refusal_of_default_stream() {
  for (auto& capture : captures) {
    Stream* origin = stream_of(capture->origin);
    if (origin && origin->is_blocking()) {
      capture->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  return 0;
}

int refusal_of_synchronous_call() {
  int code = refusal_of_default_stream();
  return code ? code : refusal_of_unsafe_call();
}

static int record(Stream& stream, cudaStream_t handle, Work work) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  capture.graph->nodes.push_back(std::move(work));
  stream.recorded++;
  auto joined = capture.joined.find(handle);
  if (joined != capture.joined.end()) joined->second = true;
  return 0;
}

int enqueue(cudaStream_t handle, Work work) {
  ENTER;
  FIND_STREAM(stream, handle);
  if (is_default(handle)) {
    if (int code = refusal_of_default_stream()) return reported(code);
  }
  if (stream->capture) return reported(record(*stream, handle, std::move(work)));
  log(WORK_LOGGED, handle);
  int code = work();
  return context_fault ? 0 : reported(code);
}

int call_library(cudaStream_t stream, std::function<void()> work) {
  return enqueue(stream, [work] {
    count(LIBRARY_CALLS);
    return guarded([&] {
      work();
      return 0;
    });
  });
}

}  // namespace emulated

using namespace emulated;

API cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  ENTER;
  auto* stream = new Stream;
  stream->flags = flags;
  stream->priority = priority;
  streams.insert(stream);
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return 0;
}

API cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

API cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

API cudaStreamDestroy(cudaStream_t handle) {
  ENTER;
  FIND_STREAM(stream, handle);
  if (is_default(handle)) return reported(cudaErrorInvalidResourceHandle);
  if (stream->capture) captures.erase(stream->capture);
  streams.erase(stream);
  delete stream;
  return 0;
}

API cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  ENTER;
  FIND_STREAM(stream, handle);
  *flags = stream->flags;
  return 0;
}

API cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  ENTER;
  FIND_STREAM(stream, handle);
  *priority = stream->priority;
  return 0;
}

// All work of the stream has run; what is left is to refuse what a capture forbids.
API cudaStreamQuery(cudaStream_t handle) {
  ENTER;
  FIND_STREAM(stream, handle);
  if (is_default(handle)) {
    if (int code = refusal_of_default_stream()) return reported(code);
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    return reported(cudaErrorStreamCaptureUnsupported);
  }
  return 0;
}

API cudaStreamSynchronize(cudaStream_t handle) {
  ENTER;
  count(SYNCHRONIZATIONS);
  log(STREAM_AWAITED, handle);
  return cudaStreamQuery(handle);
}

API cudaDeviceSynchronize() {
  ENTER;
  count(SYNCHRONIZATIONS);
  log(DEVICE_AWAITED, nullptr);
  for (auto& capture : captures) capture->invalid = true;  // in every mode
  return captures.empty() ? 0 : reported(cudaErrorStreamCaptureUnsupported);
}

API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, [=] {
    function(data);
    return 0;
  });
}

API cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* data,
                          unsigned) {
  if (int code = cudaStreamQuery(handle)) return code;
  callback(handle, cudaSuccess, data);  // without the lock, since it may call CUDA's functions
  return 0;
}

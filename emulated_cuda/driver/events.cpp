// Events: their times, and how they join streams to a capture.
#include <time.h>

#include "counts.h"
#include "log.h"
#include "streams.h"

namespace emulated {
namespace {

std::set<Event*> events;

Event* event_of(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return events.count(event) ? event : nullptr;
}

double milliseconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

bool is_open(const std::shared_ptr<Capture>& capture) { return capture && captures.count(capture); }

// A stream that waits for an event of a capture joins the capture. The origin, when it waits for
// the last work of a stream that has joined, has that stream's work in its graph.
int wait_in_capture(cudaStream_t handle, Stream& waiting, const Event& event) {
  Capture& capture = *event.capture;
  if (waiting.capture && waiting.capture != event.capture) return cudaErrorStreamCaptureMerge;
  if (!waiting.capture) {
    if (is_default(handle)) return cudaErrorStreamCaptureImplicit;
    waiting.capture = event.capture;
    capture.joined[handle] = true;
  }
  const Stream* source = stream_of(event.stream);
  auto joined = capture.joined.find(event.stream);
  if (source && joined != capture.joined.end() && source->recorded == event.recorded)
    joined->second = false;
  return 0;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

#define FIND_EVENT(name, handle)  \
  Event* name = event_of(handle); \
  if (!name) return reported(cudaErrorInvalidResourceHandle)

API cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  ENTER;
  auto* event = new Event;
  event->flags = flags;
  events.insert(event);
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return 0;
}

API cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }

API cudaEventDestroy(cudaEvent_t handle) {
  ENTER;
  FIND_EVENT(event, handle);
  events.erase(event);
  delete event;
  return 0;
}

API cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  ENTER;
  FIND_EVENT(event, handle);
  FIND_STREAM(stream, on);
  if (is_default(on)) {
    if (int code = refusal_of_default_stream()) return reported(code);
  }
  event->capture = stream->capture;
  event->stream = on;
  event->recorded = stream->recorded;
  if (!stream->capture) event->recorded_at = milliseconds_now();
  log(RECORD_LOGGED, on, event);
  return 0;
}

API cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t awaited, unsigned) {
  ENTER;
  FIND_EVENT(event, awaited);
  FIND_STREAM(stream, handle);
  log(WAIT_LOGGED, handle, event);
  if (is_open(event->capture)) return reported(wait_in_capture(handle, *stream, *event));
  if (stream->capture && event->recorded_at >= 0) {
    stream->capture->invalid = true;
    return reported(cudaErrorStreamCaptureIsolation);
  }
  return 0;
}

API cudaEventQuery(cudaEvent_t handle) {
  ENTER;
  FIND_EVENT(event, handle);
  if (is_open(event->capture)) {
    event->capture->invalid = true;
    return reported(cudaErrorCapturedEvent);
  }
  return 0;
}

API cudaEventSynchronize(cudaEvent_t handle) {
  ENTER;
  count(SYNCHRONIZATIONS);
  log(EVENT_AWAITED, nullptr, handle);
  return cudaEventQuery(handle);
}

API cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  ENTER;
  FIND_EVENT(start, first);
  FIND_EVENT(end, second);
  if (!start->has_time() || !end->has_time()) return reported(cudaErrorInvalidResourceHandle);
  *milliseconds = float(end->recorded_at - start->recorded_at);
  return 0;
}

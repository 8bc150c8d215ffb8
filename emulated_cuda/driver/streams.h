// Streams, events and captures. Work runs when it is put on a stream, in the thread that puts it
// there, unless the stream is capturing: then it is recorded.
#pragma once
#include <pthread.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "state.h"

namespace emulated {

using Work = std::function<int()>;  // returns CUDA's error code

struct Graph {
  std::vector<Work> nodes;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStream_t origin;
  int mode;
  pthread_t thread;
  bool invalid = false;
  // Of each stream that joined: whether it has work for which the origin has yet to wait.
  std::map<cudaStream_t, bool> joined;

  bool forbids_unsafe_calls() const;
};

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<Capture> capture;
  size_t recorded = 0;  // how many nodes it has put into captures

  bool is_blocking() const { return !(flags & 1); }  // it and the legacy stream wait for each other
};

struct Event {
  unsigned flags = 0;
  double recorded_at = -1;  // in milliseconds
  std::shared_ptr<Capture> capture;
  cudaStream_t stream = nullptr;
  size_t recorded = 0;  // that number of the stream, when the event was recorded

  bool has_time() const { return !(flags & 2) && recorded_at >= 0; }
};

extern std::set<Stream*> streams;
extern std::set<std::shared_ptr<Capture>> captures;  // those that have not ended

bool is_default(cudaStream_t handle);
Stream* stream_of(cudaStream_t handle);  // null for a handle of no stream

// Puts work on a stream. A fault of the device is no error of this call, but of the next.
int enqueue(cudaStream_t handle, Work work);

// Why a call is refused while streams capture, or 0. A refused call invalidates the capture.
int refusal_of_unsafe_call();       // allocations, and whatever else a graph cannot hold
int refusal_of_default_stream();    // it waits for all blocking streams
int refusal_of_synchronous_call();  // both

}  // namespace emulated

#define FIND_STREAM(name, handle)                       \
  emulated::Stream* name = emulated::stream_of(handle); \
  if (!name) return emulated::reported(cudaErrorInvalidResourceHandle)

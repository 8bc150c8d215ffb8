#include "log.h"

#include <vector>

#include "state.h"

namespace emulated {
namespace {

struct Entry {
  int64_t kind, stream, event;
};

bool logging = false;
std::vector<Entry> entries;

}  // namespace

void log(LogKind kind, cudaStream_t stream, const void* event) {
  if (logging) entries.push_back({kind, int64_t(stream), int64_t(event)});
}

}  // namespace emulated

using namespace emulated;

// Starts with an empty log.
API emulated_cuda_start_log() {
  Locked locked(lock);
  entries.clear();
  logging = true;
  return 0;
}

// Stops, and returns how many entries there are.
API emulated_cuda_stop_log() {
  Locked locked(lock);
  logging = false;
  return int(entries.size());
}

// Writes `room` entries, three numbers each.
API emulated_cuda_read_log(int64_t* numbers, int room) {
  Locked locked(lock);
  for (int i = 0; i < room && size_t(i) < entries.size(); i++) {
    *numbers++ = entries[i].kind;
    *numbers++ = entries[i].stream;
    *numbers++ = entries[i].event;
  }
  return 0;
}

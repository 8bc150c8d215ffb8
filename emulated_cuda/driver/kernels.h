// Kernels: functions of shared libraries, which the emulated NVRTC compiles.
#pragma once
#include <map>
#include <memory>
#include <string>

namespace emulated {

struct Dim3 {
  unsigned x, y, z;
};

struct Function {
  void (*thread)(void**);  // runs one thread
  void (*block)(void**);   // runs a whole block, of a kernel without barriers
  const unsigned* sizes;   // how many parameters there are, then the size of each
  bool flushes;            // denormal floats
  bool has_barriers;
  int most_shared;  // bytes of dynamic shared memory that a launch may ask for
};

struct Module {
  void* library;
  bool has_barriers;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

}  // namespace emulated

// Kernels read these: see kernels/threads.h.
extern "C" {
extern emulated::Dim3 emulated_thread, emulated_block, emulated_block_size, emulated_grid_size;
extern char emulated_shared[];
}

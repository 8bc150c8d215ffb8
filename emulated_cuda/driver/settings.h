// What the environment sets, read once when the library is loaded.
#pragma once
#include <cstddef>

namespace emulated {

const size_t PAGE = 4096;
const int WARP = 32, MOST_THREADS = 1024, MOST_DEVICES = 16;
const size_t SHARED_MEMORY = 48 << 10, MOST_SHARED_MEMORY = 227 << 10;  // of a block
const size_t THREAD_STACK = 256 << 10;

struct Settings {
  int devices;
  size_t memory;     // of each device, in bytes
  size_t alignment;  // of each allocation, in bytes
  int capability;    // ten times the compute capability
  bool verbose;
};

const Settings& settings();

}  // namespace emulated

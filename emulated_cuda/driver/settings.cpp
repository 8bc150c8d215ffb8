#include "settings.h"

#include <stdlib.h>

#include <algorithm>

namespace emulated {
namespace {

size_t number(const char* name, size_t otherwise) {
  const char* text = getenv(name);
  return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

const Settings& settings() {
  static const Settings all = {
      std::min(int(number("EMULATED_CUDA_DEVICES", 1)), MOST_DEVICES),
      number("EMULATED_CUDA_MEMORY", size_t(8) << 30),
      std::max<size_t>(number("EMULATED_CUDA_ALIGNMENT", 512), 1),
      int(number("EMULATED_CUDA_CAPABILITY", 90)),
      getenv("EMULATED_CUDA_VERBOSE") != nullptr,
  };
  return all;
}

}  // namespace emulated

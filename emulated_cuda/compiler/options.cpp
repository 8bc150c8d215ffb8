#include "options.h"

#include <unistd.h>

#include "process.h"

namespace emulated {

const std::vector<std::string> FLAGS = {
    "-x", "c++", "-O1", "-fPIC", "-w", "-fvisibility=hidden",
    // What CUDA's compiler accepts, and what kernels may do.
    "-fpermissive", "-fno-strict-aliasing", "-fwrapv", "-fno-exceptions", "-fno-rtti",
    "-fno-threadsafe-statics", "-fno-math-errno",
    // A stack that is used up is met at its guard page, not beyond it.
    "-fstack-clash-protection",
    // A GPU fuses products with sums; with -O1 alone g++ does not.
    "-mavx2", "-mfma", "-mf16c", "-ffp-contract=fast", "-fexpensive-optimizations",
    "-fsanitize=alignment", "-fno-sanitize-recover=all"};

static bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

Options::Options(int count, const char* const* nvrtcs) {
  list.push_back("-I" + home() + "/kernels");
  for (int i = 0; i < count; i++) {
    std::string option = nvrtcs[i];
    if (starts_with(option, "--std=")) option = option.substr(1);
    if (starts_with(option, "--include-path=")) option = "-I" + option.substr(15);
    if (starts_with(option, "--define-macro=")) option = "-D" + option.substr(15);
    for (const char* known : {"-I", "-D", "-U", "-std="})
      if (starts_with(option, known)) list.push_back(option);
    defines_macros |= starts_with(option, "-D");
    for (const char* unfused : {"-fmad=false", "--fmad=false"})
      if (option == unfused) list.push_back("-ffp-contract=off");
    for (const char* flush : {"-ftz=true", "--ftz=true", "-use_fast_math", "--use_fast_math"})
      flushes_denormals |= option == flush;
    if (starts_with(option, "-I"))
      has_cupys_headers |= access((option.substr(2) + "/cupy/carray.cuh").c_str(), R_OK) == 0;
  }
  list.push_back("-I" + home() + "/toolkit/include");
}

std::vector<std::string> Options::without_macros() const {
  std::vector<std::string> rest;
  for (auto& option : list)
    if (!starts_with(option, "-D") && !starts_with(option, "-U")) rest.push_back(option);
  return rest;
}

}  // namespace emulated

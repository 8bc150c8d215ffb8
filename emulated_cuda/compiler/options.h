// NVRTC's options as g++'s.
#pragma once
#include <string>
#include <vector>

namespace emulated {

// g++'s own, for every kernel.
extern const std::vector<std::string> FLAGS;

struct Options {
  std::vector<std::string> list;
  bool has_cupys_headers = false;
  bool defines_macros = false;
  bool flushes_denormals = false;

  Options(int count, const char* const* nvrtcs);

  // Those that the headers' meaning depends on.
  std::vector<std::string> without_macros() const;
};

}  // namespace emulated

// From CUDA C++ to C++.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace emulated {

struct Translation {
  std::string source;
  std::map<std::string, std::string> names;  // of name expressions, as the driver looks them up
};

// `expressions` are names of kernels in C++, such as those of templates.
Translation translated(const std::string& cuda, const std::string& file,
                       const std::vector<std::string>& expressions, bool flushes_denormals);

}  // namespace emulated

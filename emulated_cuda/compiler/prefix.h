#pragma once
#include <string>

#include "options.h"

namespace emulated {

// Returns the path of a precompiled header, with CuPy's own headers if the kernel begins with
// them. Most of the time that a kernel takes to compile is that of the headers.
std::string prefix(const Options& options, bool with_cupys_headers, const std::string& log);

}  // namespace emulated

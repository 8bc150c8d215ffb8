#include "prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "process.h"

namespace emulated {

static const char* const CUPYS_HEADERS =
    "#include <cupy/complex.cuh>\n"
    "#include <cupy/carray.cuh>\n"
    "#include <cupy/atomics.cuh>\n"
    "#include <cupy/math_constants.h>\n";

static std::string name_of(const std::string& key) {
  char name[32];
  snprintf(name, sizeof name, "prefix-%zx.h", std::hash<std::string>()(key));
  return name;
}

std::string prefix(const Options& options, bool with_cupys_headers, const std::string& log) {
  const std::string text = "#include \"" + home() + "/kernels/emulated_cuda.h\"\n" +
                           (with_cupys_headers ? CUPYS_HEADERS : "");
  std::string key = compiler() + '\n' + text;
  for (auto& option : options.without_macros()) key += '\n' + option;
  const std::string folder = home() + "/prefixes", path = folder + "/" + name_of(key);
  if (access((path + ".gch").c_str(), R_OK) == 0) return path;

  // Processes that compile the same prefix at once each write a file of their own.
  const std::string part = path + "." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  write(part, text);
  rename(part.c_str(), path.c_str());
  std::vector<std::string> command = {compiler()};
  command.insert(command.end(), FLAGS.begin(), FLAGS.end());
  command[2] = "c++-header";  // in place of c++
  for (auto& option : options.without_macros()) command.push_back(option);
  command.insert(command.end(), {path, "-o", part});
  if (run(command, log)) rename(part.c_str(), (path + ".gch").c_str());
  return path;
}

}  // namespace emulated

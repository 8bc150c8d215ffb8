// Files and processes.
#pragma once
#include <string>
#include <vector>

namespace emulated {

// The folder of the build, above that of this library.
const std::string& home();

std::string read(const std::string& path);
void write(const std::string& path, const std::string& content);

// Runs a command, with its output in the file `log`; true if it succeeds.
bool run(std::vector<std::string> command, const std::string& log);

// The C++ compiler's name.
std::string compiler();

// A folder that is removed at the end, with all that lies in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace emulated

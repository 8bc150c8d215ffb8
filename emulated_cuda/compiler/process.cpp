#include "process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace emulated {

const std::string& home() {
  static const std::string folder = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(home), &info);
    return std::filesystem::canonical(info.dli_fname).parent_path().parent_path().string();
  }();
  return folder;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string compiler() {
  const char* name = getenv("EMULATED_CUDA_CXX");
  return name && *name ? name : "g++";
}

// The environment without LD_LIBRARY_PATH: it leads to the emulated libraries.
static std::vector<char*> environment_of_compiler() {
  std::vector<char*> entries;
  for (char** entry = environ; *entry; entry++)
    if (strncmp(*entry, "LD_", 3)) entries.push_back(*entry);
  entries.push_back(nullptr);
  return entries;
}

bool run(std::vector<std::string> command, const std::string& log) {
  std::vector<char*> arguments;
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  auto environment = environment_of_compiler();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 2, 1);
  pid_t child;
  const int error =
      posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (error) {
    write(log, "The emulated NVRTC cannot run " + command[0] + ": " + strerror(error));
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

TemporaryFolder::TemporaryFolder() {
  const char* parent = getenv("TMPDIR");
  path_ = std::string(parent && *parent ? parent : "/tmp") + "/emulated-cuda-XXXXXX";
  if (!mkdtemp(path_.data())) path_.clear();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty() && !getenv("EMULATED_CUDA_KEEP")) std::filesystem::remove_all(path_, ignored);
}

}  // namespace emulated

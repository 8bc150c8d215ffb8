// libnvrtc.so.13: compiles CUDA C++ for the host. The image of a program is a shared library.
#include <string.h>

#include "options.h"
#include "prefix.h"
#include "process.h"
#include "translation.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

using namespace emulated;

namespace {

enum Result {
  SUCCESS = 0,
  INVALID_INPUT = 3,
  INVALID_PROGRAM = 4,
  COMPILATION = 6,
  NAME_EXPRESSION_NOT_VALID = 10,
};

struct Program {
  std::string source, file, log, image;
  std::map<std::string, std::string> headers, names;
  std::vector<std::string> expressions;
};

std::vector<std::string> command(const Options& options, const std::string& prefix,
                                 const std::string& folder) {
  std::vector<std::string> words = {compiler()};
  words.insert(words.end(), FLAGS.begin(), FLAGS.end());
  words.insert(words.end(), options.list.begin(), options.list.end());
  words.insert(words.end(), {"-I" + folder, "-include", prefix, folder + "/kernel.cu", "-shared",
                             "-nodefaultlibs", "-nostartfiles", "-Wl,--hash-style=both", "-o",
                             folder + "/kernel.so", "-x", "none", home() + "/lib/libcuda.so.1",
                             "-lm", "-lc", "-lgcc"});
  return words;
}

// What CuPy takes for PTX: it reads the compiler's version from the first lines.
std::string ptx() { return "//\n// emulated CUDA, " + compiler() + "\n//\n"; }

int give_size(const std::string& text, size_t* size) {
  *size = text.size() + 1;
  return SUCCESS;
}

int give(const std::string& text, char* to) {
  memcpy(to, text.c_str(), text.size() + 1);
  return SUCCESS;
}

}  // namespace

API nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return SUCCESS;
}

API nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return SUCCESS;
}

API nvrtcGetSupportedArchs(int* architectures) {
  *architectures = 90;
  return SUCCESS;
}

EXPORT const char* nvrtcGetErrorString(int code) {
  switch (code) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NAME_EXPRESSION_NOT_VALID: return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    default: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

API nvrtcCreateProgram(Program** program, const char* source, const char* name, int count,
                       const char** headers, const char** names) {
  *program = new Program;
  (*program)->source = source;
  (*program)->file = name ? name : "default_program";
  for (int i = 0; i < count; i++) (*program)->headers[names[i]] = headers[i];
  return SUCCESS;
}

API nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return SUCCESS;
}

API nvrtcAddNameExpression(Program* program, const char* expression) {
  program->expressions.push_back(expression);
  return SUCCESS;
}

API nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
  auto entry = program->names.find(expression);
  if (entry == program->names.end()) return NAME_EXPRESSION_NOT_VALID;
  *name = entry->second.c_str();
  return SUCCESS;
}

API nvrtcCompileProgram(Program* program, int count, const char** nvrtcs) {
  if (!program) return INVALID_PROGRAM;
  const TemporaryFolder folder;
  const std::string &at = folder.path(), log = at + "/log";
  if (at.empty()) {
    program->log = "The emulated NVRTC cannot make a temporary folder.";
    return COMPILATION;
  }
  for (auto& [name, content] : program->headers) write(at + "/" + name, content);
  const Options options(count, nvrtcs);
  const Translation translation =
      translated(program->source, program->file, program->expressions, options.flushes_denormals);
  write(at + "/kernel.cu", translation.source);
  // Macros that the caller defines come too late for headers that are compiled already.
  const bool begins_with_cupys_headers = options.has_cupys_headers && !options.defines_macros &&
                                         program->source.find("#include <cupy/complex.cuh>") == 0;
  const std::string header = prefix(options, begins_with_cupys_headers, log);
  const bool succeeded = run(command(options, header, at), log);
  program->names = translation.names;
  program->log = read(log);
  program->image = succeeded ? read(at + "/kernel.so") : "";
  return succeeded ? SUCCESS : COMPILATION;
}

API nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->image.size();
  return SUCCESS;
}

API nvrtcGetCUBIN(Program* program, char* to) {
  memcpy(to, program->image.data(), program->image.size());
  return SUCCESS;
}

API nvrtcGetPTXSize(Program*, size_t* size) { return give_size(ptx(), size); }
API nvrtcGetPTX(Program*, char* to) { return give(ptx(), to); }
API nvrtcGetProgramLogSize(Program* program, size_t* size) { return give_size(program->log, size); }
API nvrtcGetProgramLog(Program* program, char* to) { return give(program->log, to); }
API nvrtcGetLTOIRSize(Program*, size_t*) { return INVALID_INPUT; }
API nvrtcGetLTOIR(Program*, char*) { return INVALID_INPUT; }

#include "translation.h"

#include <regex>

namespace emulated {
namespace {

// The kernels that a file defines, except templates, and their parameters.
std::map<std::string, std::string> kernels(const std::string& source) {
  static const std::regex pattern(
      R"((template\s*<[^{};]*>\s*)?(?:extern\s*"C"\s*)?(?:static\s+|inline\s+)*__global__\s+)"
      R"((?:static\s+|inline\s+)*(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+)"
      R"((?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\()");
  std::map<std::string, std::string> parameters;
  for (std::sregex_iterator match(source.begin(), source.end(), pattern), end; match != end;
       ++match) {
    const bool is_template = (*match)[1].matched;
    if (is_template) continue;
    const size_t start = match->position() + match->length();
    size_t stop = start;
    for (int depth = 1; stop < source.size(); stop++) {
      depth += (source[stop] == '(') - (source[stop] == ')');
      if (depth == 0) break;
    }
    parameters[(*match)[2]] = source.substr(start, stop - start);
  }
  return parameters;
}

// Declares a block's dynamic shared memory, an array without a size, as a pointer.
std::string with_dynamic_shared_memory(const std::string& source) {
  static const std::regex pattern(
      R"(extern\s+(?:__align__\s*\([^)]*\)\s*)?__shared__\s+(?:__align__\s*\([^)]*\)\s*)?)"
      R"(([\w:<> ]+?)\s*(?:__align__\s*\([^)]*\)\s*)?(\w+)\s*\[\s*\]\s*;)");
  return std::regex_replace(source, pattern,
                            "$1* const $2 = reinterpret_cast<$1*>(emulated_shared);");
}

// By its type, since there may be other functions of its name.
std::string entry(const std::string& name, const std::string& parameters) {
  const std::string pointer = "emulated_kernel_" + name;
  return "static constexpr void (*" + pointer + ")(" + parameters + ") = " + name +
         ";\nEMULATED_KERNEL(" + name + ", " + pointer + ")\n";
}

}  // namespace

Translation translated(const std::string& cuda, const std::string& file,
                       const std::vector<std::string>& expressions, bool flushes_denormals) {
  Translation result;
  result.source = "#line 1 \"" + file + "\"\n" + with_dynamic_shared_memory(cuda) + "\n";
  for (auto& [name, parameters] : kernels(cuda)) result.source += entry(name, parameters);
  for (size_t i = 0; i < expressions.size(); i++) {
    const std::string name = "expression_" + std::to_string(i);
    result.source += "EMULATED_KERNEL(" + name + ", " + expressions[i] + ")\n";
    result.names[expressions[i]] = name;
  }
  // The processor would flush double's denormals too, which a GPU never does.
  if (flushes_denormals && cuda.find("double") == std::string::npos)
    result.source += "EMULATED_EXPORT const char emulated_flush = 1;\n";
  return result;
}

}  // namespace emulated

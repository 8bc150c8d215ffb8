// Descriptors: attributes as they were set, and what they mean once a descriptor is final.
#pragma once
#include <cstring>
#include <type_traits>

#include "graph.h"

namespace emulated::cudnn {

constexpr int64_t WORKSPACE_SIZE = 1024;

struct Descriptor {
  int kind = 0;
  bool is_final = false;
  std::map<int, std::vector<char>> attributes;
  // By kind: of a tensor; of an operation; of a graph, and of the engines and plans for it.
  Tensor tensor;
  Operation operation;
  std::shared_ptr<const Graph> graph;
  int64_t engine = 0;

  bool has(int name) const { return attributes.count(name) > 0; }

  template <class T>
  std::vector<T> all(int name) const {
    require(has(name), BAD_PARAM, "an attribute is missing");
    const std::vector<char>& bytes = attributes.at(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

  template <class T>
  T one(int name) const {
    const std::vector<T> values = all<T>(name);
    require(values.size() == 1, BAD_PARAM, "an attribute has not one element");
    return values[0];
  }

  template <class T>
  T one_or(int name, T otherwise) const {
    return has(name) ? one<T>(name) : otherwise;
  }

  // Another descriptor, which must be final.
  const Descriptor& part(int name) const {
    const auto* other = one<Descriptor*>(name);
    require(other != nullptr, BAD_NULL_POINTER, "a descriptor is null");
    require(other->is_final, BAD_NOT_FINALIZED, "a descriptor is not final");
    return *other;
  }
};

// The bytes of an attribute's elements.
inline size_t width_of(int type) {
  switch (type) {
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_POINTER:
    case TYPE_DESCRIPTOR: return 8;
    case TYPE_FRACTION: return 16;
    case TYPE_BOOLEAN:
    case TYPE_CHAR: return 1;
    default: return 4;
  }
}

// Whether there is an engine, the first one, that rounds factors to TF32.
inline bool has_tf32(const Graph& graph) {
  for (const Operation& operation : graph.operations)
    for (const Tensor& tensor : operation.inputs)
      if (multiplies(operation) && tensor.type == FLOAT) return true;
  return false;
}

// How many engines there are for a graph. Where factors are multiplied, the last two are the same.
inline int64_t engine_count(const Graph& graph) {
  for (const Operation& operation : graph.operations)
    if (multiplies(operation)) return has_tf32(graph) ? 3 : 2;
  return 1;
}

void finish(Descriptor& descriptor);

}  // namespace emulated::cudnn

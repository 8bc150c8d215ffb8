// oneDNN's objects with owners, and a primitive as a function of plain pointers.
#pragma once

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "dnnl.h"

namespace sardonyx {

using Dims = std::vector<int64_t>;

inline void check(int status, const char* what) {
  if (status != dnnl::kSuccess) {
    throw std::runtime_error(std::string("oneDNN has no ") + what + " of this kind, status " +
                             std::to_string(status));
  }
}

inline dnnl_engine_t engine() {
  static dnnl_engine_t one = [] {
    dnnl_engine_t made;
    check(dnnl_engine_create(&made, dnnl::kCpu, 0), "engine");
    return made;
  }();
  return one;
}

inline dnnl_stream_t stream() {
  thread_local dnnl_stream_t one = [] {
    dnnl_stream_t made;
    check(dnnl_stream_create(&made, engine(), dnnl::kInOrder), "stream");
    return made;
  }();
  return one;
}

// The threads are XLA's: in each of them oneDNN is to start none of its own.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

inline Memory allocated(size_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(64, aligned(bytes + 1))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

// Memory of this thread that lasts until its next use.
inline std::byte* scratch(size_t bytes) {
  thread_local Memory memory;
  thread_local size_t held = 0;
  if (bytes > held) {
    memory = allocated(bytes);
    held = bytes;
  }
  return memory.get();
}

using Desc = std::shared_ptr<dnnl_memory_desc>;

inline Desc owned(dnnl_memory_desc_t desc) { return Desc(desc, dnnl_memory_desc_destroy); }

inline Desc strided(int data_type, const Dims& dims, const Dims& strides) {
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_create_with_strides(&desc, dims.size(), dims.data(), data_type,
                                             strides.data()),
        "array");
  return owned(desc);
}

inline Desc dense(int data_type, const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t axis = dims.size(); --axis > 0;) strides[axis - 1] = strides[axis] * dims[axis];
  return strided(data_type, dims, strides);
}

// Its axes lie densely, the second of them innermost.
inline Desc channels_last(int data_type, const Dims& dims) {
  Dims strides(dims.size(), 1);
  int64_t step = dims[1];
  for (size_t axis = dims.size(); --axis > 1;) {
    strides[axis] = step;
    step *= dims[axis];
  }
  strides[0] = step;
  return strided(data_type, dims, strides);
}

inline Desc in_any_form(int data_type, const Dims& dims) {
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_create_with_tag(&desc, dims.size(), dims.data(), data_type, dnnl::kAny),
        "array");
  return owned(desc);
}

inline size_t bytes_of(const Desc& desc) { return desc ? dnnl_memory_desc_get_size(desc.get()) : 0; }

// What is done to a primitive's result before it is stored.
class Attributes {
 public:
  Attributes() {
    check(dnnl_primitive_attr_create(&attributes_), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes_, dnnl::kOfTheUser), "scratchpad");
    check(dnnl_post_ops_create(&after_), "post-operation");
  }
  ~Attributes() {
    dnnl_post_ops_destroy(after_);
    dnnl_primitive_attr_destroy(attributes_);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  void then(int algorithm, float alpha, float beta) {
    check(dnnl_post_ops_append_eltwise(after_, algorithm, alpha, beta), "activation");
  }
  void then_add(const Desc& desc) {
    check(dnnl_post_ops_append_binary(after_, dnnl::kAdd, desc.get()), "addition");
  }
  dnnl_primitive_attr_t get() {
    check(dnnl_primitive_attr_set_post_ops(attributes_, after_), "post-operation");
    return attributes_;
  }

 private:
  dnnl_primitive_attr_t attributes_;
  dnnl_post_ops_t after_;
};

struct Argument {
  int name;
  const Desc& desc;
  const void* data;
};

// It is described at once, and its code generated when it first runs: by the thread that runs it,
// and not at all for one that is only asked what it wants.
class Primitive {
 public:
  explicit Primitive(dnnl_primitive_desc_t made) : made_(made, dnnl_primitive_desc_destroy) {
    scratchpad_ = desc(dnnl::kScratchpadDesc);
  }

  Desc desc(int which) const {
    dnnl_memory_desc_t copy;
    check(dnnl_memory_desc_clone(&copy, dnnl_primitive_desc_query_md(made_.get(), which, 0)),
          "description");
    return owned(copy);
  }

  std::string implementation() const {
    const char* name = "";
    dnnl_primitive_desc_query(made_.get(), dnnl::kImplementation, 0, &name);
    return name;
  }

  // Bytes that are needed for the time of a run.
  size_t scratch_bytes() const { return bytes_of(scratchpad_); }

  void operator()(std::byte* scratchpad, std::initializer_list<Argument> arguments) const {
    std::vector<std::unique_ptr<dnnl_memory, int (*)(dnnl_memory_t)>> memories;
    std::vector<dnnl_exec_arg_t> passed;
    auto pass = [&](int name, const Desc& desc, const void* data) {
      dnnl_memory_t memory;
      check(dnnl_memory_create(&memory, desc.get(), engine(), const_cast<void*>(data)), "memory");
      memories.emplace_back(memory, dnnl_memory_destroy);
      passed.push_back({name, memory});
    };
    for (const Argument& argument : arguments) {
      if (argument.data) pass(argument.name, argument.desc, argument.data);
    }
    if (scratch_bytes()) pass(dnnl::kScratchpad, scratchpad_, scratchpad);
    check(dnnl_primitive_execute(primitive(), stream(), passed.size(), passed.data()), "run");
  }

 private:
  struct Code {
    std::once_flag once;
    std::shared_ptr<dnnl_primitive> primitive;
  };

  dnnl_primitive_t primitive() const {
    std::call_once(code_->once, [this] {
      dnnl_primitive_t primitive;
      check(dnnl_primitive_create(&primitive, made_.get()), "primitive");
      code_->primitive = {primitive, dnnl_primitive_destroy};
    });
    return code_->primitive.get();
  }

  std::shared_ptr<dnnl_primitive_desc> made_;
  std::shared_ptr<Code> code_ = std::make_shared<Code>();
  Desc scratchpad_;
};

inline Primitive reordering(const Desc& from, const Desc& to) {
  Attributes attributes;
  dnnl_primitive_desc_t made;
  check(dnnl_reorder_primitive_desc_create(&made, from.get(), engine(), to.get(), engine(),
                                           attributes.get()),
        "reordering");
  return Primitive(made);
}

}  // namespace sardonyx

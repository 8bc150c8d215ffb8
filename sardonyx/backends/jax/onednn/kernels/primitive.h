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

// oneDNN's own cache of primitives is off: once it has thrown some out, it returns code that belongs
// to other convolutions (3.2 does). Whoever needs a primitive again keeps it.
inline dnnl_engine_t engine() {
  static dnnl_engine_t one = [] {
    check(dnnl_set_primitive_cache_capacity(0), "cache");
    dnnl_engine_t made;
    check(dnnl_engine_create(&made, dnnl::kCpu, 0), "engine");
    return made;
  }();
  return one;
}

// Whether oneDNN computes with the longest registers, or has been told not to.
inline bool has_avx512() {
  static const bool has = dnnl_get_effective_cpu_isa() & dnnl::kAvx512;
  return has;
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

enum class For { kPrimitive, kBand, kScores, kTiles };

// Memory of this thread that lasts until its next use for the same.
template <For purpose = For::kPrimitive>
std::byte* scratch(size_t bytes) {
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

// The same array with its two axes exchanged.
inline Desc turned(const Desc& desc) {
  constexpr int kExchanged[] = {1, 0};
  dnnl_memory_desc_t other;
  check(dnnl_memory_desc_permute_axes(&other, desc.get(), kExchanged), "array");
  return owned(other);
}

inline size_t bytes_of(const Desc& desc) { return desc ? dnnl_memory_desc_get_size(desc.get()) : 0; }

// What a description of an array says about it.
template <class T>
T asked(const Desc& desc, int what) {
  T answer;
  check(dnnl_memory_desc_query(desc.get(), what, &answer), "answer about an array");
  return answer;
}

inline Dims asked(const Desc& desc, int what, int count) {
  const auto* many = asked<const dnnl_dims_t*>(desc, what);
  return Dims(*many, *many + count);
}

// Steps in memory along the axes, or from one block to the next; the sizes of the blocks, from the
// outermost to the innermost, and which axes they divide. Only oneDNN knows those of some arrays.
struct Strides {
  Dims steps, blocks, axes;

  explicit Strides(const Desc& desc) {
    if (asked<int>(desc, dnnl::kFormatKind) != dnnl::kBlocked) {
      throw std::runtime_error("the array has a form of oneDNN's own");
    }
    const int count = asked<int>(desc, dnnl::kInnerBlocks);
    steps = asked(desc, dnnl::kStrides, asked<int>(desc, dnnl::kRank));
    blocks = asked(desc, dnnl::kInnerBlockSizes, count);
    axes = asked(desc, dnnl::kInnerBlockAxes, count);
  }
  bool operator==(const Strides&) const = default;

  int64_t block_of(int64_t axis) const {
    int64_t size = 1;
    for (size_t i = 0; i < blocks.size(); ++i) size *= axes[i] == axis ? blocks[i] : 1;
    return size;
  }
};

// Appends numbers that say where each element of an array lies; throws if only oneDNN knows.
inline void describe(const Desc& desc, Dims& numbers) {
  const Strides strides(desc);
  const int rank = strides.steps.size();
  auto append = [&](const Dims& more) {
    numbers.insert(numbers.end(), more.begin(), more.end());
  };
  append({asked<int>(desc, dnnl::kDataType), rank, static_cast<int64_t>(strides.blocks.size()),
          asked<int64_t>(desc, dnnl::kOffset)});
  for (int what : {dnnl::kDims, dnnl::kPaddedDims, dnnl::kPaddedOffsets}) {
    append(asked(desc, what, rank));
  }
  for (const Dims& each : {strides.steps, strides.blocks, strides.axes}) append(each);
}

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

inline std::string implementation_of(dnnl_primitive_desc_t made) {
  const char* name = "";
  dnnl_primitive_desc_query(made, dnnl::kImplementation, 0, &name);
  return name;
}

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

  std::string implementation() const { return implementation_of(made_.get()); }

  // Whether oneDNN has nothing better than its reference.
  bool is_slow() const { return implementation().starts_with("ref"); }

  // Bytes that are needed for the time of a run.
  size_t scratch_bytes() const { return bytes_of(scratchpad_); }

  // Generates its code ahead of its first run.
  void generate() const { primitive(); }

  void operator()(std::byte* scratchpad, std::initializer_list<Argument> arguments) const {
    std::unique_ptr<Bound> bound = taken();
    size_t used = 0;
    auto pass = [&](int name, const Desc& desc, const void* data) {
      bound->set(used++, name, desc, const_cast<void*>(data));
    };
    for (const Argument& argument : arguments) {
      if (argument.data) pass(argument.name, argument.desc, argument.data);
    }
    if (scratch_bytes()) pass(dnnl::kScratchpad, scratchpad_, scratchpad);
    check(dnnl_primitive_execute(primitive(), stream(), used, bound->passed.data()), "run");
    std::lock_guard<std::mutex> lock(code_->binding);
    code_->bound.push_back(std::move(bound));
  }

 private:
  // The arguments of a run, whose objects the next run uses again: to create them takes as long as
  // a small product. Each run of a primitive passes the same ones.
  struct Bound {
    std::vector<dnnl_exec_arg_t> passed;

    Bound() = default;
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;
    ~Bound() {
      for (const dnnl_exec_arg_t& each : passed) dnnl_memory_destroy(each.memory);
    }

    void set(size_t i, int name, const Desc& desc, void* data) {
      if (i < passed.size()) {
        check(dnnl_memory_set_data_handle(passed[i].memory, data), "memory");
        return;
      }
      dnnl_memory_t memory;
      check(dnnl_memory_create(&memory, desc.get(), engine(), data), "memory");
      passed.push_back({name, memory});
    }
  };

  struct Code {
    std::once_flag once;
    std::shared_ptr<dnnl_primitive> primitive;
    std::mutex binding;
    std::vector<std::unique_ptr<Bound>> bound;
  };

  std::unique_ptr<Bound> taken() const {
    std::lock_guard<std::mutex> lock(code_->binding);
    if (code_->bound.empty()) return std::make_unique<Bound>();
    std::unique_ptr<Bound> bound = std::move(code_->bound.back());
    code_->bound.pop_back();
    return bound;
  }

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

// Applies a function to `count` numbers, in place.
inline Primitive elementwise(int algorithm, float alpha, float beta, int data_type, int64_t count) {
  const Desc numbers = dense(data_type, {count});
  Attributes attributes;
  dnnl_primitive_desc_t made;
  check(dnnl_eltwise_forward_primitive_desc_create(&made, engine(), dnnl::kInference, algorithm,
                                                   numbers.get(), numbers.get(), alpha, beta,
                                                   attributes.get()),
        "activation");
  return Primitive(made);
}

}  // namespace sardonyx

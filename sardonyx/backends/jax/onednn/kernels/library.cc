// The kernels as XLA calls them, and as Python does.

#include "attention.h"
#include "chain.h"
#include "convolution.h"
#include "matrix.h"
#include "rows.h"
#include "stack.h"
#include "suppression.h"
#include "windows.h"
#include "workers.h"

namespace sardonyx {

Product::Product(Spec spec) : Product(spec, Reader(spec)) {}

inline Product::Product(Spec numbers, Reader spec)
    : threads_(spec.next()),
      data_type_(spec.next()),
      item_(item_bytes(data_type_)),
      epilogue_(spec) {
  OneThread one_thread;
  const bool is_convolution = spec.next();
  if (is_convolution) {
    plan_convolution(numbers, spec);
  } else {
    plan_matrix(spec);
  }
  check_primitives();
}

// What the arguments are is up to the specification, in this order.
class Inputs {
 public:
  explicit Inputs(ffi::RemainingArgs arguments) : arguments_(arguments) {}

  const std::byte* next(bool is_there = true) {
    if (!is_there) return nullptr;
    auto buffer = arguments_.get<ffi::AnyBuffer>(used_++);
    return static_cast<const std::byte*>(buffer.value().untyped_data());
  }

 private:
  ffi::RemainingArgs arguments_;
  size_t used_ = 0;
};

template <class Work>
ffi::Error guarded(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
  return ffi::Error::Success();
}

// What the work returns, or -1 where it fails: Python's caller knows no exceptions of C++.
template <class Work>
int64_t outcome(Work work) {
  try {
    return work();
  } catch (const std::exception&) {
    return -1;
  }
}

using Output = ffi::Result<ffi::AnyBuffer>;

ffi::Error pack(ffi::ThreadPool, ffi::RemainingArgs arguments, Output packed, Spec spec) {
  return guarded([&] {
    auto* weights = Inputs(arguments).next();
    planned<Product>(spec)->pack(weights, static_cast<std::byte*>(packed->untyped_data()));
  });
}

ffi::Error run(ffi::ThreadPool pool, ffi::RemainingArgs arguments, Output y, Spec spec) {
  return guarded([&] {
    auto plan = planned<Product>(spec);
    Inputs inputs(arguments);
    auto* x = inputs.next();
    auto* packed = inputs.next();
    auto* bias = inputs.next(plan->epilogue().has_bias);
    auto* addend = inputs.next(plan->epilogue().addend != Addend::kNone);
    plan->run(pool, {x, packed, bias, addend, static_cast<std::byte*>(y->untyped_data())});
  });
}

ffi::Error chain(ffi::ThreadPool pool, ffi::RemainingArgs arguments, Output y, Spec spec) {
  return guarded([&] {
    Inputs inputs(arguments);
    auto next = [&](bool is_there) { return inputs.next(is_there); };
    planned<Chain>(spec)->run(pool, next, static_cast<std::byte*>(y->untyped_data()));
  });
}

}  // namespace sardonyx

#define SARDONYX_HANDLER(name)                                          \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(sardonyx_onednn_##name, sardonyx::name, \
                                xla::ffi::Ffi::Bind()                   \
                                    .Ctx<xla::ffi::ThreadPool>()        \
                                    .RemainingArgs()                    \
                                    .Ret<xla::ffi::AnyBuffer>()         \
                                    .Attr<sardonyx::Spec>("spec"))

SARDONYX_HANDLER(pack);
SARDONYX_HANDLER(run);
SARDONYX_HANDLER(chain);

extern "C" {

int64_t sardonyx_onednn_series() { return dnnl_version()->major; }

void sardonyx_onednn_release() { sardonyx::Space::release(); }

// How many bytes the packed weights take, or -1 if oneDNN has no fast kernel. Writes numbers that
// are equal for products which read the same packed weights, if there is room for `form_count` of
// them, and how many there are: -1 if only oneDNN knows the form.
int64_t sardonyx_onednn_plan(const int64_t* numbers, int64_t count, int64_t* form,
                             int64_t* form_count) {
  return sardonyx::outcome([&]() -> int64_t {
    auto plan = sardonyx::planned<sardonyx::Product>(sardonyx::Spec(numbers, count));
    const auto known = plan->form();
    const int64_t room = std::exchange(*form_count, known ? known->size() : -1);
    if (*form_count <= room && known) std::copy(known->begin(), known->end(), form);
    return plan->packed_bytes();
  });
}

// For a plan that there is, into so many bytes; 0 where all went well.
int64_t sardonyx_onednn_pack_now(const int64_t* numbers, int64_t count, const std::byte* weights,
                                 std::byte* packed, int64_t bytes) {
  return sardonyx::outcome([&]() -> int64_t {
    auto plan = sardonyx::planned<sardonyx::Product>(sardonyx::Spec(numbers, count));
    if (plan->packed_bytes() != static_cast<size_t>(bytes)) return -1;
    plan->pack(weights, packed);
    return 0;
  });
}

// The same as in XLA's programs; the bias and the addend may be null. 0 where all went well.
int64_t sardonyx_onednn_run_now(const int64_t* numbers, int64_t count, const std::byte* x,
                                const std::byte* packed, const std::byte* bias,
                                const std::byte* addend, std::byte* y) {
  return sardonyx::outcome([&]() -> int64_t {
    auto plan = sardonyx::planned<sardonyx::Product>(sardonyx::Spec(numbers, count));
    plan->run(sardonyx::Workers::all(), {x, packed, bias, addend, y});
    return 0;
  });
}

// Of float32. 0 where all went well.
int64_t sardonyx_onednn_multiply_now(const int64_t* numbers, int64_t count, const float* a,
                                     const float* b, float* y) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Stack stack{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    stack.run(sardonyx::Workers::all(), a, b, y);
    return 0;
  });
}

// Of float32; the mask may be null. 0 where all went well.
int64_t sardonyx_onednn_attend_now(const int64_t* numbers, int64_t count, const float* queries,
                                   const float* keys, const float* values, const float* mask,
                                   float* y) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Attention attention{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    attention.run(sardonyx::Workers::all(), {queries, keys, values, mask, y});
    return 0;
  });
}

// Whether the processor can run the kernels of rows, windows and boxes.
int64_t sardonyx_onednn_has_lanes() { return sardonyx::has_wide_registers(); }

// Of float32; rows.h says which arrays may be null. 0 where all went well.
int64_t sardonyx_onednn_rows_now(const int64_t* numbers, int64_t count, const float* x,
                                 const float* scale, const float* bias, float* y, float* means,
                                 float* inverse_deviations) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Rows rows{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    rows.run(sardonyx::Workers::all(), {x, scale, bias, y, means, inverse_deviations});
    return 0;
  });
}

// 0 where all went well.
int64_t sardonyx_onednn_windows_now(const int64_t* numbers, int64_t count, const float* x,
                                    float* y) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Windows windows{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    windows.run(sardonyx::Workers::all(), x, y);
    return 0;
  });
}

// How many boxes are selected; -1 where something went wrong.
int64_t sardonyx_onednn_suppress_now(const int64_t* numbers, int64_t count, const float* boxes,
                                     const float* scores, int64_t* found) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Suppression suppression{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    return suppression.run(sardonyx::Workers::all(), boxes, scores, found);
  });
}

// The arguments as in XLA's programs, in the same order. 0 where all went well.
int64_t sardonyx_onednn_chain_now(const int64_t* numbers, int64_t count,
                                  const std::byte* const* arguments, std::byte* y) {
  return sardonyx::outcome([&]() -> int64_t {
    auto next = [&](bool is_there) { return is_there ? *arguments++ : nullptr; };
    sardonyx::planned<sardonyx::Chain>(sardonyx::Spec(numbers, count))
        ->run(sardonyx::Workers::all(), next, y);
    return 0;
  });
}
}

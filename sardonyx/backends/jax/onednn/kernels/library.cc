// The kernels as XLA calls them, and as Python does.

#include "convolution.h"
#include "generation.h"
#include "matrix.h"
#include "sequence.h"
#include "suppression.h"
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

using Output = ffi::Result<ffi::AnyBuffer>;

std::byte* address(const ffi::AnyBuffer& buffer) {
  return static_cast<std::byte*>(buffer.untyped_data());
}

// What the arguments are is up to the specification.
std::vector<std::byte*> addresses(ffi::RemainingArgs arguments) {
  std::vector<std::byte*> found;
  for (size_t i = 0; i < arguments.size(); ++i) {
    found.push_back(address(arguments.get<ffi::AnyBuffer>(i).value()));
  }
  return found;
}

template <class Pool>
void compute(Pool& pool, const Kernel& kernel, Arrays arrays) {
  const Space space(kernel.space_bytes());
  perform(pool, kernel.work(arrays, space.get()));
}

template <class Function>
ffi::Error guarded(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
  return ffi::Error::Success();
}

// What it returns, or -1 where it fails: Python's caller knows no exceptions of C++.
template <class Function>
int64_t outcome(Function function) {
  try {
    return function();
  } catch (const std::exception&) {
    return -1;
  }
}

ffi::Error pack(ffi::ThreadPool, ffi::RemainingArgs arguments, Output packed, Spec spec) {
  return guarded([&] { planned<Product>(spec)->pack(addresses(arguments)[0], address(*packed)); });
}

ffi::Error run(ffi::ThreadPool pool, ffi::RemainingArgs arguments, Output y, Spec spec) {
  return guarded([&] {
    auto plan = planned<Product>(spec);
    // The bias and the addend are passed if there are any.
    std::vector<std::byte*> arrays = addresses(arguments);
    if (!plan->epilogue().has_bias) arrays.insert(arrays.begin() + 2, nullptr);
    if (plan->epilogue().addend == Addend::kNone) arrays.push_back(nullptr);
    arrays.push_back(address(*y));
    compute(pool, *plan, arrays.data());
  });
}

ffi::Error chain(ffi::ThreadPool pool, ffi::RemainingArgs arguments, Output y, Spec spec) {
  return guarded([&] {
    std::vector<std::byte*> arrays = addresses(arguments);
    arrays.push_back(address(*y));
    compute(pool, *planned<Chain>(spec), arrays.data());
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

// Lets other threads generate the code of kernels until `sardonyx_onednn_generated` is called with
// what it returns. Of each kernel comes the kind, then its specification with the length ahead.
sardonyx::Generation* sardonyx_onednn_generate(const int64_t* numbers, int64_t count) {
  try {
    sardonyx::Reader at(sardonyx::Spec(numbers, count));
    std::vector<std::shared_ptr<const sardonyx::Kernel>> kernels;
    while (at.at() < numbers + count) {
      const auto kind = static_cast<sardonyx::Kind>(at.next());
      kernels.push_back(sardonyx::kernel_of(kind, at.next_spec()));
    }
    return new sardonyx::Generation(std::move(kernels));
  } catch (const std::exception&) {
    return nullptr;  // Where the kernels run, they say what is wrong.
  }
}

void sardonyx_onednn_generated(sardonyx::Generation* generation) {
  sardonyx::outcome([=]() -> int64_t {
    const std::unique_ptr<sardonyx::Generation> owned(generation);
    if (owned) owned->finish();
    return 0;
  });
}

// What a kernel of this kind does with arrays in its order. 0 where all went well.
int64_t sardonyx_onednn_compute_now(int64_t kind, const int64_t* numbers, int64_t count,
                                    std::byte* const* arrays) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Spec spec(numbers, count);
    auto kernel = sardonyx::kernel_of(static_cast<sardonyx::Kind>(kind), spec);
    sardonyx::compute(sardonyx::Workers::all(), *kernel, arrays);
    return 0;
  });
}

// Whether the processor can run the kernels of rows, windows and boxes.
int64_t sardonyx_onednn_has_lanes() { return sardonyx::has_wide_registers(); }

// How many boxes are selected; -1 where something went wrong.
int64_t sardonyx_onednn_suppress_now(const int64_t* numbers, int64_t count, const float* boxes,
                                     const float* scores, int64_t* found) {
  return sardonyx::outcome([&]() -> int64_t {
    const sardonyx::Suppression suppression{sardonyx::Reader(sardonyx::Spec(numbers, count))};
    return suppression.run(sardonyx::Workers::all(), boxes, scores, found);
  });
}
}

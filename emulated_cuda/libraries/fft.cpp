// libcufft.so.12: transforms of any length and rank, computed in doubles. As in cuFFT, a plan has
// tables on the device and a work area, which whatever runs it needs.
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <vector>

#include "../driver/enqueue.h"

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;
using Shape = std::vector<int>;

enum Result {
  SUCCESS = 0,
  INVALID_PLAN = 1,
  ALLOC_FAILED = 2,
  INVALID_VALUE = 4,
  EXEC_FAILED = 6,
  NO_WORKSPACE = 13
};
enum Type { R2C = 0x2a, C2R = 0x2c, D2Z = 0x6a, Z2D = 0x6c };  // those with a half of a spectrum
enum Sign { FORWARD = -1, BACKWARD = 1 };

int product(const Shape& shape) {
  int size = 1;
  for (int n : shape) size *= n;
  return size;
}

// One side of a plan: where its numbers lie. A real transform's spectrum has half of the last axis.
struct Layout {
  Shape embedding;
  long long stride = 1, distance = 0;

  size_t position(const Shape& index) const {
    size_t at = 0;
    for (size_t axis = 0; axis < index.size(); axis++)
      at = at * (axis ? embedding[axis] : 1) + index[axis];
    return at * stride;
  }
};

struct Plan {
  Shape shape;
  Layout in, out;
  int batch = 1;
  cudaStream_t stream = nullptr;
  char* tables = nullptr;  // on the device, as long as the plan lives
  char* work_area = nullptr;
  size_t work_size = 0;

  Shape halved() const {
    Shape half = shape;
    half.back() = half.back() / 2 + 1;
    return half;
  }
};

std::map<int, Plan> plans;
int next_plan = 1;  // CuPy takes 0 for no plan

// In place, not scaled. It divides by the smallest factor of the length: n squared for a prime.
void transform(Complex128* x, int n, int sign) {
  if (n < 2) return;
  int factor = 2;
  while (n % factor) factor++;
  const int rest = n / factor;
  std::vector<Complex128> parts(n), roots(n);
  for (int i = 0; i < n; i++) roots[i] = std::polar(1.0, sign * 2 * M_PI * i / n);
  for (int f = 0; f < factor; f++) {
    for (int i = 0; i < rest; i++) parts[f * rest + i] = x[i * factor + f];
    transform(&parts[f * rest], rest, sign);
  }
  for (int k = 0; k < n; k++) {
    Complex128 sum = 0;
    for (int f = 0; f < factor; f++) sum += parts[f * rest + k % rest] * roots[size_t(f) * k % n];
    x[k] = sum;
  }
}

// Calls `visit` with each index of a shape, the last axis first.
template <class Visit>
void each_index(const Shape& shape, Visit visit) {
  Shape index(shape.size(), 0);
  for (;;) {
    visit(index);
    int axis = int(shape.size()) - 1;
    while (axis >= 0 && ++index[axis] == shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

void transform_axes(std::vector<Complex128>& x, const Shape& shape, int sign) {
  size_t step = 1;
  for (int axis = int(shape.size()) - 1; axis >= 0; axis--) {
    const int n = shape[axis];
    std::vector<Complex128> line(n);
    for (size_t start = 0; start < x.size(); start++) {
      if (start / step % n) continue;
      for (int i = 0; i < n; i++) line[i] = x[start + i * step];
      transform(line.data(), n, sign);
      for (int i = 0; i < n; i++) x[start + i * step] = line[i];
    }
    step *= n;
  }
}

// All numbers of an input. Those beyond a half of a spectrum are conjugates of those in it.
template <class In>
std::vector<Complex128> gathered(const In* in, const Plan& plan, bool from_half) {
  std::vector<Complex128> all;
  all.reserve(product(plan.shape));
  const int half = plan.shape.back() / 2 + 1;
  each_index(plan.shape, [&](Shape index) {
    const bool is_mirrored = from_half && index.back() >= half;
    if (is_mirrored)
      for (size_t axis = 0; axis < index.size(); axis++)
        index[axis] = (plan.shape[axis] - index[axis]) % plan.shape[axis];
    const Complex128 value(in[plan.in.position(index)]);
    all.push_back(is_mirrored ? std::conj(value) : value);
  });
  return all;
}

template <class Out>
void scatter(const std::vector<Complex128>& all, Out* out, const Plan& plan, bool to_half) {
  const Layout dense = {plan.shape, 1, 0};
  each_index(to_half ? plan.halved() : plan.shape, [&](const Shape& index) {
    const Complex128 value = all[dense.position(index)];
    if constexpr (std::is_floating_point_v<Out>)
      out[plan.out.position(index)] = Out(value.real());
    else
      out[plan.out.position(index)] = Out(value);
  });
}

template <class In, class Out>
int execute(int handle, const In* in, Out* out, int sign) {
  auto entry = plans.find(handle);
  if (entry == plans.end()) return INVALID_PLAN;
  Plan plan = entry->second;
  const bool from_half = std::is_floating_point_v<Out>, to_half = std::is_floating_point_v<In>;
  if (plan.in.embedding.empty()) plan.in.embedding = from_half ? plan.halved() : plan.shape;
  if (plan.out.embedding.empty()) plan.out.embedding = to_half ? plan.halved() : plan.shape;
  if (plan.work_size && !plan.work_area) return NO_WORKSPACE;
  const int code = emulated::call_library(plan.stream, [=] {
    // Both are faults if the memory is gone by then.
    if (*static_cast<volatile char*>(plan.tables)) return;
    std::memset(plan.work_area, 0xff, plan.work_size);
    std::vector<std::vector<Complex128>> all;  // of the whole batch, since `out` may be `in`
    for (int b = 0; b < plan.batch; b++)
      all.push_back(gathered(in + b * plan.in.distance, plan, from_half));
    for (int b = 0; b < plan.batch; b++) {
      transform_axes(all[b], plan.shape, sign);
      scatter(all[b], out + b * plan.out.distance, plan, to_half);
    }
  });
  return code ? EXEC_FAILED : SUCCESS;
}

// Without an embedding the numbers lie densely.
Layout layout(const int* embedding, int rank, int stride, int distance, int dense_distance) {
  if (!embedding) return {{}, 1, dense_distance};
  return {Shape(embedding, embedding + rank), stride, distance};
}

}  // namespace

API cufftCreate(int* plan) {
  plans[*plan = next_plan++] = {};
  return SUCCESS;
}

API cufftDestroy(int plan) {
  auto entry = plans.find(plan);
  if (entry == plans.end()) return INVALID_PLAN;
  cudaFree(entry->second.tables);
  plans.erase(entry);
  return SUCCESS;
}

// As by CuPy, which gives each plan its work area.
API cufftSetAutoAllocation(int, int) { return SUCCESS; }

API cufftSetWorkArea(int plan, void* memory) {
  plans[plan].work_area = static_cast<char*>(memory);
  return SUCCESS;
}

API cufftSetStream(int plan, cudaStream_t stream) {
  plans[plan].stream = stream;
  return SUCCESS;
}

API cufftGetVersion(int* version) {
  *version = 12000;
  return SUCCESS;
}

API cufftMakePlanMany(int handle, int rank, int* n, int* in_embedding, int in_stride,
                      int in_distance, int* out_embedding, int out_stride, int out_distance,
                      int type, int batch, size_t* work_size) {
  if (rank < 1 || rank > 3 || batch < 1) return INVALID_VALUE;
  for (int axis = 0; axis < rank; axis++)
    if (n[axis] < 1) return INVALID_VALUE;
  Plan& plan = plans[handle];
  plan.shape.assign(n, n + rank);
  plan.batch = batch;
  const int whole = product(plan.shape), half = product(plan.halved());
  const bool from_half = type == C2R || type == Z2D, to_half = type == R2C || type == D2Z;
  plan.in = layout(in_embedding, rank, in_stride, in_distance, from_half ? half : whole);
  plan.out = layout(out_embedding, rank, out_stride, out_distance, to_half ? half : whole);
  if (!plan.tables) {
    if (cudaMalloc(reinterpret_cast<void**>(&plan.tables), 1)) return ALLOC_FAILED;
    cudaMemset(plan.tables, 0, 1);
  }
  *work_size = plan.work_size = sizeof(Complex64) * whole * batch;
  return SUCCESS;
}

API cufftMakePlan1d(int plan, int n, int type, int batch, size_t* work_size) {
  return cufftMakePlanMany(plan, 1, &n, nullptr, 1, 0, nullptr, 1, 0, type, batch, work_size);
}

API cufftExecC2C(int plan, Complex64* in, Complex64* out, int sign) {
  return execute(plan, in, out, sign);
}

API cufftExecZ2Z(int plan, Complex128* in, Complex128* out, int sign) {
  return execute(plan, in, out, sign);
}

API cufftExecR2C(int plan, float* in, Complex64* out) { return execute(plan, in, out, FORWARD); }
API cufftExecD2Z(int plan, double* in, Complex128* out) { return execute(plan, in, out, FORWARD); }
API cufftExecC2R(int plan, Complex64* in, float* out) { return execute(plan, in, out, BACKWARD); }
API cufftExecZ2D(int plan, Complex128* in, double* out) { return execute(plan, in, out, BACKWARD); }

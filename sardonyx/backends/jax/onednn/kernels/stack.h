// Products of matrices that are new in each call, such as those of attention.
#pragma once

#include "product.h"

namespace sardonyx {

// How the matrices of a stack lie: whether they are transposed, how far apart their rows are in
// memory, and the matrices along each axis of the stack.
struct Side {
  bool is_transposed = false;
  int64_t pitch = 0;
  Dims steps;

  Side() = default;
  Side(Reader& at, size_t axes) : is_transposed(at.next()), pitch(at.next()) {
    for (size_t i = 0; i < axes; ++i) steps.push_back(at.next());
  }

  char flag() const { return is_transposed ? 'T' : 'N'; }
  int64_t row(int64_t i) const { return is_transposed ? i : i * pitch; }
  int64_t column(int64_t i) const { return is_transposed ? i * pitch : i; }
  int64_t place_of(int64_t pair, const Dims& axes) const {
    int64_t place = 0;
    for (size_t axis = axes.size(); axis-- > 0; pair /= axes[axis]) {
      place += pair % axes[axis] * steps[axis];
    }
    return place;
  }
};

// Operations that take as long as one for which a number is read from memory.
constexpr int64_t kOfReading = 4;

// Pairs of matrices of float32, whose results lie one after the other.
class Stack : public Kernel {
 public:
  // The threads, the axes of the stack with their number ahead, and the sizes of each matrix; then
  // how the matrices of both sides lie. Places are counted in elements.
  explicit Stack(Reader at) : threads_(at.next()) {
    axes_.resize(at.next());
    for (int64_t& size : axes_) pairs_ *= size = at.next();
    rows_ = at.next();
    inner_ = at.next();
    columns_ = at.next();
    for (Side* side : {&a_, &b_}) *side = Side(at, axes_.size());
    const double operations =
        2.0 * pairs_ * inner_ * std::max(rows_, kOfReading) * std::max(columns_, kOfReading);
    parts_ = useful_parts(operations, threads_);
    cuts_ = std::min((parts_ + pairs_ - 1) / pairs_, std::max(rows_, columns_));
  }

  // Of both sides, and of the results.
  Work work(Arrays at, std::byte*) const override {
    auto *a = read_from<float>(at[0]), *b = read_from<float>(at[1]);
    auto* y = reinterpret_cast<float*>(at[2]);
    const size_t pieces = pairs_ * cuts_;
    return {parts_, {pieces}, [=, this](size_t, size_t i) { run_piece(i, a, b, y); }};
  }

 private:
  // A matrix is cut along its longer side, if there are fewer pairs than threads.
  void run_piece(size_t i, const float* a, const float* b, float* y) const {
    OneThread one_thread;
    int64_t a_at = a_.place_of(i / cuts_, axes_), b_at = b_.place_of(i / cuts_, axes_);
    int64_t y_at = i / cuts_ * rows_ * columns_, rows = rows_, columns = columns_;
    const bool is_by_rows = rows > columns;
    auto [first, last] = share(is_by_rows ? rows : columns, i % cuts_, cuts_);
    if (is_by_rows) {
      rows = last - first;
      a_at += a_.row(first);
      y_at += first * columns_;
    } else {
      columns = last - first;
      b_at += b_.column(first);
      y_at += first;
    }
    check(dnnl_sgemm(a_.flag(), b_.flag(), rows, columns, inner_, 1, a + a_at, a_.pitch, b + b_at,
                     b_.pitch, 0, y + y_at, columns_),
          "product");
  }

  int64_t threads_, parts_, pairs_ = 1, rows_, inner_, columns_, cuts_;
  Dims axes_;
  Side a_, b_;
};

}  // namespace sardonyx

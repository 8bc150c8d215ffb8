// Attention: products, the softmax between them, and products with its weights.
#pragma once

#include "rows.h"
#include "stack.h"

namespace sardonyx {

// The arrays of float32; the mask, which is added to the scores, may be null.
struct AttentionArrays {
  const float *queries, *keys, *values, *mask;
  float* y;
};

// Four products of a row with others.
SARDONYX_INLINE void four_dots(const float* row, const float* others, int64_t pitch, int64_t count,
                               float* y) {
  Floats totals[4]{};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats each = loaded(row + i);
    for (int j = 0; j < 4; ++j) totals[j] += each * loaded(others + j * pitch + i);
  }
  for (int j = 0; j < 4; ++j) y[j] = sum(totals[j]);
  for (int64_t i = whole; i < count; ++i) {
    for (int j = 0; j < 4; ++j) y[j] += row[i] * others[j * pitch + i];
  }
}

// The sum of some columns of rows, as many as so many registers hold, each times its weight.
template <int kRegisters>
SARDONYX_INLINE void weighted_sum(const float* weights, const float* rows, int64_t count,
                                  int64_t pitch, float* y) {
  Floats totals[kRegisters]{};
  for (int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < kRegisters; ++j) {
      totals[j] += loaded(rows + i * pitch + j * kLanes) * weights[i];
    }
  }
  for (int j = 0; j < kRegisters; ++j) store(y + j * kLanes, totals[j]);
}

// A thread computes the scores of some queries, the softmax of these, and the results, so that the
// scores stay in its cache and no thread waits for another one between.
class Attention : public Kernel {
 public:
  // The threads, the axes of the stack with their number ahead, and how many queries, numbers of a
  // query, keys and numbers of a result there are; how the matrices of the queries, the keys (with
  // a column for each), the values and the results lie; whether the mask has a number for each key,
  // and how its rows lie; what scores are times; whether rows that are NaN are to be zero.
  explicit Attention(Reader at) : threads_(at.next()) {
    axes_.resize(at.next());
    for (int64_t& size : axes_) pairs_ *= size = at.next();
    queries_ = at.next();
    inner_ = at.next();
    keys_ = at.next();
    columns_ = at.next();
    for (Side* side : {&q_, &k_, &v_, &y_, &mask_}) *side = Side(at, axes_.size());
    scale_ = at.next_float();
    none_ = at.next() ? 0 : std::numeric_limits<float>::quiet_NaN();
    is_single_ = queries_ == 1 && !q_.is_transposed && k_.is_transposed && !v_.is_transposed;
    const double products = 2.0 * (inner_ + columns_) * (is_single_ ? kOfReading : 1);
    parts_ = useful_parts(pairs_ * queries_ * keys_ * (products + kOfSoftmax), threads_);
    const int64_t most = std::max<int64_t>(kScores / keys_, kFewestQueries);
    const int64_t cuts = std::max((queries_ + most - 1) / most, (parts_ + pairs_ - 1) / pairs_);
    cuts_ = std::min(cuts, queries_);
  }

  // Of queries, keys and values, the mask, which may be null, and the results.
  Work work(Arrays at, std::byte*) const override {
    const AttentionArrays arrays{read_from<float>(at[0]), read_from<float>(at[1]),
                                 read_from<float>(at[2]), read_from<float>(at[3]),
                                 reinterpret_cast<float*>(at[4])};
    const size_t pieces = pairs_ * cuts_;
    return {parts_, {pieces}, [=, this](size_t, size_t i) { run_piece(i, arrays); }};
  }

 private:
  // Of the processor's second cache, in numbers.
  static constexpr int64_t kScores = int64_t{1} << 16;
  static constexpr int64_t kFewestQueries = 16;
  // Operations of a product that take as long as what else a score takes.
  static constexpr double kOfSoftmax = 48;

  __attribute__((target("avx2,fma"))) void run_piece(size_t i, const AttentionArrays& at) const {
    OneThread one_thread;
    const int64_t pair = i / cuts_;
    const auto [first, last] = share(queries_, i % cuts_, cuts_);
    const int64_t count = last - first;
    auto* scores =
        reinterpret_cast<float*>(scratch<For::kScores>(count * keys_ * sizeof(float)));
    const auto place = [&](const Side& side) { return side.place_of(pair, axes_); };
    const float *queries = at.queries + place(q_) + q_.row(first), *keys = at.keys + place(k_);
    const float *values = at.values + place(v_), *mask = at.mask ? at.mask + place(mask_) : nullptr;
    float* y = at.y + place(y_) + first * y_.pitch;
    // For a product of one row oneDNN copies the other matrix first.
    if (is_single_) {
      score_query(queries, keys, scores);
    } else {
      check(dnnl_sgemm(q_.flag(), k_.flag(), count, keys_, inner_, scale_, queries, q_.pitch, keys,
                       k_.pitch, 0, scores, keys_),
            "product");
    }
    for (int64_t row = 0; row < count; ++row) {
      float* weights = scores + row * keys_;
      if (mask) add_mask(mask + (first + row) * mask_.pitch, weights);
      softmax_of(weights, weights, keys_, none_);
    }
    if (is_single_) {
      weigh_values(scores, values, y);
    } else {
      check(dnnl_sgemm('N', v_.flag(), count, columns_, keys_, 1, scores, keys_, values, v_.pitch,
                       0, y, y_.pitch),
            "product");
    }
  }

  SARDONYX_INLINE void score_query(const float* query, const float* keys, float* scores) const {
    int64_t key = 0;
    for (; key + 4 <= keys_; key += 4) {
      four_dots(query, keys + key * k_.pitch, k_.pitch, inner_, scores + key);
    }
    for (; key < keys_; ++key) {
      float four[4];
      four_dots(query, keys + key * k_.pitch, 0, inner_, four);
      scores[key] = four[0];
    }
    for (key = 0; key < keys_; ++key) scores[key] *= scale_;
  }

  SARDONYX_INLINE void weigh_values(const float* weights, const float* values, float* y) const {
    int64_t at = 0;
    for (; at + 4 * kLanes <= columns_; at += 4 * kLanes) {
      weighted_sum<4>(weights, values + at, keys_, v_.pitch, y + at);
    }
    for (; at + kLanes <= columns_; at += kLanes) {
      weighted_sum<1>(weights, values + at, keys_, v_.pitch, y + at);
    }
    for (; at < columns_; ++at) {
      y[at] = 0;
      for (int64_t key = 0; key < keys_; ++key) y[at] += weights[key] * values[key * v_.pitch + at];
    }
  }

  // A mask is transposed if it has one number for all keys.
  SARDONYX_INLINE void add_mask(const float* mask, float* scores) const {
    if (mask_.is_transposed) {
      for (int64_t key = 0; key < keys_; ++key) scores[key] += *mask;
    } else {
      for (int64_t key = 0; key < keys_; ++key) scores[key] += mask[key];
    }
  }

  int64_t threads_, parts_, pairs_ = 1, queries_, inner_, keys_, columns_, cuts_;
  Dims axes_;
  Side q_, k_, v_, y_, mask_;
  bool is_single_;
  float scale_, none_;
};

}  // namespace sardonyx

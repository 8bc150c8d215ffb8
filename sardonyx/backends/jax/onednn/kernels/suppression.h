// Non-maximum suppression: of boxes that overlap, the one with the highest score is selected.
#pragma once

#include <array>
#include <limits>

#include "lanes.h"
#include "product.h"

namespace sardonyx {

struct Box {
  // Two lower and two upper edges; the area is NaN for a box with an edge that is no number.
  float low[2], high[2], area;
};

// Boxes side by side, of which several are compared at once.
class Boxes {
 public:
  void clear() { count_ = 0; }

  void add(const Box& box) {
    const size_t at = count_ / kLanes, lane = count_ % kLanes;
    ++count_;
    if (at == several_.size()) several_.emplace_back();
    Several& several = several_[at];
    // What is not filled yet overlaps nothing.
    if (lane == 0) std::fill_n(several.area, kLanes, std::numeric_limits<float>::quiet_NaN());
    for (int axis = 0; axis < 2; ++axis) {
      several.low[axis][lane] = box.low[axis];
      several.high[axis][lane] = box.high[axis];
    }
    several.area[lane] = box.area;
  }

  // Whether the intersection over the union of the box and one of these exceeds the threshold. NumPy
  // does the same operations in the same order, so that the same boxes are selected.
  SARDONYX_INLINE bool overlap(const Box& box, float threshold) const {
    for (size_t at = 0; at * kLanes < count_; ++at) {
      const Several& several = several_[at];
      Floats shared;
      for (int axis = 0; axis < 2; ++axis) {
        const Floats high = least(loaded(several.high[axis]), all(box.high[axis]));
        // Where boxes lie apart, their sides are 0.
        const Floats low = least(most(loaded(several.low[axis]), all(box.low[axis])), high);
        shared = axis == 0 ? high - low : shared * (high - low);
      }
      Floats whole = loaded(several.area) + box.area;
      whole -= shared;
      const Integers is_over = shared / whole > threshold;
      std::array<int64_t, kLanes / 2> pairs;
      std::memcpy(pairs.data(), &is_over, sizeof is_over);
      if (pairs[0] | pairs[1] | pairs[2] | pairs[3]) return true;
    }
    return false;
  }

 private:
  struct Several {
    float low[2][kLanes], high[2][kLanes], area[kLanes];
  };

  SARDONYX_INLINE static Floats least(Floats a, Floats b) { return a < b ? a : b; }
  SARDONYX_INLINE static Floats most(Floats a, Floats b) { return a > b ? a : b; }

  std::vector<Several> several_;
  size_t count_ = 0;
};

class Suppression {
 public:
  // The threads; how many images, classes and boxes there are, and how many boxes of a class are
  // selected at most; whether boxes have centres and sides, or two corners; the overlap that is
  // allowed; and whether there is a score to be exceeded, and which.
  explicit Suppression(Reader at)
      : threads_(at.next()),
        images_(at.next()),
        classes_(at.next()),
        boxes_(at.next()),
        limit_(std::min(at.next(), boxes_)),
        has_centres_(at.next()),
        threshold_(at.next_float()),
        has_least_(at.next()),
        least_(at.next_float()) {}

  // Writes the image, the class and the number of each box that is selected, and returns how many
  // these are. There is room for the limit of each class.
  template <class Pool>
  int64_t run(Pool& pool, const float* boxes, const float* scores, int64_t* found) const {
    constexpr double kOperations = 16;
    const int64_t searches = images_ * classes_;
    const int64_t threads = std::min(useful_parts(kOperations * searches * boxes_, threads_), searches);
    // Classes differ in what they have to do.
    const int64_t parts = threads == 1 ? 1 : std::min(searches, 8 * threads);
    std::vector<int64_t> counts(searches);
    perform(pool, {threads, {static_cast<size_t>(parts)}, [&](size_t, size_t i) {
                     auto [first, last] = share(searches, i, parts);
                     select(boxes, scores, first, last, found, counts.data());
                   }});
    int64_t total = 0;
    for (int64_t search = 0; search < searches; ++search) {
      const int64_t* own = found + search * limit_ * 3;
      std::memmove(found + total * 3, own, counts[search] * 3 * sizeof(int64_t));
      total += counts[search];
    }
    return total;
  }

 private:
  __attribute__((target("avx2"))) void select(const float* boxes, const float* scores, int64_t first,
                                              int64_t last, int64_t* found, int64_t* counts) const {
    std::vector<uint64_t> candidates;
    Boxes selected;
    for (int64_t search = first; search < last; ++search) {
      const int64_t image = search / classes_, of_class = search % classes_;
      note_candidates(scores + search * boxes_, candidates);
      std::make_heap(candidates.begin(), candidates.end());
      selected.clear();
      int64_t* at = found + search * limit_ * 3;
      int64_t count = 0;
      while (count < limit_ && !candidates.empty()) {
        std::pop_heap(candidates.begin(), candidates.end());
        const int64_t number = UINT32_MAX - static_cast<uint32_t>(candidates.back());
        candidates.pop_back();
        const Box box = box_at(boxes + (image * boxes_ + number) * 4);
        if (selected.overlap(box, threshold_)) continue;
        selected.add(box);
        *at++ = image;
        *at++ = of_class;
        *at++ = number;
        ++count;
      }
      counts[search] = count;
    }
  }

  // As integers of which the largest is the best: the score, and of equal ones the first box.
  void note_candidates(const float* scores, std::vector<uint64_t>& candidates) const {
    candidates.clear();
    for (int64_t i = 0; i < boxes_; ++i) {
      if (has_least_ && !(scores[i] > least_)) continue;
      int32_t bits;
      std::memcpy(&bits, scores + i, sizeof bits);
      // Negative floats lie in the opposite order, and NaN comes last.
      const bool is_nan = scores[i] != scores[i];
      const int64_t order = is_nan ? INT32_MIN : bits < 0 ? int64_t{INT32_MIN} - bits : bits;
      const auto rank = static_cast<uint64_t>(order - INT32_MIN);
      candidates.push_back(rank << 32 | (UINT32_MAX - static_cast<uint32_t>(i)));
    }
  }

  Box box_at(const float* numbers) const {
    Box box;
    bool is_nan = false;
    for (int axis = 0; axis < 2; ++axis) {
      const float one = numbers[axis], other = numbers[axis + 2];
      is_nan |= one != one || other != other;
      const float half = other / 2;
      box.low[axis] = has_centres_ ? one - half : std::min(one, other);
      box.high[axis] = has_centres_ ? one + half : std::max(one, other);
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    if (is_nan) box.area = std::numeric_limits<float>::quiet_NaN();
    return box;
  }

  int64_t threads_, images_, classes_, boxes_, limit_;
  bool has_centres_;
  float threshold_;
  bool has_least_;
  float least_;
};

}  // namespace sardonyx

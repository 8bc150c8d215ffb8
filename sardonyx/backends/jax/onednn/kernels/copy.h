// Copies of arrays whose elements lie in another order, or apart.
#pragma once

#include "product.h"

namespace sardonyx {

// The elements of any array one after the other, by rows.
class Copy : public Kernel {
 public:
  // The threads, the bytes of an element, how many axes there are, their sizes, and how many bytes
  // apart the elements along each of them are.
  explicit Copy(Reader at) : threads_(at.next()), item_(at.next()) {
    const int64_t axes = at.next();
    // Two more, so that there always is a plane.
    sizes_.assign(2, 1);
    for (int64_t i = 0; i < axes; ++i) sizes_.push_back(at.next());
    steps_.assign(2, 0);
    for (int64_t i = 0; i < axes; ++i) steps_.push_back(at.next());
  }

  // Of the array, and of the copy.
  Work work(Arrays at, std::byte*) const override {
    // A number takes about as long as so many operations of a product.
    constexpr double kOperations = 32;
    const std::byte* x = at[0];
    std::byte* y = at[1];
    int64_t rows = 1;
    for (size_t axis = 0; axis + 1 < sizes_.size(); ++axis) rows *= sizes_[axis];
    const int64_t parts = useful_parts(kOperations * rows * sizes_.back(), threads_);
    return {threads_, {static_cast<size_t>(parts)}, [=, this](size_t, size_t i) {
              const auto [first, last] = share(rows, i, parts);
              if (item_ == 1) return copy_rows<uint8_t>(x, y, first, last);
              if (item_ == 2) return copy_rows<uint16_t>(x, y, first, last);
              if (item_ == 4) return copy_rows<uint32_t>(x, y, first, last);
              copy_rows<uint64_t>(x, y, first, last);
            }};
  }

 private:
  // So many elements are written together, and so many lines of memory are read at once.
  static constexpr int64_t kTogether = 16;

  template <class Item>
  void copy_rows(const std::byte* x, std::byte* y, int64_t first, int64_t last) const {
    const int64_t rows = sizes_[sizes_.size() - 2], columns = sizes_.back();
    while (first < last) {
      const int64_t row = first % rows, count = std::min(rows - row, last - first);
      const std::byte* from = x + place_of_plane(first / rows) + row * steps_[steps_.size() - 2];
      copy_plane<Item>(from, reinterpret_cast<Item*>(y) + first * columns, count);
      first += count;
    }
  }

  int64_t place_of_plane(int64_t plane) const {
    int64_t place = 0;
    for (size_t axis = sizes_.size() - 2; axis-- > 0; plane /= sizes_[axis]) {
      place += plane % sizes_[axis] * steps_[axis];
    }
    return place;
  }

  template <class Item>
  void copy_plane(const std::byte* x, Item* y, int64_t rows) const {
    const int64_t columns = sizes_.back();
    // Images have three channels.
    if (columns == 3) return copy_columns<Item, 3>(x, y, rows, 3);
    for (int64_t at = 0; at < columns; at += kTogether) {
      const std::byte* from = x + at * steps_.back();
      const int64_t count = std::min(columns - at, kTogether);
      if (count == kTogether) {
        copy_columns<Item, kTogether>(from, y + at, rows, kTogether);
      } else {
        copy_columns<Item, 0>(from, y + at, rows, count);
      }
    }
  }

  // As many columns as the template says, or the argument if that is 0.
  template <class Item, int64_t kColumns>
  void copy_columns(const std::byte* x, Item* y, int64_t rows, int64_t columns) const {
    const int64_t row_step = steps_[steps_.size() - 2], step = steps_.back();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < (kColumns ? kColumns : columns); ++i) {
        std::memcpy(y + i, x + i * step, sizeof(Item));
      }
      x += row_step;
      y += sizes_.back();
    }
  }

  int64_t threads_, item_;
  std::vector<int64_t> sizes_, steps_;
};

}  // namespace sardonyx

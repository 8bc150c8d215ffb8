// Memory for the time of a call, which the next call gets again.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "primitive.h"

namespace sardonyx {

// Fresh pages cost a fault and a clearing for each 4 KiB: a third of the time of a MobileNet at
// batch 8. So spaces are retained, as many as were in use at once, up to kMostRetained bytes.
class Space {
 public:
  explicit Space(size_t bytes) : memory_(taken(bytes)) {}
  ~Space() { retain(std::move(memory_)); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  std::byte* get() const { return memory_.bytes.get(); }

  // Frees what is retained; spaces in use are retained again when their calls end.
  static void release() {
    Retained& all = retained();
    std::lock_guard<std::mutex> lock(all.changing);
    for (Block& block : all.blocks) {
      // The C library may keep what it gets back at the end of a thread's heap.
      if (block.size >= kHugePage) madvise(block.bytes.get(), block.size, MADV_DONTNEED);
    }
    all.blocks.clear();
    all.bytes = 0;
  }

 private:
  static constexpr size_t kMostRetained = size_t{256} << 20;
  static constexpr size_t kHugePage = size_t{2} << 20;

  struct Block {
    size_t size = 0;
    Memory bytes;
  };
  struct Retained {
    std::mutex changing;
    std::vector<Block> blocks;
    size_t bytes = 0;

    Block remove(size_t i) {
      Block block = std::move(blocks[i]);
      blocks.erase(blocks.begin() + i);
      bytes -= block.size;
      return block;
    }
  };

  static Retained& retained() {
    static auto& retained = *new Retained;
    return retained;
  }

  // The smallest block that is large enough; else a new one in place of the smallest.
  static Block taken(size_t bytes) {
    if (!bytes) return {};
    Retained& all = retained();
    {
      std::lock_guard<std::mutex> lock(all.changing);
      auto by_size = [](const Block& a, const Block& b) { return a.size < b.size; };
      std::sort(all.blocks.begin(), all.blocks.end(), by_size);
      for (size_t i = 0; i < all.blocks.size(); ++i) {
        if (all.blocks[i].size >= bytes) return all.remove(i);
      }
      if (!all.blocks.empty()) all.remove(0);
    }
    return {bytes, fresh(bytes)};
  }

  static Memory fresh(size_t bytes) {
    if (bytes < kHugePage) return allocated(bytes);
    Memory memory(static_cast<std::byte*>(
        std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage)));
    if (!memory) throw std::bad_alloc();
    madvise(memory.get(), bytes, MADV_HUGEPAGE);
    return memory;
  }

  static void retain(Block block) {
    Retained& all = retained();
    std::lock_guard<std::mutex> lock(all.changing);
    if (!block.size || all.bytes + block.size > kMostRetained) return;
    all.bytes += block.size;
    all.blocks.push_back(std::move(block));
  }

  Block memory_;
};

// Where arrays lie in a space. Each gets the first gap between those that are still used.
class SpacePlan {
 public:
  // Steps come in turn. The array is there from this one on, up to the last that uses it.
  size_t place(size_t bytes, size_t step, size_t last_use) {
    if (!bytes) return 0;
    std::erase_if(blocks_, [&](const Block& block) { return block.last_use < step; });
    bytes = aligned(bytes);
    size_t begin = 0, i = 0;
    for (; i < blocks_.size() && blocks_[i].begin < begin + bytes; ++i) begin = blocks_[i].end;
    blocks_.insert(blocks_.begin() + i, {begin, begin + bytes, last_use});
    bytes_ = std::max(bytes_, begin + bytes);
    return begin;
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Block {
    size_t begin, end, last_use;
  };

  std::vector<Block> blocks_;
  size_t bytes_ = 0;
};

}  // namespace sardonyx

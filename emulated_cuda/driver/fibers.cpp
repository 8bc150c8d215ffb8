#include "fibers.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "settings.h"
#include "state.h"

// Leaves this stack, whose pointer it stores, for another. The registers that a function preserves
// lie on the stack that it leaves.
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
.hidden emulated_switch
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulated {
namespace {

const int PRESERVED_REGISTERS = 6;

struct Fiber {
  void* stack_pointer;
  Dim3 index;
  bool done;
};

// A warp's lanes exchange values in two slots in turn, so that a lane may still read one exchange
// while another lane is at the next.
struct Warp {
  unsigned alive, arrived, exchanges, present[2];
  uint64_t slots[2][WARP];
};

struct Block {
  const Function* function;
  void** parameters;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  void* scheduler;  // its stack pointer
  int running, alive;
  int arrived, barriers;  // at the barrier, and how many barriers have been passed
  int counts[2];          // of those that gave true to this barrier and to the one before
  size_t progress;        // grows whenever a fiber gets further
};

Block block;
char* stacks = nullptr;

void allocate_stacks() {
  if (stacks) return;
  void* memory = mmap(nullptr, MOST_THREADS * THREAD_STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stacks = static_cast<char*>(memory);
  for (int i = 0; i < MOST_THREADS; i++) mprotect(stacks + i * THREAD_STACK, PAGE, PROT_NONE);
}

void yield() {
  Fiber& fiber = block.fibers[block.running];
  emulated_switch(&fiber.stack_pointer, block.scheduler);
  emulated_thread = fiber.index;
}

void pass_barrier() {
  block.arrived = 0;
  block.barriers++;
  block.progress++;
}

void run_fiber() {
  Fiber& fiber = block.fibers[block.running];
  emulated_thread = fiber.index;
  block.function->thread(block.parameters);
  fiber.done = true;
  block.progress++;
  block.warps[block.running / WARP].alive &= ~(1u << block.running % WARP);
  if (--block.alive && block.arrived == block.alive) pass_barrier();
  emulated_switch(&fiber.stack_pointer, block.scheduler);
  abort();  // nobody goes on with a fiber that is done
}

void start_fiber(int i) {
  Fiber& fiber = block.fibers[i];
  const unsigned x = emulated_block_size.x, y = emulated_block_size.y;
  fiber.index = {i % x, i / x % y, i / (x * y)};
  block.warps[i / WARP].alive |= 1u << i % WARP;
  void** top = reinterpret_cast<void**>(stacks + (i + 1) * THREAD_STACK);
  *--top = nullptr;  // aligns the stack as after a call
  *--top = reinterpret_cast<void*>(run_fiber);
  for (int saved = 0; saved < PRESERVED_REGISTERS; saved++) *--top = nullptr;
  fiber.stack_pointer = top;
}

}  // namespace

bool is_on_a_fibers_stack(const void* address) {
  auto* at = static_cast<const char*>(address);
  return stacks && at >= stacks && at < stacks + MOST_THREADS * THREAD_STACK;
}

bool run_fibers(const Function& function, void** parameters) {
  allocate_stacks();
  const int threads = emulated_block_size.x * emulated_block_size.y * emulated_block_size.z;
  block.function = &function;
  block.parameters = parameters;
  block.fibers.assign(threads, {});
  block.warps.assign((threads + WARP - 1) / WARP, {});
  block.alive = threads;
  block.arrived = block.barriers = block.counts[0] = block.counts[1] = 0;
  for (int i = 0; i < threads; i++) start_fiber(i);
  while (block.alive) {
    const size_t before = block.progress;
    for (int i = 0; i < threads; i++) {
      if (block.fibers[i].done) continue;
      block.running = i;
      emulated_switch(&block.scheduler, block.fibers[i].stack_pointer);
    }
    if (block.progress == before) return false;
  }
  return true;
}

}  // namespace emulated

// -- called by kernels: see kernels/threads.h --

using namespace emulated;

EXPORT void emulated_barrier() {
  const int before = block.barriers;
  block.progress++;
  if (++block.arrived == block.alive)
    pass_barrier();
  else
    while (block.barriers == before) yield();
}

// A barrier that returns in how many threads the value is not 0.
EXPORT int emulated_barrier_count(int value) {
  int& total = block.counts[block.barriers & 1];
  if (block.arrived == 0) total = 0;
  total += value != 0;
  emulated_barrier();
  return total;
}

// Returns the values of the warp's lanes in `mask`, and in `present` which of these lanes live.
EXPORT const uint64_t* emulated_exchange(unsigned mask, uint64_t value, unsigned* present) {
  Warp& warp = block.warps[block.running / WARP];
  const unsigned lane = block.running % WARP, before = warp.exchanges;
  const int slot = before & 1;
  warp.slots[slot][lane] = value;
  warp.arrived |= 1u << lane;
  block.progress++;
  while (warp.exchanges == before) {
    const unsigned awaited = mask & warp.alive;
    if ((warp.arrived & awaited) != awaited) {
      yield();
      continue;
    }
    warp.arrived &= ~awaited;
    warp.present[slot] = awaited;
    warp.exchanges++;
    block.progress++;
  }
  *present = warp.present[slot];
  return warp.slots[slot];
}

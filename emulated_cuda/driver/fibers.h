// The threads of a block: one after another, or fibers where they wait for each other.
#pragma once
#include "kernels.h"

namespace emulated {

// Runs one block of a kernel that has barriers; false if some threads wait for ever.
bool run_fibers(const Function& function, void** parameters);

bool is_on_a_fibers_stack(const void* address);

}  // namespace emulated

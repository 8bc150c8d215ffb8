#pragma once
#include <signal.h>
#include <ucontext.h>

namespace emulated {

// A division of integers by zero, or of the least integer by -1, stops the processor and is no
// fault of a GPU: its quotient is all ones, or the least integer again. Sets these results and
// steps over the instruction; false if the instruction is no such division.
bool skip_division(greg_t* registers);

}  // namespace emulated

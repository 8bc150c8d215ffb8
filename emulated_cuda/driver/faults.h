// Faults of kernels: signals of the processor become errors of the device.
#pragma once
#include <functional>

namespace emulated {

// Runs work on the device's memory; it returns CUDA's error code. Whatever error it has, by its
// result or by a signal, is a fault of the context. `flush` makes denormal floats zero.
int guarded(const std::function<int()>& work, bool flush = false);

// Ends the work that is running with this code.
[[noreturn]] void abandon(int code);

}  // namespace emulated

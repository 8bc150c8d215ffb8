#pragma once  // kernels/emulated_cuda.h has all that kernels use

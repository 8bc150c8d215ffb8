// CUDA C++ for a host compiler: what a kernel uses without including anything. The emulated NVRTC
// includes it before every kernel.
#pragma once
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#define EMULATED_CUDA 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDART_API_VERSION 13000
#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__ __attribute__((visibility("default"), used))
#define __managed__
#define __shared__ static  // one block runs at a time
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __launch_bounds__(...)
#define __grid_constant__

#include "vectors.h"
#include "threads.h"
#include "atomics.h"
#include "bits.h"
#include "arithmetic.h"
#include "entries.h"

// CUDA's vector types.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define EMULATED_VECTORS(T, name)                                                      \
  struct name##1 { T x; };                                                             \
  struct __align__(2 * sizeof(T)) name##2 { T x, y; };                                 \
  struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  inline name##1 make_##name##1(T x) { return {x}; }                                   \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                           \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMULATED_VECTORS_OF_3(T, name) \
  struct name##3 { T x, y, z; };       \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }

EMULATED_VECTORS(signed char, char)
EMULATED_VECTORS(unsigned char, uchar)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(unsigned short, ushort)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned, uint)
EMULATED_VECTORS(long long, longlong)
EMULATED_VECTORS(unsigned long long, ulonglong)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS_OF_3(unsigned char, uchar)
EMULATED_VECTORS_OF_3(int, int)
EMULATED_VECTORS_OF_3(float, float)
EMULATED_VECTORS_OF_3(double, double)

// Arithmetic: CUDA's functions beyond the host's math.h. Those for which a GPU has faster and less
// exact instructions are the exact ones.
#pragma once

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#define EMULATED_MINMAX(A, B, R)                               \
  inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
  inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
#define EMULATED_MINMAX_FAMILY(S, U) \
  EMULATED_MINMAX(S, S, S)           \
  EMULATED_MINMAX(U, U, U) EMULATED_MINMAX(S, U, U) EMULATED_MINMAX(U, S, U)
EMULATED_MINMAX_FAMILY(int, unsigned)
EMULATED_MINMAX_FAMILY(long, unsigned long)
    EMULATED_MINMAX_FAMILY(long long, unsigned long long) inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float rcbrt(float x) { return 1 / cbrtf(x); }
inline double rcbrt(double x) { return 1 / cbrt(x); }
inline float exp10(float x) { return powf(10, x); }
inline float sinpi(float x) { return float(sin(M_PI * fmod(x, 2))); }
inline double sinpi(double x) { return sin(M_PI * fmod(x, 2)); }
inline float cospi(float x) { return float(cos(M_PI * fmod(x, 2))); }
inline double cospi(double x) { return cos(M_PI * fmod(x, 2)); }
inline void sincos(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline double erfinv(double y) {
  if (!(fabs(y) < 1)) return fabs(y) == 1 ? copysign(INFINITY, y) : NAN;
  double w = -log((1 - y) * (1 + y)), a = 2 / (M_PI * 0.147) - w / 2;
  double x = copysign(sqrt(sqrt(a * a + w / 0.147) - a), y);
  for (int i = 0; i < 4; i++) x -= (erf(x) - y) / (2 / sqrt(M_PI) * exp(-x * x));
  return x;
}
inline float erfinv(float y) { return float(erfinv(double(y))); }
inline double normcdf(double x) { return erfc(-x / sqrt(2.0)) / 2; }
inline float normcdf(float x) { return float(normcdf(double(x))); }
inline double normcdfinv(double p) { return sqrt(2.0) * erfinv(2 * p - 1); }
inline double erfcx(double x) { return x < 25 ? exp(x * x) * erfc(x) : 1 / (x * sqrt(M_PI)); }
inline double j0(int x) { return ::j0(double(x)); }

inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
#define EMULATED_ROUNDED(suffix)                                      \
  inline float __fadd_##suffix(float a, float b) { return a + b; }    \
  inline float __fsub_##suffix(float a, float b) { return a - b; }    \
  inline float __fmul_##suffix(float a, float b) { return a * b; }    \
  inline float __fdiv_##suffix(float a, float b) { return a / b; }    \
  inline double __dadd_##suffix(double a, double b) { return a + b; } \
  inline double __dsub_##suffix(double a, double b) { return a - b; } \
  inline double __dmul_##suffix(double a, double b) { return a * b; } \
  inline double __ddiv_##suffix(double a, double b) { return a / b; }
EMULATED_ROUNDED(rn)
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
template <class To, class From>
inline To emulated_saturated(From x) {
  if (!(x == x)) return 0;
  const From low = From(To(~To(0) < To(0) ? To(1) << (sizeof(To) * 8 - 1) : 0)),
             beyond = ldexp(From(1), int(sizeof(To) * 8 - (To(~To(0)) < To(0))));
  return x <= low      ? To(low)
         : x >= beyond ? To(To(~To(0)) < To(0) ? ~(To(1) << (sizeof(To) * 8 - 1)) : ~To(0))
                       : To(x);
}
inline int __float2int_rn(float x) { return emulated_saturated<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return emulated_saturated<int>(truncf(x)); }
inline int __float2int_rd(float x) { return emulated_saturated<int>(floorf(x)); }
inline int __float2int_ru(float x) { return emulated_saturated<int>(ceilf(x)); }
inline int __double2int_rn(double x) { return emulated_saturated<int>(nearbyint(x)); }
inline int __double2int_rz(double x) { return emulated_saturated<int>(trunc(x)); }
inline long long __double2ll_rn(double x) { return emulated_saturated<long long>(nearbyint(x)); }
inline long long clock64() { return __builtin_ia32_rdtsc(); }
inline int clock() { return int(clock64()); }

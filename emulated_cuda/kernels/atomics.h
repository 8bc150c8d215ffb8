// Atomic operations: plain ones, since one thread runs at a time.
#pragma once

#define EMULATED_ATOMIC(name, T, result) \
  inline T name(T* address, T val) {     \
    T old = *address;                    \
    *address = result;                   \
    return old;                          \
  }
#define EMULATED_ATOMIC_OF_INTEGERS(name, result) \
  EMULATED_ATOMIC(name, int, result)              \
  EMULATED_ATOMIC(name, unsigned, result)         \
  EMULATED_ATOMIC(name, unsigned long long, result)

EMULATED_ATOMIC_OF_INTEGERS(atomicAdd, old + val)
EMULATED_ATOMIC(atomicAdd, float, old + val)
EMULATED_ATOMIC(atomicAdd, double, old + val)
EMULATED_ATOMIC(atomicSub, int, old - val)
EMULATED_ATOMIC(atomicSub, unsigned, old - val)
EMULATED_ATOMIC_OF_INTEGERS(atomicExch, val)
EMULATED_ATOMIC(atomicExch, float, val)
EMULATED_ATOMIC_OF_INTEGERS(atomicMin, val < old ? val : old)
EMULATED_ATOMIC(atomicMin, long long, val < old ? val : old)
EMULATED_ATOMIC_OF_INTEGERS(atomicMax, val > old ? val : old)
EMULATED_ATOMIC(atomicMax, long long, val > old ? val : old)
EMULATED_ATOMIC_OF_INTEGERS(atomicAnd, old& val)
EMULATED_ATOMIC_OF_INTEGERS(atomicOr, old | val)
EMULATED_ATOMIC_OF_INTEGERS(atomicXor, old ^ val)
EMULATED_ATOMIC(atomicInc, unsigned, old >= val ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, unsigned, old == 0 || old > val ? val : old - 1)

#define EMULATED_CAS(T)                              \
  inline T atomicCAS(T* address, T compare, T val) { \
    T old = *address;                                \
    if (old == compare) *address = val;              \
    return old;                                      \
  }
EMULATED_CAS(int)
EMULATED_CAS(unsigned)
EMULATED_CAS(unsigned long long)
EMULATED_CAS(unsigned short)

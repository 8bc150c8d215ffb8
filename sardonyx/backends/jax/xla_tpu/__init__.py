"""Forms for what XLA's compiler for TPUs refuses, or takes seconds to compile.

TPUs have neither integers nor floats of 64 bits: XLA divides both into pairs of 32 bits, for most
operations but not for all.
"""

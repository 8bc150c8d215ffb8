"""Forms for what XLA's compiler for TPUs refuses, compiles for seconds, or copies twice.

TPUs have neither integers nor floats of 64 bits: XLA divides both into pairs of 32 bits, for most
operations but not for all.
"""

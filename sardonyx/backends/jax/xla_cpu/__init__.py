"""Windowed work in the forms that XLA compiles well for CPUs.

Its kernels for products and for convolutions in a plane are fast if channels come last. It compiles
everything else to plain loops, up to fifty times slower than these forms. On other platforms the
general forms are the fast ones.
"""

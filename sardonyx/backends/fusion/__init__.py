"""Segments as a few CUDA kernels: traced with symbols, divided into kernels, written as source."""

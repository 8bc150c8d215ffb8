"""CUDA on a CPU: test equipment, by which CuPy's tests run without a GPU. See README.md."""

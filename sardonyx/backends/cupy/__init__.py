"""CuPy as a backend."""

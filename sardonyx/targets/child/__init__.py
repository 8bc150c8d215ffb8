"""The process that compiles: everything here imports JAX, and nothing here runs in the caller's."""

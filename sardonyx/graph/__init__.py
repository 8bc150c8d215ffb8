"""Models: loading them, tracing them into programs, and running those."""

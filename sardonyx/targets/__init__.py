"""Programs compiled for TPUs and GPUs that are not here, by XLA's own compilers."""

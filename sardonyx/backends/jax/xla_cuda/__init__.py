"""What XLA's compiler for CUDA prefers: layouts of cuDNN, and forms that it fuses into products."""

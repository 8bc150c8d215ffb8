"""Forms that XLA compiles well for TPUs and GPUs; on CPUs `xla_cpu` and the general forms serve."""

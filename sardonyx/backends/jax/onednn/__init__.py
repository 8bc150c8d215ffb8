"""oneDNN's kernels for CPUs, called from within XLA's programs: pip install 'sardonyx[onednn]'.

They are compiled at their first use and stored in the user's cache folder. Without them XLA
computes the same, and `status` says why. Beside them are a few kernels of our own, for what NumPy
takes many passes for: functions of rows, pooling and non-maximum suppression.
"""

from sardonyx.backends.jax.onednn.chains import Chain, chain
from sardonyx.backends.jax.onednn.host_kernels import HostKernels
from sardonyx.backends.jax.onednn.loaded import identity, is_loaded, may_be_used, release, status
from sardonyx.backends.jax.onednn.products import (
    PackedWeight,
    Product,
    convolution,
    matrix_product,
)

__all__ = [
    "Chain",
    "HostKernels",
    "PackedWeight",
    "Product",
    "chain",
    "convolution",
    "identity",
    "is_loaded",
    "matrix_product",
    "may_be_used",
    "release",
    "status",
]

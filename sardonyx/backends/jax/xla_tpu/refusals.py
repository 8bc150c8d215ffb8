"""Types with which libtpu ends the process, refused when a program is lowered for a TPU.

JAX lowers a pure function for a platform that is unknown while the function is traced.
"""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sardonyx.errors import UnsupportedModel

TWO_BITS = frozenset(map(np.dtype, (ml_dtypes.int2, ml_dtypes.uint2)))
# Arguments of two bits end the process (libtpu 0.0.52), and casts and scatters of complex128
# (0.0.42).
TPUS_LACK = TWO_BITS | {np.dtype(np.complex128)}


def refused_on_tpus(x: Any) -> Any:
    """Return `x`; if it is traced and TPUs lack its type, lowering it for a TPU is an error."""
    if isinstance(x, jax.core.Tracer) and x.dtype in TPUS_LACK:
        return _refused.bind(x)
    return x


def _refuse(context: Any, _: Any) -> Any:
    dtype = context.avals_in[0].dtype
    way = "complex64" if dtype == np.complex128 else "4 or 8 bits"
    raise UnsupportedModel(
        f"The function has arrays of {dtype}, with which XLA for TPUs can end the process. Store "
        f"them in {way}, or call the model that `sardonyx.load` returns: it computes with "
        f"{dtype} on the host."
    )


_refused = Primitive("refused_on_tpus")
_refused.def_impl(lambda x: x)
_refused.def_abstract_eval(lambda x: x)
mlir.register_lowering(_refused, lambda _, x: [x])
mlir.register_lowering(_refused, _refuse, platform="tpu")
batching.defvectorized(_refused)
ad.deflinear2(_refused, lambda slope, _: [slope])

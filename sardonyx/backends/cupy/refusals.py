"""What CUDA's libraries refuse: from then on it is computed in another way."""

from __future__ import annotations

from functools import partial
from typing import Any

from sardonyx.backends.cupy.cublas import REFUSALS, CublasError
from sardonyx.logs import Log

LOG = Log("cupy")
_refused: set[tuple[Any, ...]] = set()


def is_refused(a: Any, b: Any, *options: Any) -> bool:
    """Whether a library has refused to multiply arrays like these with these options."""
    return bool(_refused) and _key(a, b, options) in _refused


def note(
    error: Exception, a: Any, b: Any, *options: Any, work: str = "A product", instead: str = "CuPy"
) -> None:
    """Log that a library failed; if it would refuse the same again, it is not asked again."""
    if not isinstance(error, CublasError) or error.status in REFUSALS:
        _refused.add(_key(a, b, options))
    work = f"{work} of {a.dtype} of shapes {a.shape} and {b.shape}"
    LOG.warning("%s is left to %s, because %s", work, instead, partial(str, error))


def _key(a: Any, b: Any, options: tuple[Any, ...]) -> tuple[Any, ...]:
    return (a.data.device_id, a.dtype, a.shape, a.strides, b.shape, b.strides, *options)

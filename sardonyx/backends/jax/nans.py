"""NaNs that `jax_debug_nans` finds in programs compiled ahead of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sardonyx.backends.executable import Replay


def raise_found(error: Exception, replay: Replay, arrays: Sequence[Any]) -> NoReturn:
    """Raise the error; for a NaN or an infinity, the one that `jax.jit` raises.

    JAX finds the operation by running the program once more, one operation after the other.
    """
    # JAX's internal signal is no FloatingPointError, and names no operation.
    if type(error).__name__ != "InternalFloatingPointError":
        raise error
    try:
        replay(*arrays)
    except FloatingPointError:
        raise
    except Exception:  # For example, the buffers were donated: the operation stays unknown.
        pass
    kind = error.args[-1] if error.args else "nan"
    raise FloatingPointError(f"invalid value ({kind}) encountered in a compiled program") from None

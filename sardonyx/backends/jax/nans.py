"""NaNs that JAX was asked to find, by `jax_debug_nans`, in programs compiled ahead of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sardonyx.backends.executable import Replay


def raise_found(error: Exception, replay: Replay, arrays: Sequence[Any]) -> NoReturn:
    """Raise the error; where a NaN or an infinity was found, as JAX's `jit` does.

    That runs the program once more, one operation after the other, until one of them makes it.
    """
    # JAX's own word between its parts, which is no FloatingPointError and names no operation.
    if type(error).__name__ != "InternalFloatingPointError":
        raise error
    try:
        replay(*arrays)
    except FloatingPointError:
        raise
    except Exception:  # The buffers were donated, say: the compiled program's word must do.
        pass
    kind = error.args[-1] if error.args else "nan"
    raise FloatingPointError(f"invalid value ({kind}) encountered in a compiled program") from None

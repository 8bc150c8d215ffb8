"""Whose fault an error is: the inputs', the package's, or somebody else's.

What describes the inputs becomes `InvalidInput` or `LimitExceeded`. What only a slip in the code
raises becomes `InternalError`. All else passes as the object that it is: an operator of the user's
own that fails, a warning that was made an error, a NaN that JAX was asked to find, the exception
of a signal's handler.
"""

from __future__ import annotations

import platform
import sys

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData
from sardonyx.errors import InternalError, InvalidInput, LimitExceeded, SardonyxError
from sardonyx.printable import printable

# How much of a reason a message tells.
LONGEST = 500

# What ops and array libraries raise for inputs that do not fit.
_ABOUT_INPUTS = (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError)
# What Python and array libraries raise for slips of whoever wrote the code that calls them.
_SLIPS = (
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    LookupError,
    NameError,
    ReferenceError,
    RuntimeError,
    StopIteration,
    SystemError,
)
_LIBRARIES = ("builtins", "numpy", "jax", "jaxlib", "cupy", "cupy_backends", "ml_dtypes")
# TypeErrors of JAX for code that reads values which are not there yet; no input is at fault.
_READS_TOO_EARLY = (
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
    "NonConcreteBooleanIndexError",
)
# What XLA says of callbacks that users brought, and of devices that fail.
_OF_OTHERS = ("callback", "UNAVAILABLE", "CANCELLED", "ABORTED", "DEADLINE_EXCEEDED")
# The mark of an error that an operator of the user's own has raised: the opset.
_OWN = "sardonyx_opset"


def mark_own(error: Exception, opset: int) -> None:
    """Remember that an operator of the user's own raised it, or let it pass."""
    error.__dict__.setdefault(_OWN, opset)


def own_opset(error: Exception) -> int | None:
    """The opset of the user's own operator that raised it; None if it was none."""
    opset: int | None = error.__dict__.get(_OWN)
    return opset


def translated(error: Exception, what: str, backend: Backend) -> Exception:
    """The error in our words, after `what` has happened; or itself, where it is not ours."""
    if isinstance(error, (SardonyxError, Warning, FloatingPointError)):
        return error
    if own_opset(error) is not None:
        return _about_inputs(error, what, backend) if isinstance(error, ValueError) else error
    text = reason(error, backend)
    if isinstance(error, MemoryError) or "out of memory" in text or "too large" in text:
        return LimitExceeded(f"{what}: {text}. Use smaller inputs, or a device with more memory.")
    if isinstance(error, RecursionError):
        return LimitExceeded(f"{what}: {text}. Nest the model less deeply.")
    if backend.explain(error) or (isinstance(error, _ABOUT_INPUTS) and not _reads_too_early(error)):
        return _about_inputs(error, what, backend)
    return _internal(error, what, text) if _is_slip(error) else error


def _about_inputs(error: Exception, what: str, backend: Backend) -> InvalidInput:
    way_out = " Check the shapes and dtypes that reach it against those the model declares."
    if isinstance(error, BadData) or backend.explain(error):
        way_out = ""  # The reason says all that there is to do.
    return InvalidInput(f"{what}: {reason(error, backend)}.{way_out}")


def _reads_too_early(error: Exception) -> bool:
    return any(base.__name__ in _READS_TOO_EARLY for base in type(error).__mro__)


def _is_slip(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return False
    of_others = type(error).__name__ == "JaxRuntimeError" and _is_of_others(str(error))
    return (isinstance(error, _SLIPS) and not of_others) or _reads_too_early(error)


def _is_of_others(text: str) -> bool:
    return any(said in text.partition("\n")[0] for said in _OF_OTHERS)


def _internal(error: Exception, what: str, text: str) -> InternalError:
    libraries = (sys.modules.get(name) for name in ("jax", "cupy"))
    versions = [f"{m.__name__} {getattr(m, '__version__', '')}" for m in libraries if m]
    versions += [f"numpy {np.__version__}", f"Python {platform.python_version()}"]
    own = getattr(sys.modules["sardonyx"], "__version__", "")
    return InternalError(
        f"{what}: {type(error).__name__}: {text}. This is a fault of sardonyx {own}, or of a "
        f"library under it ({', '.join(versions)}): please report it with the model."
    )


def reason(error: Exception, backend: Backend) -> str:
    """What the error says, in one line."""
    text = backend.explain(error) or str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0], LONGEST).rstrip(".")

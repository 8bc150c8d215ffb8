"""Translation of errors by their cause: the inputs, a bug of the package, or neither.

Errors about the inputs become `InvalidInput` or `LimitExceeded`. Errors that only a bug can raise
become `InternalError`. All others pass unchanged: from a user's own operator, a warning that is
raised as an error, a NaN that JAX searches for, the exception of a signal handler.
"""

from __future__ import annotations

import platform
import sys

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData
from sardonyx.errors import InternalError, InvalidInput, LimitExceeded, SardonyxError
from sardonyx.printable import printable
from sardonyx.version import __version__

# Maximum characters of a library's message in ours.
LONGEST = 500

# Errors that ops and array libraries raise for inputs that do not fit.
_ABOUT_INPUTS = (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError)
# Errors that Python and array libraries raise for bugs in the code that calls them.
_BUGS = (
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
# JAX's TypeErrors for code that reads traced values; the inputs are not at fault.
_READS_TOO_EARLY = (
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
    "NonConcreteBooleanIndexError",
)
# Words in XLA's errors about users' callbacks, and about devices that fail.
_OF_OTHERS = ("callback", "UNAVAILABLE", "CANCELLED", "ABORTED", "DEADLINE_EXCEEDED")
# The attribute that marks an error of a user's own operator, with the operator's opset.
_USER_OPSET = "sardonyx_opset"


def mark_user_op(error: Exception, opset: int) -> None:
    """Mark an error as raised in a user's own operator."""
    error.__dict__.setdefault(_USER_OPSET, opset)


def user_op_opset(error: Exception) -> int | None:
    """Return the opset of the user's own operator that raised the error, or None."""
    opset: int | None = error.__dict__.get(_USER_OPSET)
    return opset


def translated(error: Exception, summary: str, backend: Backend) -> Exception:
    """Return a `SardonyxError` that begins with `summary`, or the error itself if not ours."""
    if isinstance(error, (SardonyxError, Warning, FloatingPointError)):
        return error
    if user_op_opset(error) is not None:
        return _about_inputs(error, summary, backend) if isinstance(error, ValueError) else error
    text = reason(error, backend)
    if isinstance(error, MemoryError) or "out of memory" in text or "too large" in text:
        return LimitExceeded(
            f"{summary}: {text}. Use smaller inputs, or a device with more memory."
        )
    if isinstance(error, RecursionError):
        return LimitExceeded(f"{summary}: {text}. Nest the model less deeply.")
    if backend.explain(error) or (isinstance(error, _ABOUT_INPUTS) and not _reads_too_early(error)):
        return _about_inputs(error, summary, backend)
    return _internal(error, summary, text) if _is_bug(error) else error


def _about_inputs(error: Exception, summary: str, backend: Backend) -> InvalidInput:
    advice = " Check the shapes and dtypes of its inputs against the model's declarations."
    if isinstance(error, BadData) or backend.explain(error):
        advice = ""  # The reason already says what to do.
    return InvalidInput(f"{summary}: {reason(error, backend)}.{advice}")


def _reads_too_early(error: Exception) -> bool:
    return any(base.__name__ in _READS_TOO_EARLY for base in type(error).__mro__)


def _is_bug(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return False
    first_line = str(error).partition("\n")[0]
    of_others = type(error).__name__ == "JaxRuntimeError" and any(
        word in first_line for word in _OF_OTHERS
    )
    return (isinstance(error, _BUGS) and not of_others) or _reads_too_early(error)


def _internal(error: Exception, summary: str, text: str) -> InternalError:
    libraries = (sys.modules.get(name) for name in ("jax", "cupy"))
    versions = [f"{m.__name__} {getattr(m, '__version__', '')}" for m in libraries if m]
    versions += [f"numpy {np.__version__}", f"Python {platform.python_version()}"]
    return InternalError(
        f"{summary}: {type(error).__name__}: {text}. This is a bug in sardonyx {__version__} or "
        f"in a library that it uses ({', '.join(versions)}): please report it with the model."
    )


def reason(error: Exception, backend: Backend) -> str:
    """Return the error's message in one line."""
    text = backend.explain(error) or str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0], LONGEST).rstrip(".")

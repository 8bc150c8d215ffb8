"""The exceptions with onnxruntime's names, and the translation of sardonyx's own into them.

Like onnxruntime's they are no built-in exceptions, so that `except ValueError` around a call means
the same for both. Where onnxruntime raises a built-in exception, the error here is of that class
too: `InvalidInput`, `WrongType` or `RefusedCall`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.errors import (
    BackendUnavailable,
    InternalError,
    InvalidInput,
    LimitExceeded,
    SardonyxError,
    UnsupportedModel,
)


class OrtError(SardonyxError):
    """The base class of the errors with onnxruntime's names."""


class Fail(OrtError):
    """A model, or a call of it, cannot run."""


class InvalidArgument(OrtError):
    """An input or an output does not have that name, dtype or shape, or a model has no graph."""


class NoSuchFile(OrtError):
    """The file of a model does not exist."""


class NoModel(OrtError):
    """There is no model."""


class EngineError(OrtError):
    """The library below failed."""


class RuntimeException(OrtError):
    """A call exceeds a limit, or sardonyx itself failed."""


class InvalidProtobuf(OrtError):
    """A file or bytes are not an ONNX model."""


class ModelLoaded(OrtError):
    """A model is loaded already."""


class NotImplemented(OrtError):  # noqa: A001  (onnxruntime's name)
    """Something that sardonyx does not support."""


class InvalidGraph(OrtError):
    """A node of the model contradicts the standard."""


class EPFail(OrtError):
    """The backend or device of a provider failed."""


class ModelLoadCanceled(OrtError):
    """The options of a session canceled its creation."""


class ModelRequiresCompilation(OrtError):
    """A model must be compiled before it is loaded."""


class NotFound(OrtError):
    """Something that was named does not exist."""


class DeviceReset(OrtError):
    """A device was reset."""


class WrongType(SardonyxError, TypeError):
    """An argument is of a type that nobody can pass there."""


class RefusedCall(SardonyxError, RuntimeError):
    """A call for which onnxruntime raises `RuntimeError`."""


# The first class that fits counts; whatever else a call of a model refuses is a `Fail`.
_OF_A_CALL: tuple[tuple[type[SardonyxError], type[OrtError]], ...] = (
    (LimitExceeded, RuntimeException),
    (InternalError, RuntimeException),
    (UnsupportedModel, NotImplemented),
    (BackendUnavailable, EPFail),
    (SardonyxError, Fail),
)


def of_a_call(error: SardonyxError) -> SardonyxError:
    """Return the error with onnxruntime's name for an error of a model's call.

    >>> of_a_call(LimitExceeded("The inputs are too large."))
    RuntimeException('The inputs are too large.')
    """
    if isinstance(error, OrtError):
        return error
    kind = next(new for old, new in _OF_A_CALL if isinstance(error, old))
    return kind(str(error))


@contextmanager
def named_as_onnxruntimes() -> Iterator[None]:
    """Raise the errors of a model's call under onnxruntime's names."""
    try:
        yield
    except OrtError:
        raise
    except SardonyxError as error:
        raise of_a_call(error) from error


def require_text(**values: object) -> None:
    """Require each value to be a string.

    >>> require_text(logid="")
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise WrongType(f"'{name}' is {value!r:.100}: pass a string.")


def unsupported(error: SardonyxError) -> NotImplemented:
    """Return the error for a file that sardonyx does not support.

    >>> unsupported(UnsupportedModel("The format is another."))
    NotImplemented('The format is another.')
    """
    return NotImplemented(str(error))


def refused(what: str, instead: str) -> NotImplemented:
    """Return the error for what sardonyx leaves out.

    >>> refused("Sparse tensors are", "pass dense arrays")
    NotImplemented('Sparse tensors are not supported: pass dense arrays.')
    """
    return NotImplemented(f"{what} not supported: {instead.rstrip('.')}.")


__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidInput",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OrtError",
    "RefusedCall",
    "RuntimeException",
    "WrongType",
    "named_as_onnxruntimes",
    "of_a_call",
    "refused",
    "require_text",
    "unsupported",
]

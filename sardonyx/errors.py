"""What sardonyx raises: one family, six members.

Every message is one paragraph that says what is wrong, where it is, and the way out.
"""

from __future__ import annotations

from sardonyx.printable import printable


class SardonyxError(Exception):
    r"""The family: catch this to catch all that sardonyx itself reports.

    Messages quote names of the model; control characters in them are escaped, and long ones
    shortened.

    >>> print(SardonyxError("The model has no output 'y\x1b[2J'."))
    The model has no output 'y\x1b[2J'.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(a) if isinstance(a, str) else a for a in arguments))


class InvalidModel(SardonyxError):
    """The file is no ONNX model, or contradicts itself or the standard."""


class UnsupportedModel(SardonyxError):
    """The model is sound, but asks for something that sardonyx does not have."""


class InvalidInput(SardonyxError):
    """What was passed to a model does not fit it."""


class LimitExceeded(SardonyxError):
    """Going on would take more memory, time or nesting than is allowed."""


class BackendUnavailable(SardonyxError):
    """The backend or device that was asked for is not installed or not present."""


class InternalError(SardonyxError):
    """Sardonyx itself, or the array library under it, is at fault: please report it."""

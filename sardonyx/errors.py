"""The exceptions of sardonyx: one family, and the built-in exceptions that two of them also are.

`except SardonyxError` catches everything that sardonyx reports. Code that knows nothing of
sardonyx can catch built-in exceptions: `InvalidInput` is a `ValueError` too, and `MissingFile` is
a `FileNotFoundError` too. Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import errno

from sardonyx.printable import printable


class SardonyxError(Exception):
    r"""The base class of all errors that sardonyx reports.

    Messages quote names of the model; control characters in them are escaped, and long ones
    shortened.

    >>> print(SardonyxError("The model has no output 'y\x1b[2J'."))
    The model has no output 'y\x1b[2J'.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(a) if isinstance(a, str) else a for a in arguments))


class InvalidModel(SardonyxError):
    """The file is not an ONNX model, or it contradicts itself or the standard."""


class MissingFile(InvalidModel, FileNotFoundError):
    """The file of a model, of its weights or of params does not exist.

    >>> import sardonyx
    >>> try:
    ...     sardonyx.load("nowhere.onnx")
    ... except FileNotFoundError as error:
    ...     print(error)
    There is no file 'nowhere.onnx': check the path.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.errno = errno.ENOENT


class UnsupportedModel(SardonyxError):
    """The model is valid, but uses something that sardonyx does not support."""


class InvalidInput(SardonyxError, ValueError):
    """An argument is wrong: an input of a call, an option, or a value to assign.

    >>> import sardonyx
    >>> try:
    ...     sardonyx.load("examples/encoder.onnx", max_signatures=0)
    ... except ValueError as error:
    ...     print(error)
    A model keeps at least one signature, not 0: pass such a whole number.
    """


class LimitExceeded(SardonyxError):
    """A model or a call would exceed a limit of memory, time or nesting; see `Limits`."""


class BackendUnavailable(SardonyxError):
    """The backend or device that you named is not installed or not present."""


class InternalError(SardonyxError):
    """Sardonyx itself, or the array library below it, failed: please report it."""

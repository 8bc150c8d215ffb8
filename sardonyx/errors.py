"""What sardonyx raises: one family, five members.

Every message is one paragraph that says what is wrong, where it is, and the way out.
"""


class SardonyxError(Exception):
    """The family: catch this to catch all that sardonyx itself reports."""


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

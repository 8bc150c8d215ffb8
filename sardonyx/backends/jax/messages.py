"""Messages of JAX and XLA in the user's terms."""

from __future__ import annotations

_LACKS_TYPE = (
    "XLA cannot compute here with one of the types, such as a float of six bits; cast to another "
    "type, or load the model with backend='numpy'"
)
_OUT_OF_MEMORY = "the device is out of memory; use smaller inputs or another device"
_MEANINGS = {
    "donate the same buffer twice": (
        "an array that is donated is passed for two inputs; pass a copy for one of them"
    ),
    "has been deleted": ("an input's buffer was already deleted or donated; pass a live array"),
    "incompatible devices": (
        "its arrays lie on different devices; move them with jax.device_put, or load the model "
        "with device= for the device where they are"
    ),
    "Invalid XLA PrimitiveType": _LACKS_TYPE,
    "translate module to LLVM": _LACKS_TYPE,
    "RESOURCE_EXHAUSTED": _OUT_OF_MEMORY,
    # XLA calls them internal: of CUDA's driver, and of its libraries.
    "CUDA_ERROR_OUT_OF_MEMORY": _OUT_OF_MEMORY,
    "_STATUS_ALLOC_FAILED": _OUT_OF_MEMORY,
}


def explained(message: str) -> str | None:
    """The meaning of a message for a user; None for other messages."""
    if "Disallowed" in message:
        return message.splitlines()[0]
    return next((meaning for part, meaning in _MEANINGS.items() if part in message), None)

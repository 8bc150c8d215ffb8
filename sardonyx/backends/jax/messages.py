"""What messages of JAX and XLA mean to a user, by what they hold."""

from __future__ import annotations

_LACKS_TYPE = (
    "XLA cannot compute here with one of the types, such as a float of six bits; cast to another "
    "type, or load the model with backend='numpy'"
)
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
    "RESOURCE_EXHAUSTED": "the device is out of memory; use smaller inputs or another device",
}


def explained(message: str) -> str | None:
    """The message in a user's terms; None where it says too little."""
    if "Disallowed" in message:
        return message.splitlines()[0]
    return next((meaning for said, meaning in _MEANINGS.items() if said in message), None)

"""Exported programs, of which most commands need the ONNX model itself."""

from __future__ import annotations

from sardonyx.errors import InvalidInput
from sardonyx.exporting.archive import is_archive


def require_onnx(path: str) -> None:
    """Refuse a file of `sardonyx export`, whose nodes and values are not known any more."""
    if is_archive(path):
        raise InvalidInput(
            f"'{path}' is an exported program, whose nodes are not known: pass the ONNX model that "
            "it was exported from."
        )

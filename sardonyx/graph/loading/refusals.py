"""Errors for files that contradict themselves or the standard: what is wrong, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import onnx

from sardonyx.errors import InvalidModel

EXPORT_AGAIN = "export the model again"


def invalid(problem: str, advice: str = EXPORT_AGAIN) -> InvalidModel:
    """Return the error for a file that has this problem."""
    return InvalidModel(f"{problem}: {advice}.")


def refuse(tensor: onnx.TensorProto, problem: str, advice: str = EXPORT_AGAIN) -> NoReturn:
    """Raise the error for a tensor that has this problem."""
    raise invalid(f"{title(tensor)}: {problem}", advice)


def title(tensor: onnx.TensorProto) -> str:
    """Return a tensor's title for messages. Its name may have any length."""
    return f"Tensor {tensor.name[:100]!r}" if tensor.name else "A tensor without a name"


def refuse_duplicates(names: Iterable[str], problem: str) -> None:
    """Refuse two equal names; the problem ends where the error shows the name."""
    names = list(names)
    if len(set(names)) == len(names):
        return
    for name, count in Counter(names).items():
        if count > 1:
            raise invalid(f"{problem[0].upper()}{problem[1:]} '{name}'", "rename one")

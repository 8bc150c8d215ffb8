"""Outputs in a .npz file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput


def save_outputs(path: str, outputs: Mapping[str, Any]) -> None:
    """Write outputs to a .npz file by name; the arrays of a sequence as "name.0", "name.1".

    NumPy writes bfloat16 and the like as bytes without a dtype.
    """
    arrays = dict(_arrays(outputs))
    try:
        # An open file, since NumPy adds a suffix to other names.
        with open(Path(path), "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise InvalidInput(
            f"The outputs cannot be written to '{path}': {error.strerror or error}."
        ) from None


def _arrays(outputs: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for name, value in outputs.items():
        if isinstance(value, (list, tuple)):
            yield from _arrays({f"{name}.{i}": each for i, each in enumerate(value)})
        elif isinstance(value, Mapping):
            yield from _arrays({f"{name}.{key}": each for key, each in value.items()})
        elif value is not None:
            array = np.asarray(value)
            yield name, array.astype(str) if array.dtype == object else array

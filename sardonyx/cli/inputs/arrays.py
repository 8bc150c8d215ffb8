"""Arrays in NumPy's files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import ValueInfo
from sardonyx.printable import first_line

Array = np.ndarray[Any, Any]
# The names that `numpy.savez` gives to arrays without a name.
_BY_POSITION = re.compile(r"arr_(\d{1,6})")


def array_of_npy(path: Path) -> Array:
    """Return the array in a .npy file."""
    array: Array = _loaded(path, "array", np.ndarray)
    return array


def arrays_of_npz(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Return the arrays in a .npz file by name; arrays without a name are in the order of `names`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "inputs.npz"
    >>> np.savez(path, np.zeros(2), y=np.ones(3))
    >>> {name: array.shape for name, array in arrays_of_npz(path, ["x", "y"]).items()}
    {'y': (3,), 'x': (2,)}
    """
    arrays: dict[str, Array] = {}
    with _loaded(path, "arrays", np.lib.npyio.NpzFile) as file:
        for key in file.files:
            match = None if key in names else _BY_POSITION.fullmatch(key)
            place = int(match[1]) if match else len(names)
            try:
                arrays[names[place] if place < len(names) else key] = file[key]
            except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
                raise _unreadable(path, f"array '{key}'", error) from None
    return arrays


def _loaded(path: Path, what: str, kind: Any) -> Any:
    try:
        content = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, zipfile.BadZipFile) as error:
        raise _unreadable(path, what, error) from None
    if not isinstance(content, kind):
        raise InvalidInput(f"'{path}' has no {what}: check its name, which says otherwise.")
    return content


def _unreadable(path: Path, what: str, error: Exception) -> InvalidInput:
    reason = "it holds Python objects" if "pickle" in str(error) else first_line(error)
    return InvalidInput(
        f"No {what} can be read from '{path}': {reason}. Pass a file that numpy.save or "
        "numpy.savez wrote."
    )


def as_declared(array: Array, info: ValueInfo) -> Array:
    """Return an array of NumPy's file in the dtype that the model declares, if NumPy has no name.

    NumPy writes bfloat16, float8 and the like as bytes without a dtype.
    """
    wanted = info.dtype
    if array.dtype.kind == "V" and wanted is not None and array.dtype.names is None:
        if array.dtype.itemsize == wanted.itemsize and wanted.kind != "O":
            return array.view(wanted)
        raise InvalidInput(
            f"The input '{info.name}' ({info}) is a file of bytes without a dtype, "
            f"{array.dtype.itemsize} for each element: write it with a dtype of NumPy."
        )
    return array

"""Texts of signatures for log messages: what one is, and how it differs from the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sardonyx.graph.ir import ValueInfo
from sardonyx.printable import LONGEST_NAME, shortened

# A key of a signature: the names of donated inputs, and the kind of each input (see `key_of`).
Key = tuple[tuple[str, ...], tuple[Any, ...]]

# Maximum number of other signatures, the last ones, that a new signature is compared with.
MOST_COMPARED = 64


def signature_text(key: Key, infos: Sequence[ValueInfo]) -> str:
    """Return a signature as text.

    >>> import numpy as np
    >>> x = ValueInfo("x", "tensor(float)", np.dtype(np.float32), ("n", 3))
    >>> signature_text(((), ((np.ndarray, (2, 3), np.dtype(np.float32)),)), [x])
    'x: float32[2, 3]'
    """
    donated, kinds = key
    pairs = zip(infos, kinds, strict=True)
    inputs = [f"{_name(info)}: {_kind_text(kind)}" for info, kind in pairs]
    inputs += [f"donated {', '.join(donated)}"] if donated else []
    return ", ".join(inputs) or "no inputs"


def difference(key: Key, infos: Sequence[ValueInfo], others: Iterable[Key]) -> str:
    """Return what distinguishes a signature from the one of the others that is most like it."""
    compared = [other for other in others if other != key][-MOST_COMPARED:]
    if not compared:
        return "there is no other signature"
    closest = min(reversed(compared), key=lambda other: len(_different(key, other)))
    changes = [
        _change(infos[place], key[1][place], closest[1][place])
        for place in _different(key, closest)
        if place < len(infos)
    ]
    if key[0] != closest[0]:
        changes.append(f"it donates {', '.join(key[0]) or 'nothing'}")
    count = len(compared)
    which = "the other signature" if count == 1 else f"the closest of {count} other signatures"
    return f"{'; '.join(changes)} in {which}"


def _different(key: Key, other: Key) -> list[int]:
    """Return the places of inputs that differ; one more for other donated inputs."""
    pairs = enumerate(zip(key[1], other[1], strict=False))
    places = [place for place, (one, two) in pairs if one != two]
    return [*places, *([len(key[1])] if key[0] != other[0] else [])]


def _change(info: ValueInfo, new: Any, old: Any) -> str:
    texts = _kind_text(new), _kind_text(old)
    if texts[0] == texts[1]:
        return f"{_name(info)} is an array of {_library(new)} and was one of {_library(old)}"
    return f"{_name(info)} is {texts[0]} and was {texts[1]}"


def _name(info: ValueInfo) -> str:
    return shortened(info.name, LONGEST_NAME)


def _kind_text(kind: Any) -> str:
    if kind is None:
        return "absent"
    if _is_array(kind):
        _, shape, dtype = kind
        name = "string" if str(dtype) == "object" else str(dtype)
        return f"{name}{list(shape)}"
    is_map = len(kind) == 2 and _is_array(kind[1])
    return f"map of {len(kind[0])}" if is_map else f"sequence of {len(kind)}"


def _is_array(kind: Any) -> bool:
    return isinstance(kind, tuple) and len(kind) == 3 and isinstance(kind[0], type)


def _library(kind: Any) -> str:
    return str(kind[0].__module__.partition(".")[0]) if _is_array(kind) else "another kind"

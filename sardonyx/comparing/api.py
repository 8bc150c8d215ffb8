"""`sardonyx.compare`: two computations of one graph, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sardonyx.api import load
from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.comparing.comparison import Comparison, Row
from sardonyx.comparing.differences import TOLERANCES, Difference, difference
from sardonyx.comparing.sides import ModelSide, RuntimeSide, SessionSide, Side, is_session
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import by_name
from sardonyx.graph.ir import Node, names_read
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.named_values import values_named, wanted_names
from sardonyx.graph.programs.compiler import NOW
from sardonyx.printable import printable

RUNTIME = "onnxruntime"
BACKENDS = ("jax", "numpy", "cupy")
# The first group of values; later ones are as large as the bytes of those before allow.
FIRST_GROUP = 32
# By which factor a group may be larger than the one before.
GROWTH = 8
# What one number as the tolerance holds for too.
_SHORT = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")


def compare(
    a: Any,
    b: Any,
    inputs: Any,
    *,
    values: str | Iterable[str] | None = None,
    tolerance: float | Mapping[str, float] | None = None,
    optimized: bool = False,
    group_bytes: int = 2**30,
) -> Comparison:
    """Compare all values of a graph on two sides, and find the first value that parts.

    A side is a `Model`, a path or bytes of a model, or an `onnxruntime.InferenceSession`, of which
    only the outputs are known. One side may be a word, which means the other side's model there:
    "onnxruntime", "jax", "numpy" or "cupy"; or a word and a model of its own, such as
    `("onnxruntime", "other.onnx")`. `inputs` are those of the model: a dict by name, a list
    by position, or one array.

    `values` are names and patterns, as in `Model.run`; None compares what all nodes compute. Values
    of two graphs are matched by name. Floats may differ by the `tolerance`, relative to the largest
    element of a value: a number, or a dict from dtypes such as "float32". All other types are
    compared exactly. onnxruntime fuses nodes only with `optimized=True`. Values are computed in
    groups of about `group_bytes`; random operators of a `Model` draw from key 0.

    >>> import numpy as np, sardonyx
    >>> x = np.ones((1, 8, 48), np.float32)
    >>> sardonyx.compare("examples/encoder.onnx", "numpy", x).agrees
    True
    """
    with TemporaryDirectory(prefix="sardonyx-") as folder:
        first, second = _sides(a, b, Path(folder), optimized=optimized)
        return _compared(first, second, inputs, values, tolerance, group_bytes)


def _compared(
    first: Side,
    second: Side,
    inputs: Any,
    values: str | Iterable[str] | None,
    tolerance: float | Mapping[str, float] | None,
    group_bytes: int,
) -> Comparison:
    reference = first if isinstance(first, ModelSide) else second
    if not isinstance(reference, ModelSide):
        raise InvalidInput(
            "Both sides are of onnxruntime: pass a Model, or a model's path, as one of them."
        )
    feeds = _feeds(inputs, reference.model)
    names = _common(reference, first, second, values)
    tolerances = dict(TOLERANCES)
    if isinstance(tolerance, Mapping):
        tolerances |= tolerance
    elif tolerance is not None:
        tolerances = dict.fromkeys([*TOLERANCES, *_SHORT], float(tolerance))
    known = dict(_initializers(first, second, tolerances))
    found: dict[str, Difference] = {}
    for ones, others in _groups(first, second, names, feeds, group_bytes):
        for name, one in ones.items():
            if name in others:
                found[name] = difference(one, others[name], tolerances)
    makers = {name: node for node in reference.graph.nodes for name in node.outputs}
    rows = tuple(_row(name, makers[name], known | found) for name in names if name in found)
    left = [side.names() if values is None else () for side in (first, second)]
    sets = [set(names) for names in left]
    return Comparison(
        f"a ({first.title})",
        f"b ({second.title})",
        rows,
        tuple(n for n in left[0] if n not in sets[1]),
        tuple(n for n in left[1] if n not in sets[0]),
        first.left_out | second.left_out,
    )


def _sides(a: Any, b: Any, folder: Path, *, optimized: bool) -> tuple[Side, Side]:
    if _is_word(a) and _is_word(b):
        raise InvalidInput("Both sides are words: pass a model, or its path, as one of them.")
    if _is_word(a):
        second = _side(b, None, folder, optimized=optimized)
        return _side(a, second, folder, optimized=optimized), second
    first = _side(a, None, folder, optimized=optimized)
    return first, _side(b, first if _is_word(b) else None, folder, optimized=optimized)


def _is_word(side: Any) -> bool:
    return isinstance(side, str) and side in (RUNTIME, *BACKENDS)


def _side(side: Any, other: Side | None, folder: Path, *, optimized: bool) -> Side:
    """Return a side; a word is the model of the `other` side, in that library.

    onnxruntime gets it as a file in the folder.
    """
    if is_session(side):
        return SessionSide(side)
    if isinstance(side, tuple):
        return _placed(side, folder, optimized=optimized)
    if other is None:
        return ModelSide(side if isinstance(side, Model) else load(side, compile="now"))
    if not isinstance(other, ModelSide):
        raise InvalidInput("A session does not tell its model: pass the model's path in its place.")
    if side == RUNTIME:
        return RuntimeSide(other.model, folder, optimized=optimized)
    return ModelSide(_elsewhere(other.model, find(side)))


def _placed(side: tuple[Any, ...], folder: Path, *, optimized: bool) -> Side:
    """Return the side of a word and a model."""
    if len(side) != 2 or not _is_word(side[0]) or _is_word(side[1]):
        words = ", ".join((RUNTIME, *BACKENDS))
        raise InvalidInput(
            f"A side that is a tuple is a word ({words}) and a model, but this one is "
            f"{printable(repr(side), 200)}."
        )
    word, model = side
    # Loaded on NumPy, since only its graph and weights are taken.
    other = model if isinstance(model, Model) else load(model, backend="numpy")
    return _side(word, ModelSide(other), folder, optimized=optimized)


def _elsewhere(model: Model, backend: Backend) -> Model:
    """Return the model on another backend, with its present weights."""
    same = Model(model._source, backend, replace(model._options, checked=False, compile=NOW))
    same.params.update(model._shared.weights.replaced())
    return same


def _feeds(inputs: Any, model: Model) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    return by_name((*model.inputs, *model.optional_inputs), given, {})


def _common(reference: ModelSide, first: Side, second: Side, values: Any) -> list[str]:
    """Return the values to compare, in the order of the graph."""
    both = set(first.names()).intersection(second.names())
    if values is not None:
        both &= set(values_named(reference.model._source, wanted_names(values, "values")))
    names = [name for name in reference.names() if name in both]
    if not names:
        raise InvalidInput("The two sides have no value of the same name to compare.")
    return names


def _initializers(
    first: Side, second: Side, tolerances: Mapping[str, float]
) -> Iterator[tuple[str, Difference]]:
    """Yield by how much the weights of two models differ; a side without them has the same ones."""
    if not (isinstance(first, ModelSide) and isinstance(second, ModelSide)):
        return
    for name in first.graph.initializers:
        if name in second.graph.initializers:
            one, other = first.initializer(name), second.initializer(name)
            yield name, difference(one, other, dict.fromkeys(tolerances, 0.0))


def _groups(
    first: Side, second: Side, names: Sequence[str], feeds: Mapping[str, Any], most: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the values of both sides, group by group."""
    at, size = 0, FIRST_GROUP
    while at < len(names):
        group = names[at : at + size]
        # A model goes first: what it cannot return to NumPy, onnxruntime cannot either.
        ones = first.values(group, feeds)
        others = second.values(group, feeds)
        yield ones, others
        at += len(group)
        held = sum(_bytes(value) for value in (*ones.values(), *others.values()))
        size = int(min(GROWTH * len(group), max(1, most * len(group) // max(1, held))))


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return int(np.asarray(value).nbytes) if hasattr(value, "shape") else 0


def _row(name: str, node: Node, found: Mapping[str, Difference]) -> Row:
    inputs = {read: found[read] for read in names_read(node) if read in found}
    return Row(name, node.name, node.operator, found[name], inputs)

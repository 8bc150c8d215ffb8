"""`sardonyx.export`, and how `sardonyx.load` loads the archives that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sardonyx.arguments import check_level, precision_level
from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.exporting.archive import read
from sardonyx.graph.loading.read import Readable
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.resolve import Opened

if TYPE_CHECKING:
    from sardonyx.exporting.artefact import Artefact


def export(
    model: Model | Readable,
    signature: Mapping[str, Any] | None = None,
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
    *,
    largest: int | Mapping[str, int] | None = None,
    precision: str | None = None,
    strict: bool | None = None,
) -> Artefact:
    """Export a model as a portable program, for platforms that need not be present.

    `signature` maps an input to its shape, of numbers and of names for free sizes, or to an array,
    which fixes the value of the input. Other inputs have the shapes that the model declares. If the
    graph needs a free size as a number, the error names the node; put a number in its place.

    The program accepts sizes up to 1,048,576, or up to `largest`: one number, or one per name. If
    the graph behaves differently from some smaller size on, the program accepts sizes up to there.
    `artefact.bounds` lists the bounds; calls beyond them are refused.

    `precision` is a word of `load`; None is that of a loaded model, or "highest".

    `artefact.save(path)` writes one file that includes the weights; `sardonyx.load(path)` loads it.

    >>> import numpy as np, sardonyx
    >>> artefact = sardonyx.export("examples/encoder.onnx", {"x": ("batch", 8, 48)})
    >>> program = sardonyx.load(artefact.to_bytes())
    >>> program(np.zeros((3, 8, 48), np.float32)).shape
    (3, 8, 48)
    """
    check_level(strict)
    level = None if precision is None else precision_level(precision)
    source, params, checks_types, own = Opened.of(model, strict=strict)
    # JAX is imported only where it is asked for.
    make = import_module("sardonyx.exporting.lowering").exported
    artefact: Artefact = make(
        source,
        params,
        signature,
        platforms,
        largest=largest,
        precision=level or own,
        strict=checks_types,
    )
    return artefact


def load_exported(source: Any, backend: str | Backend | None, device: Any) -> Any:
    """Load the `ExportedModel` from a file, bytes or an open file."""
    if backend not in (None, "jax"):
        raise InvalidInput(
            f"An exported program runs on JAX, not on {backend!r}: leave out backend=."
        )
    make = import_module("sardonyx.exporting.model").ExportedModel
    return make(read(source), find("jax", device))

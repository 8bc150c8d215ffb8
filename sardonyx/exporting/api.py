"""What people call: `sardonyx.export`, and what `sardonyx.load` does with what it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sardonyx.arguments import check_switches
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
    strict: bool = True,
) -> Artefact:
    """Make a portable program of a model, for platforms that need not be here.

    `signature` gives inputs a shape of numbers and of names for sizes that stay free, or an array,
    where an input shall have that value for good. Inputs that it leaves out have the shape that the
    model declares. Where the graph needs the number of a size that has a name, the error names the
    node; put a number in its place.

    A program is for sizes up to 1,048,576, or up to `largest`: one number, or one for each name.
    Where the graph does something else before that, it ends there. `artefact.bounds` has the
    sizes, and a call of others is refused.

    `artefact.save(path)` writes one file with the weights in it, and `sardonyx.load(path)` runs it.

    >>> import numpy as np, sardonyx
    >>> artefact = sardonyx.export("examples/encoder.onnx", {"x": ("batch", 8, 48)})
    >>> program = sardonyx.load(artefact.to_bytes())
    >>> program(np.zeros((3, 8, 48), np.float32)).shape
    (3, 8, 48)
    """
    check_switches(strict=strict)
    source, params, strict = Opened.of(model, strict=strict)
    # JAX is imported only where it is asked for.
    make = import_module("sardonyx.exporting.lowering").exported
    made: Artefact = make(source, params, signature, platforms, largest=largest, strict=strict)
    return made


def load_exported(source: Any, backend: str | Backend | None, device: Any) -> Any:
    """The `ExportedModel` in a file, bytes or an open file."""
    if backend not in (None, "jax"):
        raise InvalidInput(f"An exported program runs on JAX, not on {backend!r}: leave backend=.")
    make = import_module("sardonyx.exporting.model").ExportedModel
    return make(read(source), find("jax", device))

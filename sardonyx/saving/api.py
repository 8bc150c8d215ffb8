"""`sardonyx.save`: a model as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sardonyx.arguments import check_switches
from sardonyx.backends.private_folder import path_of
from sardonyx.errors import InvalidInput
from sardonyx.graph.model.model import Model
from sardonyx.saving.files import write_model
from sardonyx.saving.protos import proto_of, weights_of

# Bytes of weights from which they are written beside the model: protobuf ends at 2 GiB.
LARGEST_INSIDE = 2**30


def save(
    model: Model,
    path: str | os.PathLike[str],
    *,
    params: Mapping[str, Any] | None = None,
    external: bool | None = None,
) -> None:
    """Write a model to an ONNX file, with its present `model.params`.

    The file has what the loaded one had: names, metadata, functions, opsets, texts. `params` are
    weights to write in place of the model's own, such as those that `to_jax` returned and that
    were trained. They are written in the types of the model, which must hold them exactly:
    bfloat16 becomes float32, float32 and int32 become float64 and int64.

    With `external` the weights are written to a second file beside it, named after it with ".data"
    at its end; None does so for 1 GiB of weights or more. Both files are written under other names
    and renamed into place, so that a model that was loaded from that very path can be saved there.

    >>> import numpy as np, sardonyx, tempfile
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> path = tempfile.mkdtemp() + "/model.onnx"
    >>> sardonyx.save(model, path)
    >>> again, x = sardonyx.load(path, backend="numpy"), np.ones((1, 8, 48), np.float32)
    >>> bool((again(x) == model(x)).all())
    True
    """
    if not isinstance(model, Model):
        raise InvalidInput(
            f"A {type(model).__name__} cannot be saved as ONNX: pass a model that sardonyx.load or "
            "sardonyx.record returned."
        )
    file = Path(path_of(path, "A model is saved to the path of a file"))
    if params is not None and not isinstance(params, Mapping):
        raise InvalidInput(
            f"'params' is a {type(params).__name__}: pass a dict from names of initializers to "
            "arrays, as sardonyx.to_jax returns it."
        )
    if external is not None:
        check_switches(external=external)
    weights = weights_of(model, params or {})
    size = sum(array.nbytes for array in weights.values())
    is_external = size >= LARGEST_INSIDE if external is None else external
    proto = proto_of(model._source)
    write_model(proto, weights, file, is_external=is_external)

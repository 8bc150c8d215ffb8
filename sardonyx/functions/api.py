"""`sardonyx.opset`: the operators of an opset as functions."""

from __future__ import annotations

import onnx

from sardonyx.arguments import check_count
from sardonyx.errors import InvalidInput
from sardonyx.functions.namespace import DOMAINS, Opset
from sardonyx.graph.standard.operators import newest_version
from sardonyx.graph.standard.schema import refuse_future


def opset(version: int | None = None, /, **domains: int) -> Opset:
    """Return the operators of an opset as functions on arrays; None is the newest opset.

    They run on NumPy, JAX and CuPy arrays and on those of other libraries, under `jax.jit`,
    `jax.grad` and `vmap` too. `sardonyx.record` turns functions written with them into models.

    Inputs go by position or by the standard's names, and numbers and lists become arrays of the
    dtype that the operator asks for. Attributes go by name. Several results are a named tuple;
    optional results are left out unless `outputs=` asks for them, by number or by name.

    Other domains are attributes, of the version that was released with the opset, or that a keyword
    says: `opset(20, ml=3).ml.Scaler`, and `microsoft`, `training` and `preview`.

    >>> import numpy as np, sardonyx
    >>> O = sardonyx.opset(20)
    >>> O.Clip(np.float32([-1, 5, 9]), max=6.0)
    array([-1.,  5.,  6.], dtype=float32)
    >>> values, indices = O.TopK(np.float32([3, 1, 2]), [2])
    >>> indices
    array([0, 2])
    """
    if version is None:
        version = onnx.defs.onnx_opset_version()
    check_count(version, "An opset is a number from 1 on")
    refuse_future("", version, "the call")
    others = {name: _released(name, version) for name in DOMAINS}
    for name, number in domains.items():
        if name not in DOMAINS:
            raise InvalidInput(f"There is no domain '{name}': pass one of {', '.join(DOMAINS)}.")
        check_count(number, f"The opset of {name} is a number from 1 on")
        refuse_future(DOMAINS[name], number, "the call")
        others[name] = number
    return Opset("", version, others)


def _released(name: str, version: int) -> int:
    """Return the opset of another domain in the first release of onnx with this opset."""
    column = {"ml": 3, "training": 4}.get(name)
    if column is None:
        return newest_version(DOMAINS[name]) or 1
    rows = [row for row in onnx.helper.VERSION_TABLE if row[2] >= version and len(row) > column]
    return int(rows[0][column]) if rows else 1

"""One node of com.microsoft in sardonyx, as users run it, and in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

import sardonyx
from sardonyx.backends.base import Backend
from tests.ops.oracle import onnxruntime_run

DOMAIN = "com.microsoft"


def results(xp: Backend, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The results on NumPy arrays of the host; the program is compiled where the backend does."""
    found = sardonyx.run_op(
        op, *inputs, domain=DOMAIN, opset=1, outputs=outputs, backend=xp, **attributes
    )
    return np.asarray(found) if outputs == 1 else tuple(map(np.asarray, found))


def assert_agrees(
    xp: Backend, op: str, *inputs: Any, outputs: int = 1, ulps: float = 0, **attributes: Any
) -> None:
    """Require onnxruntime's results, to within some units in the last place of their largest."""
    expected = onnxruntime_run(op, *inputs, opset=1, domain=DOMAIN, outputs=outputs, **attributes)
    actual = results(xp, op, *inputs, outputs=outputs, **attributes)
    pairs = [(actual, expected)] if outputs == 1 else zip(actual, expected, strict=True)
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        largest = np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs))
        bound = ulps * float(np.finfo(theirs.dtype).eps) * float(largest)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)

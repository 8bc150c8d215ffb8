from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"


@pytest.mark.parametrize(
    ("name", "has_bias", "attributes"),
    [
        ("Gelu", False, {}),
        ("BiasGelu", True, {}),
        ("FastGelu", False, {}),
        ("FastGelu", True, {}),
        ("QuickGelu", False, {}),
        ("QuickGelu", False, {"alpha": 0.5}),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 8), (0, 8)])
def test_activations(
    xp: Backend, name: str, has_bias: bool, attributes: dict[str, Any], shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 3, size).astype(np.float32) for size in [shape, (8,)][: 1 + has_bias]]
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, **attributes)
    found = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.dtype == expected.dtype

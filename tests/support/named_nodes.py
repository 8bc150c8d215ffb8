"""A small graph with a weight, two named nodes and one without a name."""

from __future__ import annotations

import numpy as np

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.asarray([1, 2, 3], np.float32)
TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[n, 3] x, float[3] w) => (float[n, 3] y, int64[2] shape)
<float[3] w = {1, 2, 3}> {
  [mul] h = Mul (x, w)
  [act_node] act = Relu (h)
  y = Add (act, x)
  shape = Shape (x)
}"""

"""Models and files that several tests of the command line use."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import parser

ROOT = Path(__file__).parents[2]
ENCODER = str(ROOT / "examples" / "encoder.onnx")
STORED = ROOT / "examples" / "encoder.npz"

HEAD = '<ir_version: 10, opset_import: ["": 23, "own": 1]>\n'
# Two inputs that share a dimension, a weight, and two outputs.
SUMS = """g (float[n, 2] x, int64[n, 1] k) => (float[n, 2] y, int64[n, 1] l)
<float[2] w = {1.0, 2.0}> {
  s = Add (x, w)
  y = Exp (s)
  l = Add (k, k)
}"""


def saved(folder: Path, graph: str = SUMS, name: str = "small.onnx") -> str:
    """Write a model in ONNX's own text form; return its path."""
    path = folder / name
    onnx.save(parser.parse_model(HEAD + graph), path)
    return str(path)

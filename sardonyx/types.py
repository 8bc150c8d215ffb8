"""What the annotations of an operator of your own may say: where each of its values lives.

>>> import numpy as np, sardonyx
>>> from sardonyx.types import Array, Backend
>>> @sardonyx.op(domain="my.domain")
... def Halved(xp: Backend, x: Array, *, times: int = 1) -> Array:
...     return x / 2**times
>>> from onnx import parser
>>> text = '<ir_version: 10, opset_import: ["": 22, "my.domain": 1]> g (float[2] x) => (float[2] y)'
>>> proto = parser.parse_model(text + "{ y = my.domain.Halved <times = 2> (x) }")
>>> model = sardonyx.load(proto, backend="numpy", ops=[Halved])
>>> model(np.array([4.0, 8.0], np.float32))
array([1., 2.], dtype=float32)
"""

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import (
    Alias,
    Arrays,
    Body,
    DType,
    Floats,
    Host,
    Ints,
    Key,
    Map,
    Outputs,
    Shaped,
    Strings,
    Unsized,
    Value,
)

__all__ = [
    "Alias",
    "Array",
    "Arrays",
    "Backend",
    "Body",
    "DType",
    "Floats",
    "Host",
    "Ints",
    "Key",
    "Map",
    "Outputs",
    "Shaped",
    "Strings",
    "Unsized",
    "Value",
]

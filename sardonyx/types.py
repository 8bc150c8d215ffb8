"""Types to annotate with: those of models, and those of the values of an operator of your own.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.display.graph_view.view import GraphView
from sardonyx.functions.namespace import Opset
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.interface import BoundModel
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.model.stats import Stats
from sardonyx.graph.values.params import Params
from sardonyx.lora import LowRank
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
    Op,
    Outputs,
    OutputsRead,
    Shaped,
    Strings,
    Unsized,
    Value,
)
from sardonyx.recording.symbols import SymbolicArray
from sardonyx.sharding.report import Report
from sardonyx.to_jax.pure_function import PureFunction

if TYPE_CHECKING:
    from sardonyx.exporting.artefact import Artefact
    from sardonyx.exporting.model import ExportedModel
    from sardonyx.sharding.model import ShardedModel
    from sardonyx.targets.report import TargetReport

# Their modules import JAX, or what starts processes, which `import sardonyx` does not.
_LAZY = {
    "Artefact": "sardonyx.exporting.artefact",
    "ExportedModel": "sardonyx.exporting.model",
    "ShardedModel": "sardonyx.sharding.model",
    "TargetReport": "sardonyx.targets.report",
}

__all__ = [
    "Alias",
    "Array",
    "Arrays",
    "Artefact",
    "Backend",
    "Body",
    "BoundModel",
    "DType",
    "ExportedModel",
    "Floats",
    "GraphView",
    "Host",
    "Ints",
    "Key",
    "LowRank",
    "Map",
    "Memory",
    "Op",
    "Opset",
    "Outputs",
    "OutputsRead",
    "Params",
    "PureFunction",
    "Report",
    "Shaped",
    "ShardedModel",
    "Stats",
    "Strings",
    "SymbolicArray",
    "TargetReport",
    "Unsized",
    "Value",
    "ValueInfo",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sardonyx.types' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)

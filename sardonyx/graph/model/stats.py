"""Counts of what a model has done, and the memory that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from sardonyx.display.folding import fold
from sardonyx.display.markup import displayed
from sardonyx.display.tables import table
from sardonyx.display.units import counted


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the model was loaded. Printed, it is a short table."""

    calls: int
    # Calls whose signature had a recording already.
    hits: int
    # Signatures that have programs now, and signatures that were evicted.
    signatures: int
    evictions: int
    # Walks over the graph, those included that prove that padded calls are exact.
    traces: int
    # Segments compiled, segments that share the function of an equal one, and seconds spent.
    compiles: int
    shared: int
    compile_seconds: float
    # Segments so small that they run as calls of NumPy, where XLA would take longer.
    written_out: int
    # Runs of segments step by step, before they were compiled.
    interpreted: int
    # Why segments waited for the compiler in place of that, and how many.
    uninterpreted: Mapping[str, int]
    # Why segments run step by step on CuPy, or calls without cuDNN where it is installed, and how
    # many.
    unfused: Mapping[str, int]
    # Why fused segments run as one kernel after the other and not as a CUDA graph, and how many.
    uncaptured: Mapping[str, int]
    # Why steps run on the host since the device lacks their type, or segments are compiled with
    # other options than usual, and how many.
    workarounds: Mapping[str, int]
    # Bytes on the device: weights, prepared weights, and constants.
    bytes_held: int

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        values = [(f.name.replace("_", " "), getattr(self, f.name)) for f in fields(self)]
        rows = [(name, _number(value)) for name, value in values]
        reasons = [(n, v) for n, v in values if isinstance(v, Mapping) and v]
        return displayed(
            "Since the model was loaded",
            table(("", ""), rows, numbers=[1]),
            *(
                fold(
                    name,
                    table(("reason", "times"), list(why.items()), numbers=[1]),
                    note=counted(len(why), "reason"),
                )
                for name, why in reasons
            ),
        )

    def __str__(self) -> str:
        lines = [(f.name.replace("_", " "), getattr(self, f.name)) for f in fields(self)]
        return "\n".join(f"{name:<16}{_number(value):>16}" for name, value in lines)


def _number(value: float | Mapping[str, int]) -> str:
    if isinstance(value, Mapping):
        value = sum(value.values())
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

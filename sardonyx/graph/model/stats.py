"""What a model has done so far, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the model was loaded. Printed, it is a short table."""

    calls: int
    # Calls that found a program recorded for their shapes and dtypes.
    hits: int
    # Kinds of calls for which there are programs now, and how many were forgotten for others.
    signatures: int
    evictions: int
    # Segments compiled, segments for which an equal one's function was found, and seconds spent.
    compiles: int
    shared: int
    compile_seconds: float
    # Bytes on the device: weights, what was made of them, and constants.
    bytes_held: int

    def __str__(self) -> str:
        lines = [(f.name.replace("_", " "), getattr(self, f.name)) for f in fields(self)]
        return "\n".join(f"{name:<16}{_number(value):>16}" for name, value in lines)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

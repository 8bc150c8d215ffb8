"""The limits that a model must keep to, so that a small file cannot take all memory or time."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.arguments import check_count


@dataclass(frozen=True)
class Limits:
    """Sizes beyond which a model is refused with `LimitExceeded`; an argument of `load`.

    >>> import sardonyx
    >>> limits = sardonyx.Limits(value_bytes=2**33)
    >>> model = sardonyx.load("examples/encoder.onnx", limits=limits)
    """

    value_bytes: int | None = None
    """Bytes of one value that the model computes from a few numbers, such as a `Range`; all such
    values at once may take twice as much. None stands for 4 GiB, or a quarter of the memory of
    this process if that is less. A value may always be as large as inputs and weights together."""

    function_depth: int = 100
    """How deep the model's functions may call each other."""

    inlined_nodes: int = 2**18
    """Nodes of a model that has functions, with all of them inlined."""

    traced_nodes: int = 2**20
    """Nodes that one trace may visit in loops that are traced iteration by iteration."""

    def __post_init__(self) -> None:
        for name in ("function_depth", "inlined_nodes", "traced_nodes"):
            check_count(getattr(self, name), f"The limit {name} is at least 1")
        if self.value_bytes is not None:
            check_count(self.value_bytes, "The limit value_bytes is at least 1")


DEFAULT = Limits()

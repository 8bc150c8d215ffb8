"""`sardonyx check`: whether a model runs, where its steps run, and what each part costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from sardonyx.api import load
from sardonyx.cli.compile_ahead import parsed_shape
from sardonyx.cli.tables import grid, put, screen
from sardonyx.display.units import short
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.checking.audit import unsupported
from sardonyx.graph.ir import Node, ValueInfo
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.graph.model.model import Model
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.printable import printable
from sardonyx.targets.report import named


def check(path: str, shapes: Sequence[str], backend: str | None, device: str | None) -> int:
    """Print what stands in a model's way, or its segments and their costs; return 0 if it runs.

    Sizes that are not fixed and not in `shapes` ("INPUT=SIZES") are taken as 1.
    """
    console = screen()
    refused = unsupported(load_source(*read_model(path)))
    if refused:
        plural = "s" * (len(refused) > 1)
        console.print(f"{path} uses {len(refused)} unsupported operator{plural}:", style="bold")
        put(console, grid(_refusals(refused), "none", "dim"))
        console.print("\nDefine them as functions of the model, or pass them as ops= to load.")
        return 1
    model = load(path, backend=backend, device=device, compile="now")
    arrays = _stand_ins(model, dict(map(parsed_shape, shapes)))
    console.print(f"{path} can run on {model.backend}.", style="bold")
    try:
        program = _compiled(model, arrays)
    except SardonyxError as error:
        console.print(f"With these sizes it does not: {error}")
        console.print("Pass the sizes of the inputs, as in --shape x=1,3,224,224.")
        return 1
    inputs = [f"{name}: {_spec(array)}" for name, array in arrays.items()]
    console.print(f"A call with {printable(', '.join(inputs))}:\n")
    _print_program(console, program)
    return 0


def _refusals(refused: Mapping[str, Sequence[Node]]) -> list[tuple[str, str]]:
    return [
        (printable(reason), named([n.label for n in nodes])) for reason, nodes in refused.items()
    ]


def _stand_ins(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    known = {info.name: _sizes(info, shapes.get(info.name)) for info in model.inputs}
    return stand_ins({**shapes, **known}, model.inputs)


def _sizes(info: ValueInfo, shape: tuple[int, ...] | None) -> Any:
    """Return a shape, in which unknown sizes are 1; for strings an array of them."""
    if info.container:
        raise InvalidInput(
            f"The input {info} is no tensor, so that a shape is not enough: load the model and "
            "call it."
        )
    if shape is None:
        shape = tuple(size if isinstance(size, int) else 1 for size in info.shape or ())
    return np.full(shape, "") if info.dtype == np.dtype(object) else shape


def _spec(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _compiled(model: Model, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Program:
    """The program of a second call, whose segments the first one compiled."""
    model.run(None, arrays)
    return model.trace(**arrays)


def _print_program(console: Console, program: Program) -> None:
    stages = [(stage, stage.segment) for stage in program.stages if stage.segment is not None]
    rows = [
        (str(i), "host" if segment.host else program.backend.name, *_costs(stage, segment))
        for i, (stage, segment) in enumerate(stages)
    ]
    header = ("segment", "runs on", "steps", "operations", "bytes moved", "")
    put(console, grid([header, *rows], "none", "cyan", "number", "number", "number", "dim"))
    kinds = [program.kind(name) for name in program.names]
    console.print(
        f"\n{kinds.count('static')} values are known while tracing, {kinds.count('alias')} are "
        f"aliases. A call waits for the device {_times(program.round_trips)}."
    )


def _times(count: int) -> str:
    return "only at its end" if not count else "once" if count == 1 else f"{count} times"


def _costs(stage: Stage, segment: Segment) -> tuple[str, str, str, str]:
    """Steps, operations, bytes, and for a host segment what it runs and why."""
    count = str(len(segment.steps))
    if segment.host:
        return count, "", "", "; ".join(dict.fromkeys(map(_why_on_host, segment.steps)))
    costs = stage.costs() if stage.costs else None
    if costs is None:
        return count, "", "", ""
    return count, short(costs.operations), short(costs.moved), ""


def _why_on_host(step: Step) -> str:
    if step.call.is_unsized:
        return f"{step.title}: the shape of its result depends on data"
    return f"{step.title}: it reads or writes strings, or data on the host"

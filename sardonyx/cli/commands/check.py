"""`sardonyx check`: whether a model runs, where its steps run, and what each part costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.console import Console

from sardonyx.api import load
from sardonyx.cli.check_targets import check_targets, parsed_axis
from sardonyx.cli.command import PairsOption, flattened
from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    Amount,
    backend_option,
    device_option,
    json_option,
    model_argument,
    precision_option,
    shape_option,
)
from sardonyx.cli.shapes import Shapes, call_of
from sardonyx.cli.size_checks import PaddedSize, padded_sizes
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
from sardonyx.targets.names import GENERATIONS, GPUS
from sardonyx.targets.names import SUFFIX as SUFFIX_OF_GPUS
from sardonyx.targets.report import named
from sardonyx.targets.worker import LIMIT


@as_command("check")
@model_argument
@shape_option("The sizes of inputs, as in x=1,3,224,224 (default: the fixed ones, else 1).")
@backend_option()
@device_option
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help=f"{', '.join(GENERATIONS)}, v5e:2x2, {', '.join(GPUS)}, h100:8 or a {SUFFIX_OF_GPUS} "
    "file; repeat it for others.",
)
@precision_option(default=None)
@click.option("--rules", help="With a mesh as target: data, tensor or annotations.")
@click.option(
    "--mesh",
    cls=PairsOption,
    metavar="NAME=SIZE",
    help="With a mesh as target, its axes, as in --mesh data=2 model=4 (default: data).",
)
@click.option(
    "--limit",
    type=Amount(),
    default=LIMIT,
    metavar="SECONDS",
    help=f"With --target, the time for each (default: {LIMIT:g}).",
)
@json_option
def command(
    model: str,
    shapes: Sequence[Sequence[str]],
    backend: str | None,
    device: str | None,
    targets: Sequence[str],
    precision: str | None,
    rules: str | None,
    mesh: Sequence[Sequence[str]],
    limit: float,
    as_json: bool,
) -> int:
    """Print whether a model runs, where, and what each part costs.

    Lists the operators that sardonyx does not have; or the segments of a call, where each runs and
    what it costs by the compiler's counts, and along which free dimensions calls can be padded to
    share a program, or the node that prevents it. With --target the model is compiled for TPUs and
    GPUs that need not be here, which needs the extra 'aot'. The status is 1 if the model does not
    run.
    """
    _refuse_without_effect(
        targets,
        elsewhere={"backend": backend, "device": device},
        here={"precision": precision, "rules": rules, "mesh": mesh},
    )
    sizes = call_of(shapes)
    require_onnx(model)
    if not targets:
        return _check(model, sizes, backend, device, as_json=as_json)
    return check_targets(
        model,
        targets,
        sizes,
        precision=precision,
        rules=rules,
        mesh=dict(map(parsed_axis, flattened(mesh))),
        limit=limit,
        as_json=as_json,
    )


def _refuse_without_effect(
    targets: Sequence[str], *, elsewhere: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    for name, value in (elsewhere if targets else here).items():
        if value:
            only = "without" if targets else "with"
            raise click.UsageError(f"--{name} has an effect only {only} --target.")


def _check(
    path: str, shapes: Shapes, backend: str | None, device: str | None, *, as_json: bool
) -> int:
    """Print what stands in a model's way, or its segments and their costs; return 0 if it runs.

    Sizes that are neither fixed nor in `shapes` are taken as 1.
    """
    refused = unsupported(load_source(*read_model(path)))
    if refused:
        _put_refusals(path, refused, as_json=as_json)
        return 1
    model = load(path, backend=backend, device=device, compile="now")
    try:
        arrays = _stand_ins(model, shapes)
        program = _compiled(model, arrays)
    except SardonyxError as error:
        _put_failure(path, model, error, as_json=as_json)
        return 1
    padded = padded_sizes(path, model, arrays, device)
    if as_json:
        sizes = {each.title: {"padded": not each.reason, "reason": each.reason} for each in padded}
        put_json({**_as_dict(model, arrays, program), "free_sizes": sizes})
        return 0
    console = screen()
    console.print(f"{printable(path)} can run on {model.backend}.", style="bold")
    inputs = [f"{name}: {_spec(array)}" for name, array in arrays.items()]
    console.print(f"A call with {printable(', '.join(inputs))}:\n")
    _print_program(console, program)
    _print_sizes(console, padded)
    return 0


def _put_refusals(path: str, refused: Mapping[str, Sequence[Node]], *, as_json: bool) -> None:
    if as_json:
        reasons = [{"reason": why, "nodes": [n.label for n in nodes]} for why, nodes in
                   refused.items()]  # fmt: skip
        put_json({"runs": False, "unsupported": reasons})
        return
    console = screen()
    plural = "s" * (len(refused) > 1)
    console.print(
        f"{printable(path)} uses {len(refused)} unsupported operator{plural}:", style="bold"
    )
    put(console, grid(_refusals(refused), "none", "dim"))
    console.print("\nDefine them as functions of the model, or pass them as ops= to load.")


def _put_failure(path: str, model: Model, error: SardonyxError, *, as_json: bool) -> None:
    if as_json:
        put_json({"runs": False, "backend": model.backend, "reason": str(error)})
        return
    console = screen()
    console.print(f"{printable(path)} can run on {model.backend}.", style="bold")
    console.print(f"With these sizes it does not: {error}")
    console.print("Pass the sizes of the inputs, as in --shape x=1,3,224,224.")


def _as_dict(model: Model, arrays: Mapping[str, Any], program: Program) -> dict[str, Any]:
    segments = []
    for stage in program.stages:
        if (segment := stage.segment) is not None:
            costs = None if segment.host or not stage.costs else stage.costs()
            segments.append(
                {
                    "runs_on": "host" if segment.host else program.backend.name,
                    "steps": len(segment.steps),
                    "operations": None if costs is None else costs.operations,
                    "bytes_moved": None if costs is None else costs.moved,
                    "reasons": _reasons(segment) if segment.host else [],
                }
            )
    kinds = [program.kind(name) for name in program.names]
    return {
        "runs": True,
        "backend": model.backend,
        "inputs": {name: _spec(array) for name, array in arrays.items()},
        "segments": segments,
        "static": kinds.count("static"),
        "aliases": kinds.count("alias"),
        "round_trips": program.round_trips,
    }


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


def _print_sizes(console: Console, padded: Sequence[PaddedSize]) -> None:
    if not padded:
        return
    console.print("\nCalls of other sizes share a program by padding, if that is proved exact:\n")
    rows = [
        (printable(each.title), "yes" if each.reason is None else f"no: {printable(each.reason)}")
        for each in padded
    ]
    put(console, grid(rows, "cyan", "none"))


def _times(count: int) -> str:
    return "only at its end" if not count else "once" if count == 1 else f"{count} times"


def _costs(stage: Stage, segment: Segment) -> tuple[str, str, str, str]:
    """Steps, operations, bytes, and for a host segment what it runs and why."""
    count = str(len(segment.steps))
    if segment.host:
        return count, "", "", "; ".join(_reasons(segment))
    costs = stage.costs() if stage.costs else None
    if costs is None:
        return count, "", "", ""
    return count, short(costs.operations), short(costs.moved), ""


def _reasons(segment: Segment) -> list[str]:
    return list(dict.fromkeys(printable(_why_on_host(step)) for step in segment.steps))


def _why_on_host(step: Step) -> str:
    if step.call.is_unsized:
        return f"{step.title}: the shape of its result depends on data"
    return f"{step.title}: it reads or writes strings, or data on the host"

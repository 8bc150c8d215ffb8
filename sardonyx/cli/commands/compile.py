"""`sardonyx compile`: programs for some calls, in one file, from which `load` starts."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sardonyx.cli.ahead_programs import SUFFIX, compile_ahead
from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.options import (
    Amount,
    backend_option,
    device_option,
    model_argument,
    output_option,
    precision_option,
    quiet_option,
    shape_option,
)
from sardonyx.cli.shapes import calls_of
from sardonyx.cli.target_programs import compile_for_target
from sardonyx.targets.worker import LIMIT


@as_command("compile")
@model_argument
@shape_option(
    "The shapes of a call, as in --shape ids=1,128 mask=1,128. An input that comes again begins "
    "another call."
)
@output_option(f"Where to write (default: MODEL with {SUFFIX}).")
@backend_option()
@device_option
@precision_option()
@click.option(
    "--target",
    metavar="NAME",
    help="A TPU or GPU that need not be here, such as v5e or h100; it needs the extra aot.",
)
@click.option(
    "--limit",
    type=Amount(),
    default=LIMIT,
    metavar="SECONDS",
    help=f"With --target, how long the compiler may take (default: {LIMIT:g}).",
)
@quiet_option
def command(
    model: str,
    shapes: Sequence[Sequence[str]],
    output: str | None,
    backend: str | None,
    device: str | None,
    precision: str,
    target: str | None,
    limit: float,
    quiet: bool,
) -> None:
    """Compile a model ahead, into one file.

    sardonyx.load(MODEL, cache=FILE) starts from it on any machine of this kind: calls of these
    shapes are neither traced nor compiled.
    """
    calls = calls_of(shapes)
    require_onnx(model)
    if target is None:
        report = compile_ahead(
            model, calls, output, backend=backend, device=device, precision=precision
        )
    elif backend not in (None, "jax") or device is not None:
        raise click.UsageError(
            "--target compiles for JAX on that hardware: leave out --backend and --device."
        )
    else:
        report = compile_for_target(
            model, calls, output, target=target, precision=precision, limit=limit
        )
    if not quiet:
        click.echo(report)

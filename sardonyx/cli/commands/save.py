"""`sardonyx save`: a model with other weights as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sardonyx.api import load
from sardonyx.checkpoints import load_params
from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.inputs.arrays import arrays_of_npz
from sardonyx.cli.model_files import external_option
from sardonyx.cli.options import AnyFile, model_argument, output_option, quiet_option
from sardonyx.display.units import bytes_text, counted
from sardonyx.errors import MissingFile
from sardonyx.printable import printable
from sardonyx.progress import working
from sardonyx.saving.api import save


@as_command("save")
@model_argument
@click.option(
    "--params",
    type=AnyFile(),
    metavar="FILE",
    help="Weights to write in place of the model's own: a .safetensors or an .npz file.",
)
@output_option("Where to write; it may be MODEL itself.", required=True)
@external_option
@quiet_option
def command(
    model: str, params: str | None, output: str, external: bool | None, quiet: bool
) -> None:
    """Write a model with other weights.

    The params have the names, shapes and dtypes of the model's weights; weights that the file lacks
    stay as they are. Without --params the model is written as it is, such as to move its weights
    into the file (--inside) or beside it (--external).
    """
    require_onnx(model)
    with working("loading"):
        loaded = load(model, backend="numpy")
        replaced = {} if params is None else _params(params, list(loaded.params))
    with working("writing"):
        save(loaded, output, params=replaced, external=external)
    if quiet:
        return
    size = sum(loaded.params.host(name).nbytes for name in loaded.params)
    weights = f"{counted(len(loaded.params), 'weight')} of {bytes_text(size)}"
    click.echo(printable(f"{output}: {weights}, {len(replaced):,} of them replaced"))


def _params(path: str, names: list[str]) -> dict[str, Any]:
    if not Path(path).is_file():
        raise MissingFile(f"There is no file '{path}' of params: check the path.")
    if path.lower().endswith(".npz"):
        return dict(arrays_of_npz(Path(path), names))
    return load_params(path)

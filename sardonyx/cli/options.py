"""The options that several commands share, declared once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from sardonyx.arguments import PRECISIONS
from sardonyx.cli.command import PairsOption

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Adds an option to a command."""

    def __call__(self, function: F, /) -> F: ...


BACKENDS = ("jax", "cupy", "numpy")
RUNTIME = "onnxruntime"
_DEVICES = ("cpu", "cuda", "cuda:0", "cuda:1", "gpu", "tpu")
_DEVICE = re.compile(r"(?:cpu|gpu|cuda|tpu)(?::\d{1,9})?", re.ASCII)


class ModelFile(click.ParamType):
    """The path of a model; shells complete names of files."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class AnyFile(ModelFile):
    """The path of another file."""

    name = "file"


class OutputFile(AnyFile):
    """The path of a file to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not Path(value).name:
            self.fail(f"{value!r} is no name of a file", param)
        return str(value)


class Amount(click.FloatRange):
    """A number that is at least 0, and no NaN."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param)
        return number


class Device(click.ParamType):
    """A device by its name."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _DEVICE.fullmatch(value):
            self.fail(f"{value!r} is not cpu, gpu, cuda, tpu, or one by index as in cuda:1", param)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _DEVICES if name.startswith(incomplete)]


def model_argument(function: F) -> F:
    """Declare the argument MODEL."""
    return click.argument("model", metavar="MODEL", type=ModelFile())(function)


def backend_option(
    help_text: str = "The array library (default: the best installed).",
) -> Decorator:
    """Declare `--backend` for one backend."""
    return click.option("--backend", type=click.Choice(BACKENDS), help=help_text)


def backends_option(help_text: str) -> Decorator:
    """Declare `--backend` for several, onnxruntime among them."""
    choice = click.Choice([*BACKENDS, RUNTIME])
    return click.option("--backend", "backends", multiple=True, type=choice, help=help_text)


def device_option(function: F) -> F:
    """Declare `--device`."""
    text = "cpu, cuda, cuda:1 or tpu (default: the backend's default device)."
    return click.option("--device", type=Device(), metavar="NAME", help=text)(function)


def precision_option(
    default: str | None = "highest",
    *names: str,
    help_text: str = f"How exactly float32 is multiplied: {', '.join(PRECISIONS)}.",
) -> Decorator:
    """Declare `--precision`, or an option like it."""
    return click.option(
        *(names or ("--precision",)),
        type=click.Choice(list(PRECISIONS)),
        metavar="WORD",
        default=default,
        help=help_text,
    )


def shape_option(help_text: str) -> Decorator:
    """Declare `--shape`, whose value is a list of pairs for each time that it is written."""
    return click.option("--shape", "shapes", cls=PairsOption, metavar="INPUT=SIZES", help=help_text)


def output_option(help_text: str, *, required: bool = False) -> Decorator:
    """Declare `--output`."""
    return click.option(
        "-o", "--output", metavar="FILE", type=OutputFile(), required=required, help=help_text
    )


def json_option(function: F) -> F:
    """Declare `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(
        function
    )


def quiet_option(function: F) -> F:
    """Declare `--quiet`."""
    return click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")(function)


def tolerance_option(function: F) -> F:
    """Declare `--tolerance`."""
    text = (
        "Largest error of floats, relative to the largest element (default: 1e-4 for float32, "
        "by dtype)."
    )
    return click.option("--tolerance", type=Amount(), metavar="ERROR", help=text)(function)

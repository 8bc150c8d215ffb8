"""The options that say which inputs a command passes to a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from sardonyx.cli.options import shape_option
from sardonyx.cli.shapes import Shapes, call_of

PIXELS = ("0..1", "-1..1", "0..255", "imagenet")
FITS = ("crop", "pad", "stretch")
LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class ImageOptions:
    """How an image becomes an array."""

    pixels: str = "0..1"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fit: str = "crop"
    layout: str | None = None


@dataclass(frozen=True)
class InputOptions:
    """Which inputs a command passes."""

    files: tuple[str, ...] = ()
    is_random: bool = False
    seed: int = 0
    below: int = 2
    shapes: Shapes | None = None
    images: ImageOptions = ImageOptions()


class InputFile(click.ParamType):
    """NAME=FILE, or a file or folder of all inputs."""

    name = "input"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class Numbers(click.ParamType):
    """One number, or one for each channel, as in 0.5 or 0.485,0.456,0.406."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            numbers = tuple(map(float, value.split(",")))
        except ValueError:
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            self.fail(f"{value!r} is neither a number nor numbers such as 0.485,0.456,0.406", param)
        return numbers


def input_options(*, draws: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the options, and pass them as one `inputs`; `draws` draws what no file has."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def gathered(**options: Any) -> Any:
            return function(inputs=_gathered(options, draws=draws), **options)

        command = gathered
        for option in reversed(_options(draws=draws)):
            command = option(command)
        return command

    return decorate


def _gathered(options: dict[str, Any], *, draws: bool) -> InputOptions:
    """Take the options of inputs out of all options."""
    names = ("pixels", "mean", "std", "fit", "layout")
    images: Mapping[str, Any] = {name: options.pop(name) for name in names}
    if images["std"] and not all(images["std"]):
        raise click.UsageError("--std divides: pass numbers other than 0.")
    shapes: Sequence[Sequence[str]] = options.pop("shapes")
    return InputOptions(
        options.pop("files"),
        draws or options.pop("is_random"),
        options.pop("seed"),
        options.pop("below"),
        call_of(shapes),
        ImageOptions(**images),
    )


_RANDOM = click.option(
    "--random", "is_random", is_flag=True, help="Draw the inputs that no file has."
)


def _options(*, draws: bool) -> list[Callable[[Any], Any]]:
    return [_FILES, *([] if draws else [_RANDOM]), *_OF_DRAWS, *_OF_IMAGES]


_FILES = click.option(
    "-i",
    "--input",
    "files",
    multiple=True,
    type=InputFile(),
    metavar="NAME=FILE",
    help="An input: x=x.npy, x=photo.jpg, x=input_0.pb; or all of them: inputs.npz, or a folder of "
    "ONNX test data. Repeat it for others.",
)
_OF_DRAWS = (
    shape_option("The shapes of random inputs, as in --shape ids=1,128 mask=1,128."),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        metavar="NUMBER",
        help="Another number draws other inputs, and other numbers in random operators; "
        "default: 0.",
    ),
    click.option(
        "--integers-below",
        "below",
        type=click.IntRange(1, 2**31),
        default=2,
        metavar="N",
        help="Random integers are 0 to N - 1 (default: 2, since few indices are valid anywhere).",
    ),
)
_OF_IMAGES = (
    click.option(
        "--pixels",
        type=click.Choice(PIXELS),
        default="0..1",
        help="The range of an image's pixels, for inputs of floats (default: 0..1).",
    ),
    click.option(
        "--mean",
        type=Numbers(),
        default=(),
        metavar="NUMBERS",
        help="Subtracted from these pixels, one number or one for each channel.",
    ),
    click.option(
        "--std",
        type=Numbers(),
        default=(),
        metavar="NUMBERS",
        help="Divides the pixels after that.",
    ),
    click.option(
        "--fit",
        type=click.Choice(FITS),
        default="crop",
        help="How an image gets the height and width of the input (default: crop).",
    ),
    click.option(
        "--layout",
        type=click.Choice(LAYOUTS),
        help="Where an image's channels are (default: by the shape of the input).",
    ),
)

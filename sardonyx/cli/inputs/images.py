"""Images as inputs: resized, in the layout of the model, with normalised pixels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.cli.inputs.options import ImageOptions
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.graph.ir import ValueInfo
from sardonyx.printable import first_line

# Pillow's modes by the number of channels.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# What is subtracted, and what divides then, in units of the range 0..1.
_RANGES = {
    "0..1": ((0.0,), (1.0,)),
    "-1..1": ((0.5,), (0.5,)),
    "0..255": ((0.0,), (1 / 255,)),
    # The mean and the deviation of the pixels of ImageNet, which torchvision's models expect.
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def array_of_image(
    path: Path, info: ValueInfo, shape: Sequence[int] | None, options: ImageOptions
) -> np.ndarray[Any, Any]:
    """Return an image as the array that an input takes."""
    _require_image(path)
    declared = tuple(shape) if shape is not None else info.shape
    if info.dtype is None or not isdtype(info.dtype, ("integral", "real floating")):
        raise InvalidInput(f"The input {info} takes no numbers, and so no image like '{path}'.")
    if declared is None or len(declared) not in (2, 3, 4):
        raise InvalidInput(
            f"The input {info} is no image of 2 to 4 axes, such as [1, 3, 224, 224]: pass an array "
            f"in place of '{path}'."
        )
    sizes = [size if isinstance(size, int) else None for size in declared]
    is_last = _channels_are_last(info, sizes, options.layout)
    pixels = _pixels(path, info, sizes, is_last, options)
    array = _normalised(pixels, info, options)
    if len(sizes) == 2:
        return np.ascontiguousarray(array[:, :, 0])
    array = array if is_last else np.moveaxis(array, -1, 0)
    return np.ascontiguousarray(array[None] if len(sizes) == 4 else array)


def _channels_are_last(info: ValueInfo, sizes: list[int | None], layout: str | None) -> bool:
    """Whether the last axis is that of the channels, by the sizes that a shape has."""
    if layout is not None or len(sizes) == 2:
        return layout == "nhwc" or len(sizes) == 2
    first, last = sizes[-3] in _MODES, sizes[-1] in _MODES
    if not first and not last:
        raise InvalidInput(
            f"The input {info} does not say which axis has the 1, 3 or 4 channels of an image: "
            f"pass --layout nchw or nhwc, or --shape {info.name}=1,3,224,224."
        )
    return last and not first


def _pixels(
    path: Path, info: ValueInfo, sizes: list[int | None], is_last: bool, options: ImageOptions
) -> np.ndarray[Any, Any]:
    """Return the bytes of an image as [height, width, channels]."""
    if len(sizes) == 2:
        (height, width), channels = sizes, 1
    else:
        channel_axis, axes = (-1, (-3, -2)) if is_last else (-3, (-2, -1))
        channels = sizes[channel_axis] or 3
        height, width = (sizes[axis] for axis in axes)
    if channels not in _MODES:
        raise InvalidInput(f"The input {info} has {channels} channels, which no image has.")
    if len(sizes) == 4 and sizes[0] not in (None, 1):
        raise InvalidInput(
            f"The input {info} takes {sizes[0]} images at once, and '{path}' is one: pass an array."
        )
    pillow, operations = _pillow()
    with _readable(path), pillow.open(path) as file:
        image = operations.exif_transpose(file).convert(_MODES[channels])
        size = (width or image.width, height or image.height)
        image = _resized(image, size, options.fit, pillow, operations)
    return np.asarray(image).reshape(image.height, image.width, channels)


def _require_image(path: Path) -> None:
    """Refuse other files before the shape of the input is looked at."""
    pillow, _ = _pillow()
    with _readable(path), pillow.open(path):
        pass


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise what Pillow says of a file as an error of this library."""
    try:
        with warnings.catch_warnings():
            # Of images that are so large that they may be an attack.
            warnings.simplefilter("error")
            yield
    except Exception as error:
        reason = "it is no image" if "cannot identify" in str(error) else first_line(error)
        raise InvalidInput(
            f"No image can be read from '{path}': {reason}. Pass an image, a .npy, .npz or .pb "
            "file."
        ) from None


def _resized(image: Any, size: tuple[int, int], fit: str, pillow: Any, operations: Any) -> Any:
    if image.size == size:
        return image
    method = pillow.Resampling.BILINEAR
    if fit == "stretch":
        return image.resize(size, method)
    return (operations.fit if fit == "crop" else operations.pad)(image, size, method)


def _normalised(
    pixels: np.ndarray[Any, Any], info: ValueInfo, options: ImageOptions
) -> np.ndarray[Any, Any]:
    """Return pixels in the dtype of the input: integers as they are, floats in their range."""
    dtype = info.dtype
    assert dtype is not None
    if isdtype(dtype, "integral"):
        if options.mean or options.std or options.pixels not in ("0..1", "0..255"):
            raise InvalidInput(
                f"The input {info} takes integers, and so pixels of 0 to 255: leave out --pixels, "
                "--mean and --std."
            )
        return np.asarray(pixels, dtype)
    mean, std = _RANGES[options.pixels]
    values = (pixels / 255.0 - _channels(mean, pixels)) / _channels(std, pixels)
    values = (values - _channels(options.mean or (0.0,), pixels)) / _channels(
        options.std or (1.0,), pixels
    )
    return np.asarray(values, dtype)


def _channels(numbers: tuple[float, ...], pixels: np.ndarray[Any, Any]) -> Any:
    """Return a number for each channel; of three numbers an image without colours has the mean."""
    channels = pixels.shape[-1]
    if len(numbers) not in (1, channels):
        if channels == 1:
            return np.mean(numbers)
        raise InvalidInput(
            f"The image has {channels} channels, but there are {len(numbers)} numbers for them: "
            "pass one number, or one for each channel."
        )
    return np.asarray(numbers)


def _pillow() -> tuple[Any, Any]:
    try:
        return import_module("PIL.Image"), import_module("PIL.ImageOps")
    except ImportError:
        raise BackendUnavailable(
            "Images are read with Pillow, which is not installed: pip install 'sardonyx[images]'."
        ) from None

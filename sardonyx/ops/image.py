"""ImageDecoder, implemented with Pillow."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.errors import LimitExceeded
from sardonyx.ops.definition import Host, Unsized, op
from sardonyx.ops.dtypes import UINT8
from sardonyx.ops.options import require_one_of

# The formats that ONNX names. Pillow reads more, some of them by calling other programs.
FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


@op
def ImageDecoder(xp: Backend, encoded_stream: Array, *, pixel_format: str = "RGB") -> Unsized:
    """Decode to (height, width, channels); a stream that cannot be decoded has no pixels."""
    require_one_of("pixel_format", pixel_format, CHANNELS)
    if encoded_stream.ndim != 1:
        raise ValueError(f"encoded_stream has shape {encoded_stream.shape}, but must have one axis")
    stream = io.BytesIO(xp.fetch(encoded_stream).tobytes())
    decoded = _decoded(stream, "L" if pixel_format == "Grayscale" else "RGB")
    if decoded is None:
        return xp.zeros((0, 0, CHANNELS[pixel_format]), dtype=xp.dtype(UINT8))
    pixels = decoded.reshape(*decoded.shape[:2], CHANNELS[pixel_format])
    return xp.put(pixels[..., ::-1].copy() if pixel_format == "BGR" else pixels)


def _decoded(stream: io.BytesIO, mode: str) -> Host | None:
    """Return the image's pixels, or None. Pillow checks its size before decoding any pixel."""
    pillow = _pillow()
    try:
        with pillow.open(stream, formats=FORMATS) as image:
            return np.asarray(_in_eight_bits(pillow, image).convert(mode))
    except pillow.DecompressionBombError as error:
        raise LimitExceeded(
            f"{error}: send a smaller image, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
        ) from None
    except MemoryError:
        raise
    except Exception:  # Any error: ONNX requires an empty image here.
        return None


def _in_eight_bits(pillow: Any, image: Any) -> Any:
    """Reduce 16-bit greys to their upper 8 bits, as Pillow does for colours; it clips greys."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise ValueError("ImageDecoder needs Pillow: pip install 'sardonyx[images]'") from error

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops import image as ops

COLOURS = np.random.default_rng(0).integers(0, 256, (12, 20, 3), np.uint8)
GREYS = COLOURS[..., 0]


def encoded(image: Image.Image, kind: str, **options: Any) -> np.ndarray:
    stream = io.BytesIO()
    image.save(stream, format=kind, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


def decoded(stream: np.ndarray, pixel_format: str = "RGB", xp: Backend = HOST) -> np.ndarray:
    with xp.scope():
        result = xp.fetch(ops.ImageDecoder(xp, xp.put(stream), pixel_format=pixel_format))
    assert result.dtype == np.uint8
    return result


LOSSLESS: list[tuple[str, dict[str, Any]]] = [
    ("BMP", {}),
    ("JPEG2000", {"irreversible": False}),
    ("PNG", {}),
    ("PPM", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("WEBP", {"lossless": True}),
]


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
def test_every_lossless_format_gives_the_pixels(xp: Backend, kind: str, options: Any) -> None:
    stream = encoded(Image.fromarray(COLOURS), kind, **options)
    np.testing.assert_array_equal(decoded(stream, "RGB", xp), COLOURS)
    np.testing.assert_array_equal(decoded(stream, "BGR", xp), COLOURS[..., ::-1])
    grey = decoded(stream, "Grayscale", xp)
    assert grey.shape == (12, 20, 1)
    brightness = COLOURS @ [0.299, 0.587, 0.114]
    assert np.abs(grey[..., 0] - brightness).max() <= 1


def test_jpeg_is_near(xp: Backend) -> None:
    smooth = np.linspace(0, 255, 32 * 48).reshape(32, 48, 1).repeat(3, 2).astype(np.uint8)
    stream = encoded(Image.fromarray(smooth), "JPEG", quality=95)
    assert np.abs(decoded(stream, "BGR", xp).astype(int) - smooth).max() <= 3


def test_an_image_has_the_channels_that_are_asked_for() -> None:
    grey = encoded(Image.fromarray(GREYS), "PNG")
    np.testing.assert_array_equal(decoded(grey), GREYS[..., None].repeat(3, 2))
    np.testing.assert_array_equal(decoded(grey, "Grayscale"), GREYS[..., None])
    bilevel = encoded(Image.fromarray(GREYS > 99), "PPM")
    np.testing.assert_array_equal(decoded(bilevel, "Grayscale")[..., 0], (GREYS > 99) * 255)
    palette = Image.fromarray(COLOURS // 128 * 255).convert("P", palette=Image.Palette.WEB)
    np.testing.assert_array_equal(decoded(encoded(palette, "PNG")), palette.convert("RGB"))
    clear = Image.fromarray(np.concatenate([COLOURS, GREYS[..., None]], axis=2))
    np.testing.assert_array_equal(decoded(encoded(clear, "PNG")), COLOURS)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_of_sixteen_bits_the_upper_ones_are_kept(kind: str) -> None:
    deep = GREYS.astype(np.uint16) * 256 + 255
    stream = encoded(Image.fromarray(deep), kind)
    np.testing.assert_array_equal(decoded(stream, "Grayscale")[..., 0], GREYS)
    np.testing.assert_array_equal(decoded(stream)[..., 1], GREYS)


def test_what_cannot_be_decoded_is_empty(xp: Backend) -> None:
    png = encoded(Image.fromarray(COLOURS), "PNG")
    broken = png.copy()
    broken[60:80] ^= 0xFF
    gif = encoded(Image.fromarray(GREYS), "GIF")
    for stream in (png[:0], png[:7], png[: png.size // 2], broken, gif, png[::-1].copy()):
        assert decoded(stream, "RGB", xp).shape == (0, 0, 3)
        assert decoded(stream, "Grayscale", xp).shape == (0, 0, 1)


def chunk(name: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + check


def test_a_bomb_is_not_decoded() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0)
    body = zlib.compress(bytes(2**20))
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )
    with pytest.raises(LimitExceeded, match=r"Image size \(3600000000 pixels\).*smaller image"):
        decoded(np.frombuffer(bomb, np.uint8))


def test_arguments_are_looked_at() -> None:
    with pytest.raises(ValueError, match="'CMYK', but must be RGB"):
        decoded(np.zeros(3, np.uint8), "CMYK")
    with pytest.raises(ValueError, match="one axis"):
        decoded(np.zeros((3, 1), np.uint8))


def test_without_pillow_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ValueError, match=r"pip install 'sardonyx\[images\]'"):
        decoded(np.zeros(3, np.uint8))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_in_a_program_each_call_may_have_another_size(backend: str) -> None:
    for size in (5, 9):
        stream = encoded(Image.fromarray(COLOURS[:size]), "PNG")
        result = np.asarray(sardonyx.run_op("ImageDecoder", stream, backend=backend))
        np.testing.assert_array_equal(result, COLOURS[:size])

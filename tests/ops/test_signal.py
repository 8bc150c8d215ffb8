from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops.signal import (
    DFT,
    STFT,
    BlackmanWindow,
    HammingWindow,
    HannWindow,
    MelWeightMatrix,
)
from tests.ops.oracle import assert_same, onnxruntime_run, run

WINDOWS = pytest.mark.parametrize(
    "op", [HannWindow, HammingWindow, BlackmanWindow], ids=lambda op: op.name
)


def drawn(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def parts(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], axis=-1)


def whole(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    return found


# -- DFT ------------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -4])
@pytest.mark.parametrize("length", [None, 3, 6, 9])
@pytest.mark.parametrize("ends_in", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_DFT(xp: Backend, axis: int, length: int | None, ends_in: int, inverse: int) -> None:
    x = drawn(5, 6, 4, ends_in)
    function = np.fft.ifft if inverse else np.fft.fft
    along = axis % 4
    expected = parts(function(whole(x), n=length, axis=along))
    result = run(xp, DFT, x, dft_length=length, axis=axis, inverse=inverse)
    assert_same(result, expected, ulps=256)
    old = run(xp, DFT, x, opset=17, dft_length=length, axis=axis, inverse=inverse)
    assert_same(old, expected, ulps=256)


@pytest.mark.parametrize("axis", [0, -2])
@pytest.mark.parametrize("length", [None, 1, 3, 4, 6, 7, 12])
def test_DFT_of_one_side(xp: Backend, axis: int, length: int | None) -> None:
    x = drawn(5, 6, 1)
    along = axis % 3
    spectrum = np.fft.rfft(x[..., 0], n=length, axis=along)
    result = run(xp, DFT, x, dft_length=length, axis=axis, onesided=1)
    assert_same(result, parts(spectrum), ulps=256)
    # Of a spectrum that is no real signal's, the imaginary parts at either end count for nothing.
    x = drawn(5, 6, 2)
    signal = np.fft.irfft(whole(x), n=length, axis=along)
    result = run(xp, DFT, x, dft_length=length, axis=axis, onesided=1, inverse=1)
    assert_same(result, signal[..., None], ulps=256)


def test_DFT_along_the_default_axis(xp: Backend) -> None:
    x = drawn(3, 4, 5, 1)
    assert_same(run(xp, DFT, x), parts(np.fft.fft(x[..., 0], axis=2)), ulps=256)
    assert_same(run(xp, DFT, x, opset=19), parts(np.fft.fft(x[..., 0], axis=1)), ulps=256)


def test_a_spectrum_is_right_where_it_is_next_to_nothing(xp: Backend) -> None:
    x = np.sin(2 * np.pi * 5 * np.arange(1000, dtype=np.float32) / 1000).reshape(1, -1, 1)
    result = run(xp, DFT, x)
    assert_same(result, parts(np.fft.fft(x[..., 0].astype(np.float64))).astype(np.float32), ulps=1)
    back = run(xp, DFT, result, inverse=1)
    np.testing.assert_allclose(back[..., 0], x[..., 0], atol=1e-6)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_spectra_are_rounded_once(backend: Backend, dtype: Any) -> None:
    x = drawn(3, 40, 1).astype(dtype)
    expected = parts(np.fft.fft(x[..., 0].astype(np.float64))).astype(dtype)
    assert_same(run(backend, DFT, x), expected, ulps=1)
    window = drawn(8).astype(dtype)
    result = run(backend, STFT, x, window=backend.put(window), frame_step=4)
    wide = run(HOST, STFT, x.astype(np.float64), window=window.astype(np.float64), frame_step=4)
    assert_same(result, wide.astype(dtype), ulps=1)


def test_nothing_to_transform(xp: Backend) -> None:
    assert run(xp, DFT, np.ones((0, 4, 1))).shape == (0, 4, 2)
    assert run(xp, DFT, np.ones((0, 4, 2)), onesided=1, inverse=1).shape == (0, 6, 1)


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((3, 0, 1), {}, (3, 0, 2)),
        ((3, 0, 2), {}, (3, 0, 2)),
        ((3, 0, 2), {"inverse": 1}, (3, 0, 2)),
        ((3, 1, 2), {"inverse": 1, "onesided": 1}, (3, 0, 1)),
    ],
)
def test_DFT_of_nothing_is_empty(xp: Backend, shape: Any, options: Any, expected: Any) -> None:
    x = np.ones(shape, np.float32)
    assert onnxruntime_run("DFT", x, opset=17, **options).shape == expected
    result = run(xp, DFT, x, opset=17, **options)
    assert (result.shape, result.dtype) == (expected, x.dtype)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4,), {}, "must end in 1 or 2"),
        ((4, 3), {}, "must end in 1 or 2"),
        ((3, 4, 1), {"axis": 2}, "choose the axis of the signal"),
        ((3, 4, 1), {"axis": -1}, "choose the axis of the signal"),
        ((3, 4, 1), {"axis": 3}, "out of range"),
        ((3, 4, 1), {"dft_length": 0}, "has length 0"),
        ((3, 4, 1), {"dft_length": -4}, "has length -4"),
        ((3, 0, 1), {"onesided": 1}, "has length 0"),
        ((3, 0, 1), {"dft_length": 0}, "has length 0"),
        ((3, 0, 2), {"onesided": 1, "inverse": 1}, "has length -2"),
        ((3, 4, 2), {"onesided": 1}, "with onesided it must end in"),
        ((3, 4, 1), {"onesided": 1, "inverse": 1}, "with onesided it must end in"),
    ],
)
def test_DFT_refuses(xp: Backend, shape: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, DFT, np.ones(shape), **options)


def test_DFT_refuses_to_fill_up_without_end(xp: Backend) -> None:
    with pytest.raises(LimitExceeded):
        run(xp, DFT, np.ones((3, 4, 1)), dft_length=2**40)


# -- STFT -----------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [1, 3, 8, 100])
@pytest.mark.parametrize("ends_in", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(
    ("framed", "windowed"), [(8, True), (None, True), (7, False), (None, False)]
)
def test_STFT(
    xp: Backend, step: int, ends_in: int, onesided: int, framed: int | None, windowed: bool
) -> None:
    signal, window = drawn(2, 30, ends_in), drawn(8)
    length = framed or (8 if windowed else 30)
    starts = range(0, 30 - length + 1, step)
    frames = np.stack([whole(signal)[:, start : start + length] for start in starts], axis=1)
    expected = np.fft.fft(frames * window if windowed else frames)
    expected = expected[..., : length // 2 + 1] if onesided else expected
    options: dict[str, Any] = {"frame_step": step, "frame_length": framed, "onesided": onesided}
    with xp.scope():
        given = xp.put(window) if windowed else None
    result = run(xp, STFT, signal, window=given, **options)
    assert_same(result, parts(expected), ulps=256)


@pytest.mark.parametrize("onesided", [0, 1])
def test_STFT_is_that_of_onnxruntime(xp: Backend, onesided: int) -> None:
    signal, window = drawn(2, 40, 1, dtype=np.float32), drawn(16, dtype=np.float32)
    expected = onnxruntime_run(
        "STFT", signal, np.array(6), window, np.array(16), opset=17, onesided=onesided
    )
    options: dict[str, Any] = {"frame_step": 6, "frame_length": 16, "onesided": onesided}
    result = run(xp, STFT, signal, window=xp.put(window), **options)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((30,), {}, "must have three axes"),
        ((2, 30, 1, 1), {}, "must have three axes"),
        ((2, 30, 3), {}, "must end in 1 or 2"),
        ((2, 30, 1), {"frame_length": 31}, "the length of the signal, and frame_step"),
        ((2, 30, 1), {"frame_length": 0}, "the length of the signal, and frame_step"),
        ((2, 30, 1), {"frame_length": -1}, "the length of the signal, and frame_step"),
        ((2, 30, 1), {"frame_step": 0}, "the length of the signal, and frame_step"),
        ((2, 30, 1), {"frame_step": -3}, "the length of the signal, and frame_step"),
        ((2, 30, 1), {"window": 5, "frame_length": 4}, "window has shape"),
        ((2, 30, 1), {"window": (2, 4)}, "window has shape"),
    ],
)
def test_STFT_refuses(xp: Backend, shape: Any, options: dict[str, Any], message: str) -> None:
    window = options.get("window")
    given = options | ({"window": xp.put(np.ones(window))} if window else {})
    with pytest.raises(ValueError, match=message):
        run(xp, STFT, np.ones(shape), **({"frame_step": 4} | given))


# -- windows and mels -----------------------------------------------------------------------------

COSINES: dict[Any, list[float]] = {
    HannWindow: [0.5, -0.5],
    HammingWindow: [25 / 46, -21 / 46],
    BlackmanWindow: [0.42, -0.5, 0.08],
}


@WINDOWS
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [0, 2, 3, 10, 255])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows(xp: Backend, op: Any, periodic: int, size: int, dtype: Any) -> None:
    turns = np.arange(size) / (size if periodic else size - 1)
    terms = [a * np.cos(2 * np.pi * k * turns) for k, a in enumerate(COSINES[op])]
    options: dict[str, Any] = {"output_datatype": np.dtype(dtype), "periodic": periodic}
    result = run(xp, op, size=size, **options)
    assert_same(result, np.sum(terms, axis=0).astype(dtype))
    if dtype == np.float32:
        theirs = onnxruntime_run(op.name, np.array(size), opset=17, periodic=periodic)
        np.testing.assert_allclose(result, theirs, atol=1e-5)


@WINDOWS
def test_the_smallest_windows(xp: Backend, op: Any) -> None:
    first = sum(COSINES[op])
    np.testing.assert_allclose(run(xp, op, size=1), [first], atol=1e-7)
    # The formula divides 0 by 0. The middle of a window is 1.
    assert run(xp, op, size=1, periodic=0).tolist() == [1]


@WINDOWS
@pytest.mark.parametrize("name", ["UINT8", "INT64", "FLOAT16", "BFLOAT16", "DOUBLE"])
def test_windows_in_other_types(op: Any, name: str) -> None:
    exact = sardonyx.run_op(op.name, np.array(12), output_datatype=TensorProto.DOUBLE)
    to = TensorProto.DataType.Value(name)
    result = sardonyx.run_op(op.name, np.array(12, np.int32), output_datatype=to)
    assert_same(result, exact.astype(helper.tensor_dtype_to_np_dtype(to)), ulps=1)


@WINDOWS
def test_windows_refuse(xp: Backend, op: Any) -> None:
    with pytest.raises(ValueError, match="size is -1"):
        run(xp, op, size=-1)
    with pytest.raises(LimitExceeded):
        run(xp, op, size=2**40)


@pytest.mark.parametrize(
    ("bins", "length", "rate", "lower", "upper"),
    [
        (8, 16, 8192, 0.0, 8192 / 2),
        (40, 512, 16000, 20.0, 8000.0),
        (80, 400, 16000, 0.0, 8000.0),
        (20, 33, 8000, 100.0, 3500.0),
        (10, 8, 8000, 0.0, 4000.0),
        (3, 64, 8000, 1000.0, 1000.0),
        (0, 16, 8000, 0.0, 4000.0),
    ],
)
def test_MelWeightMatrix(
    xp: Backend, bins: int, length: int, rate: int, lower: float, upper: float
) -> None:
    """As in the reference: also where triangles are so narrow that sides are missing."""
    names = list("abcde")
    given = [np.array(v) for v in (bins, length, rate, lower, upper)]
    node = helper.make_node("MelWeightMatrix", names, ["y"], output_datatype=11)
    typed = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), ())
        for n, v in zip(names, given, strict=True)
    ]
    made = [helper.make_tensor_value_info("y", 11, None)]
    model = helper.make_model(helper.make_graph([node], "g", typed, made))
    (expected,) = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
    options: dict[str, Any] = {
        "num_mel_bins": bins,
        "dft_length": length,
        "sample_rate": rate,
        "lower_edge_hertz": lower,
        "upper_edge_hertz": upper,
    }
    result = run(xp, MelWeightMatrix, **options, output_datatype=np.dtype(np.float64))
    assert_same(result, expected)
    single = run(xp, MelWeightMatrix, **options)
    assert_same(single, expected.astype(np.float32))


def test_mels_beyond_the_spectrum_are_cut_off(xp: Backend) -> None:
    options: dict[str, Any] = {"num_mel_bins": 10, "dft_length": 16, "sample_rate": 8000}
    result = run(xp, MelWeightMatrix, **options, lower_edge_hertz=0.0, upper_edge_hertz=20000.0)
    assert result.shape == (9, 10)
    assert not result[:, -1].any()
    assert 0 <= result.min() <= result.max() == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_mel_bins": -1}, "must not be negative"),
        ({"dft_length": -2}, "must not be negative"),
        ({"sample_rate": 0}, "must not be negative"),
        ({"lower_edge_hertz": -700.0}, "must be in order"),
        ({"lower_edge_hertz": 5000.0}, "must be in order"),
        ({"upper_edge_hertz": float("inf")}, "must be in order"),
        ({"upper_edge_hertz": float("nan")}, "must be in order"),
    ],
)
def test_MelWeightMatrix_refuses(xp: Backend, wrong: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "num_mel_bins": 4,
        "dft_length": 16,
        "sample_rate": 8000,
        "lower_edge_hertz": 0.0,
        "upper_edge_hertz": 4000.0,
    }
    with pytest.raises(ValueError, match=message):
        run(xp, MelWeightMatrix, **(options | wrong))


def test_MelWeightMatrix_refuses_to_be_huge(xp: Backend) -> None:
    edges: dict[str, Any] = {"lower_edge_hertz": 0.0, "upper_edge_hertz": 4000.0}
    with pytest.raises(LimitExceeded):
        run(xp, MelWeightMatrix, num_mel_bins=2**20, dft_length=2**30, sample_rate=8000, **edges)

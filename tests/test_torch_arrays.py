"""Tensors of torch that lie on the host, as arguments and results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.dlpack import Exported, on_host
from tests.support.onnx_builders import model, node, value

torch = pytest.importorskip("torch", reason="no torch; pip install torch")

NUMPYS = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]
FLOAT8 = [f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
OTHERS = ["bfloat16", *FLOAT8]
BACKENDS = ["numpy", "jax"]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def turning(name: str, backend: str) -> sardonyx.Model:
    element_type = helper.np_dtype_to_tensor_dtype(dtype_of(name))
    x, y = (value(end, None, element_type) for end in "xy")
    return sardonyx.load(
        model([node("Transpose", ["x"], ["y"])], [x], [y], opset=24), backend=backend
    )


def drawn(name: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    if name in FLOAT8:
        size = int(np.prod(shape))
        return (
            torch.arange(1, size + 1, dtype=torch.uint8).view(getattr(torch, name)).reshape(shape)
        )
    return (torch.arange(int(np.prod(shape))) % 2).reshape(shape).to(getattr(torch, name))


def codes(tensor: Any) -> np.ndarray[Any, Any]:
    return tensor.contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize("name", [*NUMPYS, *OTHERS])
def test_memory_is_shared_in_both_directions(name: str) -> None:
    tensor = drawn(name)
    array = on_host(tensor)
    assert (array.ctypes.data, array.dtype) == (tensor.data_ptr(), dtype_of(name))
    view = on_host(tensor.T)
    assert (view.ctypes.data, view.shape) == (tensor.data_ptr(), (3, 2))
    back = torch.from_dlpack(Exported(array) if name in OTHERS else array)
    assert (back.data_ptr(), back.dtype) == (tensor.data_ptr(), tensor.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*NUMPYS, *OTHERS])
def test_results_are_tensors(name: str, backend: str) -> None:
    loaded, tensor = turning(name, backend), drawn(name)
    for _ in range(3):
        found = loaded(tensor)
        assert (type(found), found.dtype) == (torch.Tensor, tensor.dtype)
        np.testing.assert_array_equal(codes(found), codes(tensor.T))
    turned = loaded(drawn(name, (3, 2)).T)
    np.testing.assert_array_equal(codes(turned), codes(drawn(name, (3, 2))))


@pytest.mark.parametrize("backend", BACKENDS)
def test_pairs_of_four_bits_become_elements(backend: str) -> None:
    """Its shape counts the pairs."""
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    found = turning("float4_e2m1fn", backend).run(None, {"x": tensor})[0]
    wanted = np.stack([np.arange(6) % 16, np.zeros(6)], -1).reshape(2, 6).T
    np.testing.assert_array_equal(np.asarray(found).view(np.uint8), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_that_needs_gradients_is_refused(backend: str) -> None:
    tensor = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(sardonyx.InvalidInput, match=r"The input 'x', a torch.Tensor.*detach\(\)"):
        turning("float32", backend)(tensor)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_type_that_onnx_lacks_is_refused() -> None:
    with pytest.raises(sardonyx.InvalidInput, match="The input 'x'"):
        turning("float32", "numpy")(torch.zeros(2, 3, dtype=torch.complex32))

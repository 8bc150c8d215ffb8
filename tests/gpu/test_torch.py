"""Tensors of torch that lie on a GPU, as arguments and results of CuPy's backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import sardonyx
from tests.support.onnx_builders import model, node, value, weight

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
torch = pytest.importorskip("torch", reason="no torch; pip install torch, for CUDA")

CUPYS = ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
FLOAT8 = [f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
# Of a product, such that a stream that does not wait reads what is not computed yet.
LARGE = 3000


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    """These tests need a device, and torch for it."""
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")


def turning(name: str, backend: CupyBackend) -> sardonyx.Model:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    element_type = helper.np_dtype_to_tensor_dtype(dtype)
    x, y = (value(end, None, element_type) for end in "xy")
    return sardonyx.load(
        model([node("Transpose", ["x"], ["y"])], [x], [y], opset=24), backend=backend
    )


def drawn(name: str) -> Any:
    if name in FLOAT8:
        integers = torch.arange(1, 7, dtype=torch.uint8, device="cuda")
        return integers.view(getattr(torch, name)).reshape(2, 3)
    return (torch.arange(6, device="cuda") % 2).reshape(2, 3).to(getattr(torch, name))


def codes(tensor: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = tensor.contiguous().view(torch.uint8).cpu().numpy()
    return found


@pytest.mark.parametrize("name", [*CUPYS, *FLOAT8])
def test_memory_is_shared_in_both_directions(cupy_backend: CupyBackend, name: str) -> None:
    tensor = drawn(name)
    array: Any = cupy_backend.adopt(tensor)
    assert array.data.ptr == tensor.data_ptr()
    back = torch.from_dlpack(array)
    assert (back.data_ptr(), back.dtype) == (tensor.data_ptr(), tensor.dtype)
    np.testing.assert_array_equal(codes(back), codes(tensor))


@pytest.mark.parametrize("name", [*CUPYS, *FLOAT8])
def test_results_are_tensors_on_the_device(cupy_backend: CupyBackend, name: str) -> None:
    loaded, tensor = turning(name, cupy_backend), drawn(name)
    # While it is recorded, fused, and captured; also of a view.
    for _ in range(4):
        found = loaded(tensor)
        assert (type(found), found.dtype, found.is_cuda) == (torch.Tensor, tensor.dtype, True)
        np.testing.assert_array_equal(codes(found), codes(tensor.T))
        np.testing.assert_array_equal(codes(loaded(tensor.T)), codes(tensor))


def test_pairs_of_four_bits_become_elements(cupy_backend: CupyBackend) -> None:
    integers = torch.arange(6, dtype=torch.uint8, device="cuda").reshape(2, 3)
    array: Any = cupy_backend.adopt(integers.view(torch.float4_e2m1fn_x2))
    assert (array.shape, array.dtype) == ((2, 6), np.dtype(ml_dtypes.float4_e2m1fn))
    np.testing.assert_array_equal(
        array.bits.get(), np.stack([codes(integers), np.zeros((2, 3))], -1).reshape(2, 6)
    )


def test_a_tensor_that_needs_gradients_is_refused(cupy_backend: CupyBackend) -> None:
    tensor = torch.ones(2, 3, device="cuda", requires_grad=True)
    with pytest.raises(sardonyx.InvalidInput, match=r"The input 'x', a torch.Tensor.*detach\(\)"):
        turning("float32", cupy_backend)(tensor)


class WithInterface:
    """A tensor that is described by `__cuda_array_interface__` alone, with its stream."""

    def __init__(self, tensor: Any, stream: Any) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = {
            **tensor.__cuda_array_interface__,
            "stream": stream.cuda_stream or 1,
        }


@pytest.mark.parametrize("protocol", ["dlpack", "interface"])
def test_work_waits_for_a_stream_of_torch(cupy_backend: CupyBackend, protocol: str) -> None:
    """The tensor is the result of long work, which has hardly begun when the call is made."""
    proto = model([node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", np.float32(2))])
    loaded = sardonyx.load(proto, backend=cupy_backend)
    factor = torch.full((LARGE, LARGE), 1 / LARGE, device="cuda")
    for _ in range(4):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            product = torch.ones(LARGE, LARGE, device="cuda")
            for _ in range(20):
                product = factor @ product
            x = product if protocol == "dlpack" else WithInterface(product, stream)
            found = loaded(x)
        np.testing.assert_allclose(cupy.asnumpy(cupy.from_dlpack(found)), 2, rtol=1e-3)


def test_torch_waits_for_the_work_of_a_call(cupy_backend: CupyBackend) -> None:
    proto = model(
        [node("MatMul", ["x", "x"], ["y"]), node("MatMul", ["y", "x"], ["z"])], ["x"], ["z"]
    )
    loaded = sardonyx.load(proto, backend=cupy_backend)
    x = torch.full((LARGE, LARGE), 1 / LARGE, device="cuda")
    for _ in range(4):
        with cupy.cuda.Stream(non_blocking=True):
            found = loaded(x)
        # On torch's stream, at once.
        total = (found * LARGE).mean().item()
        assert abs(total - 1) < 1e-2


class OfTorch:
    """A stream of torch by the protocol of CUDA, which not every version of torch has."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.cuda_stream


def test_streams_of_torch_are_streams_of_a_call(cupy_backend: CupyBackend) -> None:
    loaded = turning("float32", cupy_backend)
    stream = torch.cuda.Stream()
    tensor = torch.arange(6.0, device="cuda").reshape(2, 3)
    with torch.cuda.stream(stream), cupy.cuda.Stream.from_external(OfTorch(stream)):
        for _ in range(4):
            np.testing.assert_array_equal(loaded(tensor).cpu().numpy(), tensor.T.cpu().numpy())

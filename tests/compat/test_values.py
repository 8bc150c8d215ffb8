"""OrtValue and IOBinding."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx.compat
from sardonyx.compat import OrtDevice, OrtValue
from sardonyx.compat.capi._pybind_state import OrtDevice as CompiledDevice
from sardonyx.compat.exceptions import RefusedCall
from sardonyx.errors import InvalidInput
from tests.compat.pairs import X, both_modules, parsed, same, session
from tests.support.raises import refused

FACTS = (
    "shape", "data_type", "element_type", "device_name", "is_tensor", "is_sparse_tensor",
    "is_tensor_sequence", "has_value", "tensor_size_in_bytes", "__dlpack_device__",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, np.bool_])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_what_a_value_says_of_itself(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)

    def body(ort: ModuleType) -> Any:
        value = ort.OrtValue.ortvalue_from_numpy(array)
        return [getattr(value, fact)() for fact in FACTS], value.numpy()

    assert isinstance(same(body), tuple)


@both_modules
def test_a_value_shares_memory_with_its_array(ort: ModuleType) -> None:
    array = np.zeros((2, 4), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    for view in (value.numpy(), np.asarray(value), np.from_dlpack(value)):
        assert np.shares_memory(view, array)
    value.update_inplace(X)
    np.testing.assert_array_equal(array, X)
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(X.copy() + 1))
    np.testing.assert_array_equal(array, X + 1)
    assert np.shares_memory(ort.OrtValue.from_dlpack(array).numpy(), array)
    assert np.asarray(value, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(value, copy=True), array)


def test_values_by_shape_and_type() -> None:
    for kind in (np.float16, "float32", bool, onnx.TensorProto.BFLOAT16, np.str_, 77):

        def body(ort: ModuleType, kind: Any = kind) -> Any:
            value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], kind)
            return value.shape(), value.data_type(), value.element_type()

        same(body)
    assert same(lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([-2], np.int8)) == "RuntimeError"  # fmt: skip  # noqa: E501


def test_values_that_are_too_large() -> None:
    for shape in ([2**40, 2**20], [2**62, 4]):
        with pytest.raises(RefusedCall, match="too large"):
            OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


def test_what_is_no_value() -> None:
    for wrong in ([1, 2], np.array(["a"]), np.array(["a"], object)):
        same(lambda ort, wrong=wrong: ort.OrtValue.ortvalue_from_numpy(wrong))
    array = np.zeros(2, np.float32)
    same(lambda ort: ort.OrtValue.ortvalue_from_numpy(array).update_inplace([1]))
    same(lambda ort: ort.OrtValue.ortvalue_from_numpy(array).update_inplace(np.zeros(3, np.float32)))  # fmt: skip  # noqa: E501
    with refused(RefusedCall, "float64"):
        OrtValue.ortvalue_from_numpy(array).update_inplace(np.zeros(2))
    with pytest.raises(ValueError, match="OrtValue"):
        OrtValue(5)


def test_values_of_types_that_numpy_lacks() -> None:
    value = OrtValue.ortvalue_from_numpy(np.ones(2, ml_dtypes.bfloat16))
    assert value.data_type() == "tensor(bfloat16)"
    again = pickle.loads(pickle.dumps(value))
    assert again.numpy().dtype == ml_dtypes.bfloat16
    assert value.__dlpack__() is not None


def test_devices() -> None:
    def body(ort: ModuleType) -> Any:
        devices = [ort.OrtDevice.make(*each) for each in (("cpu", 0), ("cuda", 1), ("gpu", 2))]
        return [(d.device_type(), d.device_id(), d.device_vendor_id()) for d in devices]

    same(body)
    device = CompiledDevice(CompiledDevice.cpu(), CompiledDevice.default_memory(), 0)
    assert device == OrtDevice.make("cpu", 0)
    with refused(InvalidInput, "nonsense", "'cuda'"):
        OrtDevice.make("nonsense", 0)
    with refused(RefusedCall, "GPU") if _has_no_gpu() else refused(RefusedCall):
        OrtValue.ortvalue_from_numpy(X, "cuda", 1000)
    with refused(RefusedCall, "npu"):
        OrtValue.ortvalue_from_numpy(X, "npu")


def _has_no_gpu() -> bool:
    return sardonyx.compat.get_device() == "CPU"


def test_values_as_inputs_and_results() -> None:
    text = "g (int64[N] x) => (int64[N] y, seq(int64[N]) s, string[N] t, bfloat16[N] h) {"
    proto = parsed(
        text + " y = Neg(x) s = SequenceConstruct(x) t = Cast<to=8>(x) h = Cast<to=16>(x) }"
    )
    x = np.arange(2)

    def body(ort: ModuleType) -> Any:
        value = ort.OrtValue.ortvalue_from_numpy(x)
        y, s, t, h = session(ort, proto).run_with_ort_values(None, {"x": value})
        types = [each.data_type() for each in (y, s, t, h)]
        return types, y.numpy(), s.is_tensor_sequence(), t.numpy(), session(ort, proto).run(["y"], {"x": value})  # fmt: skip  # noqa: E501

    assert isinstance(same(body), tuple)
    y, *_ = session(sardonyx.compat, proto).run_with_ort_values(["y"], {"x": x})
    assert not np.shares_memory(y.numpy(), x)


@both_modules
def test_bound_arrays(ort: ModuleType) -> None:
    loaded, x = session(ort), X.copy()
    binding = loaded.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("b", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("z")
    x += 1  # Inputs are read by the call.
    loaded.run_with_iobinding(binding)
    (z,) = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(z, x * X)
    z += 1
    target = np.zeros((2, 4), np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, (2, 4), target.ctypes.data)
    loaded.run_with_iobinding(binding)
    np.testing.assert_allclose(target, x + X)
    assert [value.shape() for value in binding.get_outputs()] == [[2, 4], [2, 4]]
    assert binding.get_outputs()[1].data_ptr() == target.ctypes.data
    value = ort.OrtValue.ortvalue_from_shape_and_type((2, 4), np.float32)
    binding.bind_ortvalue_output("y", value)
    binding.synchronize_inputs()
    loaded.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_allclose(value.numpy(), x + X)
    assert len(binding.get_outputs_as_ortvaluevector()) == 2
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []


@both_modules
def test_inputs_by_address(ort: ModuleType) -> None:
    loaded = session(ort)
    binding = loaded.io_binding()
    for name, kind in (("x", np.float32), ("b", onnx.TensorProto.FLOAT)):
        binding.bind_input(name, "cpu", 0, kind, X.shape, X.ctypes.data)
    binding.bind_output("y")
    loaded.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], X + X)


def bound(ort: ModuleType, **output: Any) -> Any:
    loaded = session(ort)
    binding = loaded.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("b", X)
    if output:
        binding.bind_output("y", "cpu", 0, **output)
    loaded.run_with_iobinding(binding)
    return [value.shape() for value in binding.get_outputs()]


def test_wrong_bindings() -> None:
    memory = np.zeros(16)
    at = {"buffer_ptr": memory.ctypes.data}
    wrong = [
        {},
        {"element_type": np.float32, "shape": (3, 4), **at},
        {"element_type": np.float32, "shape": (8,), **at},
        {"element_type": np.float64, "shape": (2, 4), **at},
        {"element_type": np.float32, "shape": None, **at},
    ]
    for output in wrong:
        assert same(lambda ort, o=output: bound(ort, **o)) in ("RuntimeError", "ValueError")
    assert same(lambda ort: bound(ort, element_type=np.float32, shape=(2, 4), **at)) == [[2, 4]]
    assert same(lambda ort: session(ort).io_binding().bind_cpu_input("q", X)) == "RuntimeError"
    assert same(lambda ort: session(ort).io_binding().bind_cpu_input("x", [1.0])) == "RuntimeError"
    assert same(lambda ort: session(ort).run_with_iobinding(session(ort).io_binding())) == "ValueError"  # fmt: skip  # noqa: E501
    with refused(RefusedCall, "no address"):
        session(sardonyx.compat).io_binding().bind_input("x", "cpu", 0, np.float32, (2, 4), 0)
    for pointer in (None, "1", True):
        with pytest.raises(TypeError, match="address"):
            session(sardonyx.compat).io_binding().bind_input("x", "cpu", 0, np.float32, (2,), pointer)  # fmt: skip  # noqa: E501

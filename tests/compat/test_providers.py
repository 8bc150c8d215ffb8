"""Providers: names of backends and devices."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx.compat
from sardonyx import InvalidInput
from sardonyx.backends import find
from sardonyx.compat.capi.onnxruntime_pybind11_state import Fail
from sardonyx.compat.exceptions import RefusedCall
from sardonyx.errors import BackendUnavailable
from tests.compat.pairs import CPU, FEEDS, X, same, session
from tests.support.raises import refused

NO_GPU = sardonyx.compat.get_device() == "CPU"
without_gpu = pytest.mark.skipif(not NO_GPU, reason="there is a device besides the CPU")


def placed(ort: ModuleType, providers: Any, **options: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = session(ort, providers=providers, **options)
    kinds = sorted({each.category.__name__ for each in caught})
    return loaded.get_providers(), loaded.get_provider_options(), kinds


@without_gpu
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "providers",
    [
        CPU,
        tuple(CPU),
        [],
        None,
        CPU * 2,
        [("CPUExecutionProvider", {"a": 1})],
        ["CUDAExecutionProvider", "CPUExecutionProvider"],
        ["CUDAExecutionProvider"],
        ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
        ["CoreMLExecutionProvider", "CPUExecutionProvider"],
        ["Nope"],
        ["Nope", "CPUExecutionProvider"],
        5,
    ],
    ids=repr,
)
def test_providers_that_are_here_and_those_that_are_not(providers: Any) -> None:
    same(lambda ort: placed(ort, providers))


def test_options_are_checked() -> None:
    for providers, options in (([5], None), ([("CPUExecutionProvider",)], None), (CPU, [])):
        assert same(lambda ort, p=providers, o=options: session(ort, providers=p, provider_options=o, enable_fallback=0)) == "ValueError"  # fmt: skip  # noqa: E501
    assert same(lambda ort: placed(ort, CPU, provider_options=[{"a": "b"}])) == (CPU, {CPU[0]: {}}, [])  # fmt: skip  # noqa: E501


def test_without_a_fallback_unknown_names_are_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (
            same(lambda ort: session(ort, providers=["Nope"], enable_fallback=0)) == "RuntimeError"
        )


@without_gpu
def test_an_entry_forbids_the_cpu() -> None:
    options = sardonyx.compat.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"), refused(Fail, "CUDA"):
        session(sardonyx.compat, sess_options=options, providers=["CUDAExecutionProvider"])


def test_backends_are_named_as_providers() -> None:
    for name, backend in (("NumpyExecutionProvider", "numpy"), ("JaxExecutionProvider", "jax")):
        loaded = session(sardonyx.compat, providers=[(name, {"device": "cpu"})])
        assert loaded._model.backend == backend
        assert loaded.get_providers() == [name, *CPU]
        assert loaded.get_provider_options()[name] == {"device": "cpu"}
        np.testing.assert_array_equal(loaded.run(["y"], FEEDS)[0], X + X)
    for options in ({"device_id": "x"}, {"device_id": -1}):
        with refused(InvalidInput, "device_id"):
            session(sardonyx.compat, providers=[("CUDAExecutionProvider", options)])
    with refused(InvalidInput, "device"):
        session(sardonyx.compat, providers=[("JaxExecutionProvider", {"device_id": 1})])


def test_a_session_moves_to_another_provider() -> None:
    loaded = session(sardonyx.compat)
    loaded.set_providers(["NumpyExecutionProvider"])
    assert loaded.get_providers() == ["NumpyExecutionProvider", *CPU]
    np.testing.assert_array_equal(loaded.run(["y"], FEEDS)[0], X + X)
    loaded.disable_fallback()
    with refused(RefusedCall, "Nope"):
        loaded.set_providers(["Nope"])
    assert loaded.get_providers() == ["NumpyExecutionProvider", *CPU]
    loaded.enable_fallback()
    with pytest.warns(UserWarning, match="Nope"):
        loaded.set_providers(["Nope"])
    assert loaded.get_providers() == CPU


def test_providers_of_the_options() -> None:
    options = sardonyx.compat.SessionOptions()
    assert not options.has_providers()
    options.add_provider("NumpyExecutionProvider", {})
    assert options.has_providers()
    loaded = session(sardonyx.compat, sess_options=options, providers=None)
    assert loaded.get_providers()[0] == "NumpyExecutionProvider"


def test_lists_of_providers() -> None:
    every, here = sardonyx.compat.get_all_providers(), sardonyx.compat.get_available_providers()
    assert set(here) <= set(every)
    assert {"JaxExecutionProvider", "NumpyExecutionProvider", *CPU} <= set(here)
    assert here[-1] == CPU[0]
    session(sardonyx.compat, providers=here)


ON_CUDA = {
    "CUDAExecutionProvider": {"device_id": 0},
    "CupyExecutionProvider": {},
    "JaxExecutionProvider": {"device": "cuda"},
}

BACKENDS = dict(zip(ON_CUDA, (None, "cupy", "jax"), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="no GPU")
@pytest.mark.parametrize("provider", ON_CUDA)
def test_values_and_bindings_on_a_gpu(provider: str) -> None:
    ort = sardonyx.compat
    try:
        find(BACKENDS[provider], "cuda")
    except BackendUnavailable as error:
        pytest.skip(str(error))
    loaded = session(ort, providers=[(provider, ON_CUDA[provider])])
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert (value.device_name(), value.shape()) == ("cuda", [2, 4])
    binding = loaded.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, (2, 4), value.data_ptr())
    binding.bind_ortvalue_input("b", value)
    binding.bind_output("y", "cuda")
    loaded.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "cuda"
    np.testing.assert_allclose(y.numpy(), X + X)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], X + X)
    target = ort.OrtValue.ortvalue_from_shape_and_type((2, 4), np.float32, "cuda", 0)
    binding.bind_output("y", "cuda", 0, np.float32, (2, 4), target.data_ptr())
    loaded.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), X + X)
    assert session(ort, providers=[("CUDAExecutionProvider", {"device_id": 0})]).get_provider_options()["CUDAExecutionProvider"] == {"device_id": "0"}  # fmt: skip  # noqa: E501

"""Finding a backend: by name, by device, or by the array that is there."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sardonyx import backends
from sardonyx.backends import available, backend_of, find
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.backends.strides import axis_order, dense_strides, overlap
from sardonyx.errors import BackendUnavailable, InvalidInput


class FakeCupy(JaxBackend):
    """Stands for CuPy where there is no GPU."""

    name = "cupy"
    present = True

    @classmethod
    def has_accelerator(cls) -> bool:
        return cls.present

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> Any:
        if kind == "cpu" or not cls.present:
            raise BackendUnavailable("CuPy finds no NVIDIA GPU")
        return index or 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decides what is installed, and which of it has an accelerator."""

    def furnish(jax_has_gpu: bool, cupy_has_gpu: bool | None, has_jax: bool = True) -> None:
        true_class = backends._class

        def class_of(name: str) -> Any:
            if (name == "cupy" and cupy_has_gpu is None) or (name == "jax" and not has_jax):
                raise BackendUnavailable(f"The backend {name!r} is not installed")
            return FakeCupy if name == "cupy" else true_class(name)

        monkeypatch.setattr(backends, "_class", class_of)
        monkeypatch.setattr(JaxBackend, "has_accelerator", classmethod(lambda cls: jax_has_gpu))
        monkeypatch.setattr(FakeCupy, "present", bool(cupy_has_gpu))
        backends._shared.cache_clear()

    yield furnish
    backends._shared.cache_clear()


@pytest.mark.parametrize(
    ("jax_has_gpu", "cupy_has_gpu", "has_jax", "best"),
    [
        (True, True, True, "jax"),
        (True, None, True, "jax"),
        (False, True, True, "cupy"),
        (False, False, True, "jax"),
        (False, None, True, "jax"),
        (False, True, False, "cupy"),
        (False, False, False, "numpy"),
        (False, None, False, "numpy"),
    ],
)
def test_an_accelerator_comes_first(
    machine: Any, jax_has_gpu: bool, cupy_has_gpu: bool | None, has_jax: bool, best: str
) -> None:
    machine(jax_has_gpu, cupy_has_gpu, has_jax)
    assert find().name == best


def test_a_gpu_is_looked_for_in_both_libraries(machine: Any) -> None:
    machine(False, True)
    assert find(None, "cuda:1").name == "cupy"
    assert find(None, "cuda:1").device == 1  # type: ignore[attr-defined]
    assert find(None, "cpu").name == "jax"
    assert available() == ["jax", "cupy", "numpy"]


def test_there_is_one_backend_per_device() -> None:
    cpu = jax.devices("cpu")[0]
    assert find("numpy") is find("numpy", "cpu") is HOST
    assert find("jax") is find("jax")
    assert find("jax", "cpu") is find("jax", "cpu:0")
    assert find("jax", cpu) is find(None, cpu)
    assert find("jax", cpu).device == cpu  # type: ignore[attr-defined]


def test_the_only_cpu_needs_no_name() -> None:
    """A device that is named makes calls copy the arrays of NumPy."""
    is_alone = jax.devices() == jax.devices("cpu")[:1]
    assert (find("jax", "cpu") is find("jax")) == is_alone
    assert find("jax", "cpu").takes_numpy == is_alone


def test_an_array_knows_its_backend() -> None:
    class Measured(np.ndarray[Any, Any]):
        pass

    assert backend_of(np.zeros(3)) is HOST
    assert backend_of(np.zeros(3).view(Measured)) is HOST
    assert backend_of(jnp.zeros(3)) is find("jax")
    jax.jit(lambda x: backend_of(x) is find("jax") or pytest.fail("another backend"))(jnp.zeros(3))
    other = backend_of(strict.zeros(3))
    assert other is backend_of(strict.ones(3))
    assert other.name == "array_api_strict"
    assert other.owns(strict.zeros(3))
    assert not other.owns(np.zeros(3))
    assert other.numpy_dtype(strict.zeros(3, dtype=strict.uint16).dtype) == np.uint16
    for nothing in ([1.0], 1.0, None, jax.devices()[0], jnp):
        with pytest.raises(InvalidInput, match="is no array"):
            backend_of(nothing)


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("torch", None, "'jax', 'cupy', 'numpy', or None"),
        ("numpy", "gpu", "'numpy' has the CPU alone"),
        ("numpy", "cpu:1", "'numpy' has the CPU alone"),
        ("jax", "cpu:99", "JAX finds no cpu:99; this machine has"),
        ("jax", "npu", "There is no device 'npu'"),
        (None, "cuda:-1", "There is no device 'cuda:-1'"),
        (None, "cuda:", "There is no device 'cuda:'"),
        ("numpy", 0, "0 is no device of numpy"),
    ],
)
def test_what_is_not_there_is_an_error(name: str | None, device: Any, message: str) -> None:
    with pytest.raises(BackendUnavailable, match=message):
        find(name, device)


@pytest.mark.skipif(JaxBackend.has_accelerator(), reason="there is one")
def test_a_missing_accelerator_is_an_error_with_the_way_to_it() -> None:
    with pytest.raises(BackendUnavailable, match=r"no GPU here.*pip install 'sardonyx\[cuda\]'"):
        find("jax", "gpu")
    with pytest.raises(BackendUnavailable, match=r"no TPU here.*pip install 'sardonyx\[tpu\]'"):
        find(None, "tpu")
    with pytest.raises(BackendUnavailable, match=r"JAX finds no GPU.*cupy"):
        find(None, "cuda")


def test_a_missing_library_is_an_error_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sardonyx.backends.cupy.backend", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'sardonyx\[cuda\]'"):
        find("cupy")
    assert "cupy" not in available()


def test_looking_imports_nothing() -> None:
    script = (
        "import sys, numpy\n"
        "from sardonyx.backends import backend_of, find\n"
        "backend_of(numpy.zeros(3)), find('numpy')\n"
        "assert not {'jax', 'cupy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_strides_tell_where_elements_lie() -> None:
    assert dense_strides((2, 0, 3)) == (0, 3, 1)
    assert axis_order((2, 1, 3), (1, 99, 2)) == (1, 2, 0)
    assert axis_order((2, 3), (0, 1)) is None
    assert not overlap((2, 3), (3, 2))  # interleaved, yet apart
    assert overlap((3, 3), (2, 4))
    assert overlap((10**9, 2), (1, 0))

"""Which attention is meant for cuDNN: by the switch, the device, cuDNN's version and the sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.jax.accelerators import cudnn_attention, cudnn_choice, cudnn_trial
from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH, Choice
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.inside import InsideBackend
from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.xla_cuda.layouts import capability_of
from sardonyx.backends.operations.scores import Scoring
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.ops.attention import Attention
from sardonyx.ops.definition import Outputs
from tests.support.on_hopper import OnHopper

BF16 = np.dtype(ml_dtypes.bfloat16)
# 16 MiB of scores.
LARGE, SMALL = (1, 4, 1024, 64), (1, 4, 512, 64)
CASES = {"unset": None, "empty": "", "never": "0", "always": "1"}


def switched(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(SWITCH, raising=False)
    else:
        monkeypatch.setenv(SWITCH, value)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)


def of(shape: tuple[int, ...]) -> Any:
    return jax.ShapeDtypeStruct(shape, BF16)


# -- the decision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", CASES.values(), ids=CASES.keys())
def test_values_of_the_switch(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    switched(monkeypatch, value)
    expected = {"0": Choice.NEVER, "1": Choice.ALWAYS}.get(value or "", Choice.BY_DEFAULT)
    assert cudnn_choice.choice() is expected


@pytest.mark.parametrize("value", ["auto", "on", " 1", "2", "\x1b[2J"])
def test_other_values_are_an_error_where_they_matter(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWITCH, value)
    for backend in (OnHopper(), InsideBackend()):
        with pytest.raises(InvalidInput, match=f"{SWITCH} is .*: set it to 1 or 0") as error:
            assert backend.asks_cudnn
        assert "\x1b" not in str(error.value)
    assert not JaxBackend(jax.devices("cpu")[0]).asks_cudnn
    assert not PortableBackend().asks_cudnn


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("capability", "by_default", "always"),
    [
        ("7.5", False, False),
        ("8.0", True, True),
        ("8.6", True, True),
        ("8.7", False, True),
        ("8.9", True, True),
        ("9.0", True, True),
        ("10.0", False, True),
        ("10.3", False, True),
        ("12.1", False, True),
        ("gfx90a", False, False),
        (None, False, False),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch, capability: str | None, by_default: bool, always: bool
) -> None:
    class Device:
        platform = "gpu"
        compute_capability = capability

    device: Any = Device()
    found = []
    for value in (None, "1", "0"):
        switched(monkeypatch, value)
        found.append(cudnn_choice.is_for_device(capability_of(device)))
    assert found == [by_default, always, False]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "which JAX does not find"),
        (90100, "whose version 9.1.0"),
        (91500, "whose version 9.15.0"),
        (91501, None),
        (92801, None),
        (100000, "whose version 10.0.0"),
    ],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, version: int | None, words: str | None) -> None:
    reason = cudnn_choice.reason_against(version)
    assert reason is None if words is None else words in (reason or "")
    monkeypatch.setenv(SWITCH, "1")
    assert cudnn_choice.reason_against(version) is None


@pytest.mark.parametrize(
    ("q", "k", "is_included"),
    [
        (LARGE, LARGE, True),
        (SMALL, SMALL, False),
        ((16, *SMALL[1:]), (16, *SMALL[1:]), True),
        # Few queries, many keys.
        ((1, 4, 64, 64), (1, 4, 16384, 64), True),
        ((1, 4, 1023, 64), LARGE, False),
        ((1, 8, 1024, 128), (1, 2, 1024, 128), True),
        ((1, 8, 1024, 96), (1, 8, 1024, 96), False),
        ((1, 8, 1024, 32), (1, 8, 1024, 32), False),
    ],
)
def test_sizes(
    monkeypatch: pytest.MonkeyPatch, q: tuple[int, ...], k: tuple[int, ...], is_included: bool
) -> None:
    assert cudnn_choice.is_for_sizes(of(q), of(k)) == is_included
    monkeypatch.setenv(SWITCH, "1")
    assert cudnn_choice.is_for_sizes(of(q), of(k))


def test_the_version_is_that_of_the_library_that_JAX_finds() -> None:
    assert is_found() == (cudnn_choice.version() is not None)
    assert (cudnn_choice.version() or 90000) >= 90000


# -- what backends ask ----------------------------------------------------------------------------


def traced(xp: Any, shape: tuple[int, ...] = LARGE) -> str:
    inputs = [of(shape)] * 3
    return str(jax.make_jaxpr(lambda *x: Attention(xp, *x, outputs=Outputs(1))[0])(*inputs))


def is_found() -> bool:
    """Whether JAX finds cuDNN."""
    x = jnp.zeros((1, 2, 1, 8), BF16)
    try:
        jax.make_jaxpr(lambda x: jax.nn.dot_product_attention(x, x, x, implementation="cudnn"))(x)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("value", CASES.values(), ids=CASES.keys())
def test_it_is_for_one_device_of_CUDA(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    switched(monkeypatch, value)
    assert OnHopper().asks_cudnn == (value != "0")
    assert ("cudnn" in OnHopper().identity) == (value != "0")
    assert not OnHopper(jit=False).asks_cudnn
    # A program for several platforms or a mesh has nobody to compile it anew.
    assert not PortableBackend().asks_cudnn
    assert not JaxBackend(jax.devices("cpu")[0]).asks_cudnn
    # Callers compile functions themselves, and differentiate them.
    assert InsideBackend().asks_cudnn == (value == "1")
    if value != "1":
        assert "dot_product_attention" not in traced(InsideBackend())


def test_cuDNN_that_was_asked_for_and_is_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    if is_found():
        assert "dot_product_attention_fwd" in traced(InsideBackend())
    else:
        with pytest.raises(BackendUnavailable, match=f"{SWITCH}=1 asks for attention by cuDNN"):
            traced(InsideBackend())


def stand_in(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return cudnn_attention.attended(q, k, v, scoring, "xla")


class Trusting(OnHopper):
    """Notes what it would call cuDNN for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[tuple[int, ...]] = []

    def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
        self.asked.append(q.shape)
        device = jax.devices("cpu")[0]
        assert cudnn_trial.agrees(device, q, k, scoring, stand_in)
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "asked"), [(None, [LARGE]), ("0", []), ("1", [LARGE, SMALL, (1, 2, 8, 16)])]
)
def test_trials_are_for_what_is_chosen(
    monkeypatch: pytest.MonkeyPatch, value: str | None, asked: list[tuple[int, ...]]
) -> None:
    switched(monkeypatch, value)
    xp = Trusting()
    for shape in (LARGE, SMALL, (1, 2, 8, 16)):
        traced(xp, shape)
    assert xp.asked == asked


def model_of(shape: tuple[int, ...]) -> Any:
    inputs = ", ".join(f"bfloat16[{','.join(map(str, shape))}] {name}" for name in "qkv")
    graph = f"g ({inputs}) => (y) {{ y = Attention (q, k, v) }}"
    return parser.parse_model(f'<ir_version: 11, opset_import: ["": 24]> {graph}')


@pytest.mark.parametrize("value", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_no_call_fails_where_cuDNN_does(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], value: str | None
) -> None:
    """Here either JAX finds no cuDNN, or cuDNN no GPU."""
    switched(monkeypatch, value)
    x = np.random.default_rng(0).standard_normal(shape).astype(BF16)
    model = sardonyx.load(model_of(shape), backend=OnHopper(), compile="now")
    if value == "1" and not is_found():
        with pytest.raises(BackendUnavailable, match=f"{SWITCH}=1"):
            model(x, x, x)
        return
    found = np.asarray(model(x, x, x), np.float32)
    reasons = model.stats().workarounds
    if value == "1" or (value != "0" and shape == LARGE):
        assert [reason[:23] for reason in reasons] == ["attention without cuDNN"]
    else:
        assert not reasons
    right = sardonyx.run_op("Attention", x, x, x, opset=24, backend="numpy")
    np.testing.assert_allclose(found, np.asarray(right, np.float32), rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_only_programs_that_are_compiled_here_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those inside of a caller's transformation, before or after the model itself."""
    monkeypatch.setattr(cudnn_choice, "version", lambda: cudnn_choice.OLDEST)
    proto = model_of(LARGE)
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("scale", 0.1875))
    model: Any = sardonyx.load(proto, backend=OnHopper(), compile="now")
    x = jnp.ones(LARGE, BF16)

    def total(x: Any) -> Any:
        return jnp.sum(model(x, x, x).astype(jnp.float32))

    def transformed() -> None:
        assert jax.jit(total)(x) == x.size
        assert np.isfinite(np.asarray(jax.grad(total)(x), np.float32)).all()
        assert jax.jvp(total, (x,), (x,))[1] == x.size

    def tried() -> int:
        return sum(attention.scale == 0.1875 for _, attention, _ in cudnn_trial._verdicts)

    transformed()
    assert tried() == 0
    model(x, x, x)
    assert tried() == 1
    transformed()
    assert len(model.stats().workarounds) == 1


# -- caches ---------------------------------------------------------------------------------------


def test_programs_of_one_choice_and_version_are_not_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identities = [OnHopper(jit=False).identity]
    for value in CASES.values():
        switched(monkeypatch, value)
        identities.append(OnHopper().identity)
    # Unset is the same as empty.
    assert len(set(identities)) == 4
    switched(monkeypatch, None)
    monkeypatch.setattr(cudnn_choice, "version", lambda: 91600)
    assert OnHopper().identity not in identities
    assert "91600" in OnHopper().identity


def saved(file: Path, folder: Path) -> None:
    """Write a cache file of a model that ran, as `sardonyx compile` does."""
    model = sardonyx.load(model_of(SMALL), backend=OnHopper(), cache=folder, compile="now")
    model(*[np.zeros(SMALL, BF16)] * 3)
    recordings = model._plain.recordings  # type: ignore[union-attr]
    assert recordings is not None
    recordings.save(file)


def started(file: Path) -> tuple[bool, int]:
    """Whether a model that starts from the file asks for cuDNN, and its traces in a call."""
    model = sardonyx.load(model_of(SMALL), backend=OnHopper(), cache=file, compile="now")
    model(*[np.zeros(SMALL, BF16)] * 3)
    backend: Any = model._shared.backend  # type: ignore[union-attr]
    return backend.asks_cudnn, model.stats().traces


def test_a_file_of_programs_without_it_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SWITCH, "0")
    saved(tmp_path / "file", tmp_path / "folder")
    assert started(tmp_path / "file") == (False, 0)
    monkeypatch.delenv(SWITCH)
    assert started(tmp_path / "file") == (False, 0)
    # In a folder the programs of both choices have room, and who asks for cuDNN gets it.
    for value, place in (("", "folder"), ("1", "file"), ("1", "folder")):
        monkeypatch.setenv(SWITCH, value)
        backend: Any = OnHopper().with_cache(tmp_path / place)
        assert backend.asks_cudnn


def test_a_file_of_programs_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(tmp_path / "file", tmp_path / "folder")
    assert started(tmp_path / "file") == (True, 0)
    monkeypatch.setenv(SWITCH, "0")
    with pytest.warns(UserWarning, match="with other options"):
        assert started(tmp_path / "file") == (False, 1)

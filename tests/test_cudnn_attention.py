"""When attention goes to cuDNN, and with what; JAX's other implementation stands in for cuDNN here.

Both get the same arguments. cuDNN itself needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends import find
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.accelerators import cudnn_attention, cudnn_trial
from sardonyx.backends.jax.accelerators.cudnn_attention import SWITCH, WITHOUT_CUDNN, is_for
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.inside import InsideBackend
from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.xla_cuda.layouts import capability_of
from sardonyx.backends.operations.scores import Reach, Scoring
from sardonyx.errors import BackendUnavailable
from sardonyx.ops.attention import Attention
from sardonyx.ops.definition import Outputs
from sardonyx.ops.microsoft.attention import attended as attended_of_microsoft
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention

pytestmark = pytest.mark.sampled(3)

BATCH, HEADS, SHARED, LENGTH, SIZE = 3, 4, 2, 13, 16
BF16 = np.dtype(ml_dtypes.bfloat16)


class StandIn(PortableBackend):
    """JAX that computes what cuDNN would by JAX's other implementation, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def attention_like(self, general: Any, q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
        if not is_for(q, k, v, scoring):
            return general(q, k, v)
        self.taken += 1
        return cudnn_attention.attended(q, k, v, scoring, "xla")


def arrays(
    queries: int = LENGTH, keys: int = LENGTH, shared: int = SHARED
) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(5).standard_normal
    shapes = (HEADS, queries), (shared, keys), (shared, keys)
    q, k, v = (draw((BATCH, *shape, SIZE)).astype(BF16) for shape in shapes)
    return q, k, v


def by_position(x: np.ndarray) -> np.ndarray:
    """(batch, length, heads * size)."""
    return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def standard(*inputs: Any, **attributes: Any) -> Callable[[Any], Any]:
    def run(xp: Any) -> Any:
        given = [None if x is None else xp.asarray(x) for x in inputs]
        return Attention(xp, *given, outputs=Outputs(1), **attributes)[0]

    return run


def grouped(*inputs: Any, total: int, **attributes: Any) -> Callable[[Any], Any]:
    """The last of the inputs are the lengths, less one."""

    def run(xp: Any) -> Any:
        given = [None if x is None else xp.asarray(x) for x in inputs]
        counts = {"num_heads": HEADS, "kv_num_heads": SHARED, "outputs": Outputs(3)}
        return GroupQueryAttention(xp, *given, total, **counts, **attributes)[0]

    return run


def microsoft(mask: Any = None, *, is_causal: int = 0, past: bool = False) -> Callable[[Any], Any]:
    def run(xp: Any) -> Any:
        q, k, v = (xp.asarray(x) for x in arrays(shared=HEADS))
        masks = None if mask is None else xp.asarray(mask), None, -1e4
        before = (k, v) if past else (None, None)
        options = {"is_causal": is_causal, "scale": 0.25}
        return attended_of_microsoft(xp, (q, k, v), (*before, None), masks, **options)[0]

    return run


def of_exporters(bias: Any = None, *, is_guarded: bool = False) -> Callable[[Any], Any]:
    def run(xp: Any) -> Any:
        q, k, v = (xp.asarray(x) for x in arrays())
        added = [] if bias is None else [xp.asarray(bias)]
        return xp.attention(q, k, v, *added, scale=0.25, is_guarded=is_guarded)

    return run


LENGTHS = np.array([LENGTH, 5, 0], np.int64)
PROMPT = *map(by_position, arrays()), None, None, np.array([LENGTH - 1, 4, 0], np.int32)
TOKEN = *(by_position(x[:, :, :1]) for x in arrays()), *arrays()[1:], np.array([6, 2, 0], np.int32)
TWO = *(by_position(x[:, :, :2]) for x in arrays()), *arrays()[1:], np.array([6, 2, 1], np.int32)
BIAS = np.linspace(-2, 2, LENGTH).astype(BF16).reshape(1, 1, 1, -1)
SEEN = np.arange(LENGTH) % 3 > 0
WIDE = [np.concatenate([x] * 9, axis=-1) for x in arrays()]

TAKEN = {
    "plain": standard(*arrays()),
    "causal": standard(*arrays(), is_causal=1),
    "other number of keys": standard(*arrays(keys=LENGTH + 4)),
    "more queries": standard(*arrays(queries=LENGTH + 4)),
    "lengths, one of them 0": standard(*arrays(), None, None, None, LENGTHS),
    "a past without causality": standard(*arrays(), None, *arrays()[1:]),
    "scale": standard(*arrays(), scale=0.125),
    "prompt": grouped(*PROMPT, total=LENGTH),
    "prompt that sees all": grouped(*PROMPT, total=LENGTH, causal=0),
    "microsoft": microsoft(),
    "microsoft, causal": microsoft(is_causal=1),
    "microsoft, past": microsoft(past=True),
    "exporters": of_exporters(),
    "exporters, guarded": of_exporters(is_guarded=True),
}
LEFT = {
    "mask of booleans": standard(*arrays(), SEEN),
    "mask of numbers": standard(*arrays(), BIAS[0, 0]),
    "softcap": standard(*arrays(), softcap=2.0),
    "window": standard(*arrays(), left_window_size=3),
    "window to the right": standard(*arrays(), right_window_size=3),
    "causal after a past": standard(*arrays(), None, *arrays()[1:], is_causal=1),
    "causal with lengths": standard(*arrays(), None, None, None, LENGTHS, is_causal=1),
    "causal, other number of keys": standard(*arrays(keys=LENGTH + 4), is_causal=1),
    "one query": standard(*arrays(queries=1)),
    "float32": standard(*(x.astype(np.float32) for x in arrays())),
    "large heads": standard(*WIDE),
    "odd heads": standard(*(x[..., :12] for x in arrays())),
    "other size of values": standard(*arrays()[:2], arrays()[2][..., :8]),
    "negative scale": standard(*arrays(), scale=-0.25),
    "no scale": standard(*arrays(), scale=0.0),
    "decoding": grouped(*TOKEN, total=LENGTH),
    "two tokens after a past": grouped(*TWO, total=LENGTH),
    "prompt in a window": grouped(*PROMPT, total=LENGTH, local_window_size=4),
    "prompt with a sink": grouped(*PROMPT, total=LENGTH, smooth_softmax=1),
    "microsoft, lengths": microsoft(LENGTHS.astype(np.int32)),
    "microsoft, causal after a past": microsoft(is_causal=1, past=True),
    "exporters, bias": of_exporters(BIAS),
}


@pytest.mark.parametrize(("call", "count"), [
    *[pytest.param(call, 1, id=name) for name, call in TAKEN.items()],
    *[pytest.param(call, 0, id=name) for name, call in LEFT.items()],
])  # fmt: skip
def test_what_cuDNN_gets_means_the_same(call: Callable[[Any], Any], count: int) -> None:
    xp = StandIn()
    with xp.scope():
        found = np.asarray(jax.jit(lambda: call(xp))(), np.float64)
    assert xp.taken == count
    with find("numpy").scope():
        right = np.asarray(call(find("numpy")), np.float64)
    np.testing.assert_allclose(found, right, rtol=2e-2, atol=2e-2)


def test_samples_without_keys_get_zeros_and_finite_gradients() -> None:
    scoring = Scoring(0.25, reach=Reach(lengths=jnp.asarray(LENGTHS)))

    def total(*given: Any) -> Any:
        y = cudnn_attention.attended(*given, scoring, "xla")
        return jnp.sum(y.astype(jnp.float32)), y

    of_all = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))
    gradients, y = of_all(*map(jnp.asarray, arrays()))
    assert not np.asarray(y[2], np.float32).any()
    assert np.asarray(y[1], np.float32).any()
    for gradient in gradients:
        assert np.isfinite(np.asarray(gradient, np.float32)).all()
        assert not np.asarray(gradient[2], np.float32).any()


def test_lengths_are_passed_beside_a_block_of_fewer_keys() -> None:
    scoring = Scoring(0.25, reach=Reach(is_causal=True))
    for length, is_whole in ((128, True), (256, True), (64, False), (130, False)):
        given = [jax.ShapeDtypeStruct((1, 2, length, SIZE), BF16)] * 3
        form = lambda *x: cudnn_attention.attended(*x, scoring, "xla")  # noqa: E731
        assert ("i32[1]" not in str(jax.make_jaxpr(form)(*given))) == is_whole


def test_sizes_without_a_number_are_left() -> None:
    (size,) = jax.export.symbolic_shape("n")
    given = [jax.ShapeDtypeStruct((1, 2, size, SIZE), BF16)] * 3
    assert not is_for(*given, Scoring(0.25, reach=Reach()))
    fixed = [jax.ShapeDtypeStruct((1, 2, 4, SIZE), BF16)] * 3
    assert is_for(*fixed, Scoring(0.25, reach=Reach()))
    assert not is_for(*fixed, Scoring(0.25))


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ("8.0", True),
        ("9.0", True),
        ("12.1", True),
        ("7.5", False),
        ("gfx90a", False),
        (None, False),
    ],
)
def test_devices(capability: str, runs: bool) -> None:
    class Device:
        platform = "gpu"
        compute_capability = capability

    device: Any = Device()
    assert cudnn_attention.runs_on(capability_of(device)) == runs
    assert not cudnn_attention.runs_on(capability_of(jax.devices("cpu")[0]))


# -- the switch -----------------------------------------------------------------------------------


def traced(xp: Any) -> str:
    inputs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays()]
    return str(jax.make_jaxpr(lambda *x: Attention(xp, *x, outputs=Outputs(1))[0])(*inputs))


def is_found() -> bool:
    """Whether JAX finds cuDNN."""
    x = jnp.zeros((1, 2, 1, 8), BF16)
    try:
        jax.make_jaxpr(lambda x: jax.nn.dot_product_attention(x, x, x, implementation="cudnn"))(x)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("value", [None, "0", ""])
def test_nothing_asks_for_it_by_default(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    assert not any(xp.asks_cudnn for xp in (JaxBackend(), PortableBackend(), InsideBackend()))
    assert "cudnn" not in JaxBackend().identity
    assert "dot_product_attention" not in traced(InsideBackend())


def test_it_is_for_one_device_of_CUDA(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    assert InsideBackend().asks_cudnn
    # A program for several platforms or a mesh has nobody to compile it anew.
    assert not PortableBackend().asks_cudnn
    assert not JaxBackend(jax.devices("cpu")[0]).asks_cudnn
    assert OnCuda().asks_cudnn
    assert not OnCuda(jit=False).asks_cudnn
    assert "cudnn" in OnCuda().identity


def test_cuDNN_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    if is_found():
        assert "dot_product_attention_fwd" in traced(InsideBackend())
    else:
        with pytest.raises(BackendUnavailable, match=f"{SWITCH}=1 asks for attention by cuDNN"):
            traced(InsideBackend())


# -- programs that XLA refuses --------------------------------------------------------------------


class OnCuda(JaxBackend):
    """A backend on the CPU that takes its device for one of CUDA."""

    @property
    def asks_cudnn(self) -> bool:
        return self.compiled and cudnn_attention.is_asked_for()


def replayed(xp: OnCuda, *, breaks: str) -> Callable[..., Any]:
    """Steps that double their input, or call what XLA for CPUs does not have."""

    def replay(x: Any) -> Any:
        if breaks == "always" or (breaks == "with cuDNN" and xp.asks_cudnn):
            return [jax.ffi.ffi_call("__cudnn$fmhaSoftmax", x)(x)]
        return [x * 2]

    return replay


def test_a_program_that_is_refused_is_compiled_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    xp, x = OnCuda(), np.arange(4, dtype=np.float32)
    spec = Spec(x.shape, x.dtype)
    executable = xp.compile(replayed(xp, breaks="with cuDNN"), [spec])
    assert executable.workaround == WITHOUT_CUDNN
    np.testing.assert_array_equal(executable.run(jnp.asarray(x))[0], x * 2)
    assert xp.asks_cudnn

    executable = xp.compile(replayed(xp, breaks="never"), [spec])
    assert executable.workaround is None
    with pytest.raises(jax.errors.JaxRuntimeError, match="fmhaSoftmax"):
        xp.compile(replayed(xp, breaks="always"), [spec])
    monkeypatch.delenv(SWITCH)
    with pytest.raises(jax.errors.JaxRuntimeError, match="fmhaSoftmax"):
        xp.compile(replayed(xp, breaks="always"), [spec])


# -- the trial ------------------------------------------------------------------------------------


def stand_in(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return cudnn_attention.attended(q, k, v, scoring, "xla")


def wrong(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    """One head reads the keys of another, as a kernel might."""
    return stand_in(q, k[:, ::-1], v[:, ::-1], scoring)


def with_nan(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return stand_in(q, k, v, scoring).at[-1, -1, -1, -1].set(jnp.nan)


def failing(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return jax.ffi.ffi_call("__cudnn$fmhaSoftmax", q)(q)


DIFFERED = "attention without cuDNN, whose results differed when it was tried out"
FAILED = "attention without cuDNN, which failed when it was tried out"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("reach", [
    Reach(), Reach(is_causal=True), Reach(lengths=LENGTHS), Reach(True, LENGTHS),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16], ids=str)
def test_a_trial_agrees(dtype: Any, reach: Reach, is_traced: bool) -> None:
    device = jax.devices("cpu")[0]
    verdicts = []

    def ask(q: Any, k: Any, v: Any) -> Any:
        scoring = Scoring(0.25, reach=reach)
        verdicts.append(cudnn_trial.agrees(device, q, k, scoring, stand_in))
        return q

    given = [x.astype(dtype) for x in arrays()]
    (jax.jit(ask) if is_traced else ask)(*given)
    assert verdicts == [True]


@pytest.mark.parametrize(
    ("form", "reason"), [(wrong, DIFFERED), (with_nan, DIFFERED), (failing, FAILED)]
)
def test_what_is_wrong_or_fails_in_a_trial_is_not_used(form: Any, reason: str) -> None:
    q, k, _ = arrays()
    scoring = Scoring(0.25, reach=Reach())
    with cudnn_trial.noted() as notes:
        for _ in range(2):
            assert not cudnn_trial.agrees(jax.devices("cpu")[0], q, k, scoring, form)
    assert len(notes) == 2
    assert notes[0] == notes[1]
    assert notes[0].startswith(reason)


def test_a_trial_of_long_sequences_keeps_the_rest_of_their_blocks() -> None:
    assert cudnn_trial._shortened((8, 4, 2048, 64)) == (2, 4, 2048, 64)
    assert cudnn_trial._shortened((1, 4, 32768, 64)) == (1, 4, 1024, 64)
    assert cudnn_trial._shortened((8, 4, 5000, 64)) == (2, 4, 1928, 64)


def test_programs_go_on_without_it_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distrusting(OnCuda):
        def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
            return cudnn_trial.agrees(jax.devices("cpu")[0], q, k, scoring, wrong)

    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(Distrusting, "is_only_for_cpus", False)
    text = """<ir_version: 11, opset_import: ["": 24]>
        g (float16[3,4,13,16] q, float16[3,2,13,16] k, float16[3,2,13,16] v) => (y)
        { y = Attention (q, k, v) }"""
    model = sardonyx.load(parser.parse_model(text), backend=Distrusting(), compile="now")
    given = [x.astype(np.float16) for x in arrays()]
    right = sardonyx.run_op("Attention", *given, opset=24, backend="numpy")
    np.testing.assert_allclose(np.asarray(model(*given)), right, rtol=1e-2, atol=1e-2)
    assert model.stats().workarounds == {DIFFERED: 1}

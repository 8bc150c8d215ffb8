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

from sardonyx.backends import find
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.accelerators import cudnn_attention
from sardonyx.backends.jax.accelerators.cudnn_attention import WITHOUT_CUDNN, is_for
from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH
from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.operations.scores import Reach, Scoring
from sardonyx.ops.attention import Attention
from sardonyx.ops.definition import Outputs
from sardonyx.ops.microsoft.attention import attended as attended_of_microsoft
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention
from tests.support.on_hopper import OnHopper

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


# -- programs that XLA refuses --------------------------------------------------------------------


def replayed(xp: OnHopper, *, breaks: str) -> Callable[..., Any]:
    """Steps that double their input, or call what XLA for CPUs does not have."""

    def replay(x: Any) -> Any:
        if breaks == "always" or (breaks == "with cuDNN" and xp.asks_cudnn):
            return [jax.ffi.ffi_call("__cudnn$fmhaSoftmax", x)(x)]
        return [x * 2]

    return replay


@pytest.mark.parametrize("value", ["", "1"])
def test_a_program_that_is_refused_is_compiled_without_it(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWITCH, value)
    xp, x = OnHopper(), np.arange(4, dtype=np.float32)
    spec = Spec(x.shape, x.dtype)
    executable = xp.compile(replayed(xp, breaks="with cuDNN"), [spec])
    assert executable.workaround == WITHOUT_CUDNN
    np.testing.assert_array_equal(executable.run(jnp.asarray(x))[0], x * 2)
    assert xp.asks_cudnn

    executable = xp.compile(replayed(xp, breaks="never"), [spec])
    assert executable.workaround is None
    with pytest.raises(jax.errors.JaxRuntimeError, match="fmhaSoftmax"):
        xp.compile(replayed(xp, breaks="always"), [spec])
    monkeypatch.setenv(SWITCH, "0")
    with pytest.raises(jax.errors.JaxRuntimeError, match="fmhaSoftmax"):
        xp.compile(replayed(xp, breaks="always"), [spec])

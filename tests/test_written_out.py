"""Small segments that run as calls of NumPy give what their steps give one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.backends.conditions import NonZero, Within
from sardonyx.backends.executable import Executable, Spec, WrittenOut
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.notes import Unnoted
from sardonyx.backends.written_out.program import written_out
from sardonyx.backends.written_out.quiet import QuietContexts
from sardonyx.graph.programs.written_segment import WrittenSegment
from sardonyx.ops.indexing import Gather, GatherElements, GatherND
from sardonyx.ops.scattering import ScatterElements, ScatterND
from tests.support.logged import wait_for
from tests.support.official import EXCLUDED, assert_same, node_tests
from tests.support.onnx_builders import model, node, value, weight
from tests.support.writing_jax import WritingJax

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LABELS = ["low", "middle", "high"]


# -- functions of a backend ------------------------------------------------------------------------


def written(
    function: Callable[..., Sequence[Any]], *arrays: Any, inputs: int | None = None
) -> WrittenOut | None:
    expected = [HOST.spec(np.asarray(result)) for result in function(HOST, *arrays)]
    specs = [Spec(array.shape, array.dtype) for array in arrays]
    count = len(arrays) if inputs is None else inputs
    return written_out(function, specs, count, expected)


def run(function: WrittenOut, *inputs: Any, weights: Sequence[Any] = ()) -> Any:
    return function.run(lambda: False, _fail, *function.ahead(*weights), *inputs)


def _fail(*inputs: Any) -> Any:
    raise AssertionError("NumPy raised an error")


def test_results_are_those_of_the_function() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        scores = xp.matmul(x, w) + 1
        parts = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        shares = parts / xp.sum(parts, axis=1, keepdims=True)
        return [shares, xp.argmax(scores, axis=1), xp.stack([scores, scores])[1], scores[:, ::-1].T]

    w = np.array([[1, -1], [2, 0.5], [-3, 4]], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for x in (X, -X, 3 * X):
        for one, other in zip(run(found, x, weights=[w]), function(HOST, x, w), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: bool(x[0, 0]),
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: [1, 2, 3][x[0, 0]],
        list,
        np.asarray,
        lambda x: np.array([x, x]),
        lambda x: x.tolist(),
        lambda x: x.item(0),
        lambda x: x.flags,
        lambda x: x.ctypes,
        lambda x: 1.0 in x,
        np.nonzero,
        np.unique,
        lambda x: np.where(x > 0),
        lambda x: x[x > 0],
        lambda x: x[:, x[0] > 0],
        lambda x: X[: x.astype(np.int64)[0, 0]],
        lambda x: x[: x.astype(np.int64)[0, 0]],
        lambda x: np.reshape(X, x.astype(np.int64)),
        lambda x: np.repeat(X, x.astype(np.int64)),
        lambda x: np.add(X, x, out=X.copy()),
        lambda x: np.shares_memory(x, x),
    ],
)
def test_what_depends_on_elements_is_not_written(read: Callable[[Any], Any]) -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        if not isinstance(x, np.ndarray):
            read(x)
        return [x + 1]

    assert written(function, X) is None


def test_arrays_that_a_call_changes_are_its_own() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        buffer = xp.zeros((2, 3), dtype=x.dtype)
        buffer[0] = w
        buffer[1] += x[0]
        total = xp.asarray(w, copy=True)
        part = total[1:]
        part *= x[0, 1:]
        return [buffer, total]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for x in (X + 1, X + 2, X + 1):
        buffer, total = run(found, x, weights=[w])
        np.testing.assert_array_equal(buffer, [w, x[0]])
        np.testing.assert_array_equal(total, [5, 6 * x[0, 1], 7 * x[0, 2]])
    np.testing.assert_array_equal(w, [5, 6, 7])


def test_what_is_read_before_it_changes_stays_as_it_was() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        buffer = xp.zeros((3,), dtype=x.dtype)
        view = buffer[1:]
        before = x + buffer
        buffer[1] = w[0]
        return [before, x[:, 1:] + view, buffer]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for _ in range(2):
        for one, other in zip(run(found, X, weights=[w]), function(HOST, X, w), strict=True):
            np.testing.assert_array_equal(one, other)


def test_results_belong_to_the_caller() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x, x[0], w, w + 1, xp.asarray(np.ones(3, np.float32)), xp.reshape(x + 1, (3, 2))]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    first, again = (run(found, X, weights=[w]) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert not one.flags.writeable
        assert not any(np.shares_memory(one, array) for array in (X, w, other))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: xp.broadcast_arrays(x, x),
        lambda xp, x: [xp.real(x)],
        lambda xp, x: [np.round(xp.astype(x, np.dtype(np.int32)))],
        lambda xp, x: [x.astype(x.dtype, copy=False)],
    ],
)
def test_arguments_that_numpy_returns(function: Any) -> None:
    found = written(function, X)
    assert found is not None
    x = X.copy()
    for result in run(found, x):
        np.testing.assert_array_equal(result, X)
        assert not np.shares_memory(result, x)
    assert x.flags.writeable


def test_a_step_that_returns_its_argument() -> None:
    def step(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
        return [arrays[0] if bool(arrays[0].any()) else arrays[0] + 1]

    def replay(xp: Any, x: Any) -> Sequence[Any]:
        xp.begin_step()
        try:
            return step(xp, [x])
        except Unnoted:
            return list(xp.deferred(step, [x], [Spec(x.shape, x.dtype)]))

    spec = Spec(X.shape, X.dtype)
    found = written_out(replay, [spec], 1, [spec], takes_steps=True)
    assert found is not None
    x = X.copy()
    (result,) = run(found, x)
    assert not np.shares_memory(result, x)
    assert x.flags.writeable


def test_results_that_are_the_same_array_share_no_memory() -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        y = x + 1
        return [y, xp.reshape(y, (2, 3)), y, xp.astype(y, y.dtype)]

    found = written(function, X)
    assert found is not None
    results = run(found, X)
    for i, one in enumerate(results):
        np.testing.assert_array_equal(one, X + 1)
        assert not any(np.shares_memory(one, other) for other in results[:i])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [0, 3, -1, 300, 2.5, float("nan"), np.float32(1.5), np.int8(7)])
def test_numbers_beside_arrays(dtype: Any, number: Any) -> None:
    """They become arrays of no axes, with results of the same types and bits."""
    operations = (np.add, np.multiply, np.divide, np.maximum, np.equal, np.less, np.power)
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for operation in operations:
        for order in (1, -1):

            def function(xp: Any, x: Any, operation: Any = operation, order: int = order) -> Any:
                return [operation(*(x, number)[::order])]

            try:
                with np.errstate(all="ignore"):
                    (expected,) = function(np, x)
                    found = written(function, x)
            except (OverflowError, ValueError):
                continue
            assert found is not None
            (result,) = run(found, x)
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3, 4)), ((1, 3), (3, 1)), ((5, 2, 3), (3, 4)), ((2, 0, 3), (3, 4)), ((3,), (3, 4)),
     ((2, 2, 3), (2, 3, 4)), ((2, 0), (0, 4)), ((4, 2, 0), (0, 3))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float32, np.float64])
def test_products(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, left).astype(dtype), rng.integers(-4, 5, right).astype(dtype)
    for x, y in ((a, b), (np.asfortranarray(a), np.ascontiguousarray(b.T).T)):
        found = written(lambda xp, x, y: [xp.matmul(x, y)], x, y)
        assert found is not None
        (result,) = run(found, x, y)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.matmul(x, y))


def test_work_on_weights_is_done_ahead() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x + xp.sum(xp.exp(w), axis=0)]

    w = np.ones((4, 3), np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    (ahead,) = found.ahead(w)
    np.testing.assert_allclose(ahead, np.full((2, 3), 4 * np.e), rtol=1e-6)
    every, only = written(function, X, w), found
    assert every is not None
    assert only.price < every.price


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: [xp.take(xp.asarray(np.arange(4)), xp.astype(x, np.dtype(np.int64)), axis=0)],
        lambda xp, x: [xp.require(x, Within("x", 0, 3)), x + 1][1:],
        lambda xp, x: [xp.require(x, NonZero("x")), x + 1][1:],
    ],
    ids=["an index", "a range", "a divisor"],
)
@pytest.mark.parametrize("shape", [(1,), (3,)])
def test_an_error_runs_the_other_function(function: Any, shape: tuple[int, ...]) -> None:
    good, bad = np.full(shape, 3, np.float32), np.full(shape, 3, np.float32)
    bad[-1] = 0 if "NonZero" in function.__code__.co_names else 9
    found = written(function, good)
    assert found is not None
    np.testing.assert_array_equal(run(found, good), function(HOST, good))
    ahead = found.ahead()
    assert found.run(lambda: False, lambda x: ["other", x], *ahead, bad) == ["other", bad]
    assert found.run(lambda: True, lambda x: ["other", x], *ahead, good) == ["other", good]


@pytest.mark.parametrize("place", [3, -4, 2**40])
@pytest.mark.parametrize(
    "function",
    [
        lambda xp, i: Gather(xp, xp.asarray(X.T.copy()), i),
        lambda xp, i: GatherElements(xp, xp.asarray(X), i[None, :], axis=1),
        lambda xp, i: GatherND(xp, xp.asarray(X), xp.stack([i % 2, i], axis=1)),
        lambda xp, i: GatherND(xp, xp.asarray(X.T[:, :0].copy()), i[:, None]),
        lambda xp, i: ScatterElements(xp, xp.asarray(X[0]), i, xp.asarray(X[1])),
        lambda xp, i: ScatterND(xp, xp.asarray(X.T), i[:, None], xp.asarray(X.T), reduction="add"),
    ],
    ids=["gather", "elements", "nd", "empty", "scatter", "scatter nd"],
)
def test_an_index_out_of_range_runs_the_other_function(function: Any, place: int) -> None:
    """NumPy refuses it by itself, so that no call looks at the range before."""
    good, bad = np.array([2, 0, -1]), np.array([2, place, 0])
    found = written(lambda xp, i: [function(xp, i)], good)
    assert found is not None
    np.testing.assert_array_equal(run(found, good)[0], function(HOST, good))
    ahead = found.ahead()
    assert found.run(lambda: False, lambda i: ["other", i], *ahead, bad) == ["other", bad]


def test_weights_that_numpy_refuses() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x + xp.take(xp.asarray(np.arange(4)), w, axis=0)]

    x, w = np.ones(2, np.int64), np.array([1, 3])
    found = written(function, x, w, inputs=1)
    assert found is not None
    segment = WrittenSegment(found, 1, HOST, lambda: Executable(lambda *arrays: arrays))
    for weights, expected in ((w, [np.array([2, 4])]), (w + 2, (x, w + 2))):
        assert segment.executable.on_numpy is not None
        for one, other in zip(segment.executable.on_numpy([weights])(x), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_large_programs_are_not_written() -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        return [xp.tanh(x)]

    for size, is_small in ((10, True), (100_000, False)):
        spec = Spec((size,), np.dtype(np.float32))
        assert (written_out(function, [spec], 1, [spec], limit=10) is not None) == is_small


# -- the cases of ONNX -----------------------------------------------------------------------------


def tensor_cases() -> list[Any]:
    """ONNX's cases of one operator each, of tensors alone."""
    return [
        case
        for case in node_tests()
        if case.name not in EXCLUDED
        and not case.name.endswith("_expanded")
        and all(
            isinstance(x, (np.ndarray, np.generic, onnx.TensorProto))
            for ins, outs in case.data_sets
            for x in (*ins, *outs)
        )
    ]


@pytest.mark.parametrize("case", tensor_cases(), ids=lambda case: case.name)
@pytest.mark.sampled(12)
def test_case(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can be written out is, whatever its price."""
    monkeypatch.setattr(WrittenSegment, "_compiled", property(_fail))
    stepped = sardonyx.load(case.model, backend="numpy")
    loaded = sardonyx.load(case.model, backend=WritingJax(), compile="background")
    names = [info.name for info in case.model.graph.input]
    for inputs, _ in case.data_sets:
        feeds = dict(zip(names, map(_array, inputs), strict=True))
        expected = stepped.run(None, feeds)
        loaded.run(None, feeds)
        loaded.compile(feeds)
        tolerance = 1e-3 if loaded.stats().compiles else 1e-6
        for one, other in zip(loaded.run(None, feeds), expected, strict=True):
            assert_same(one, other, tolerance, tolerance)


def _array(x: Any) -> Any:
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)


# -- models ----------------------------------------------------------------------------------------


def classifier(labels: Sequence[str] | None = None) -> onnx.ModelProto:
    """A linear classifier, with labels that are integers unless there are strings."""
    names: Mapping[str, Any] = (
        {"classlabels_strings": labels} if labels else {"classlabels_ints": [4, 5, 6]}
    )
    linear = node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
        coefficients=[1.0, 0, 0, 0, 1, 0, 0, 0, 1], post_transform="SOFTMAX", **names,
    )  # fmt: skip
    kind = onnx.TensorProto.STRING if labels else onnx.TensorProto.INT64
    return model([linear], [value("x", ["n", 3])], [value("label", ["n"], kind), "scores"])


def ready(proto: onnx.ModelProto, *inputs: Any, **options: Any) -> sardonyx.Model:
    """A model whose calls with such inputs are written out, if they are small."""
    loaded = sardonyx.load(proto, compile="background", **{"backend": "jax", **options})
    loaded.compile(dict(zip((info.name for info in loaded.inputs), inputs, strict=True)))
    return loaded


@pytest.mark.parametrize("labels", [None, LABELS], ids=["integers", "strings"])
def test_a_classifier(labels: Sequence[str] | None) -> None:
    proto, rows = classifier(labels), np.array([[1, 5, 2], [3, 0, 1]], np.float32)
    loaded = ready(proto, rows)
    for x in (rows, -rows, rows):
        label, scores = loaded(x)
        places = x.argmax(axis=1)
        assert label.tolist() == [(labels or [4, 5, 6])[place] for place in places]
        np.testing.assert_allclose(scores, jax.nn.softmax(x), rtol=1e-6)
    assert loaded.stats().written_out
    assert not loaded.stats().compiles


def test_arrays_of_jax_run_compiled() -> None:
    loaded = ready(classifier(), jnp.asarray(X))
    assert isinstance(loaded(jnp.asarray(X))[1], jax.Array)
    assert (loaded.stats().compiles, loaded.stats().written_out) == (1, 0)


@pytest.mark.parametrize("way", ["now", "never"])
def test_only_the_background_writes_out(way: str) -> None:
    loaded = sardonyx.load(classifier(), backend="jax", compile=way)
    for _ in range(3):
        loaded(X)
    assert not loaded.stats().written_out


def test_bad_data_gives_what_the_compiled_program_gives() -> None:
    nodes = [
        node("Gather", ["table", "i"], ["taken"]),
        node("Div", ["taken", "i"], ["y"]),
    ]
    table = weight("table", np.array([10, 20, 30], np.int64))
    whole = onnx.TensorProto.INT64
    proto = model(nodes, [value("i", ["n"], whole)], [value("y", ["n"], whole)], [table])
    good = np.array([1, 2, 2])
    loaded = ready(proto, good, backend=WritingJax())
    compiled = sardonyx.load(proto, backend="jax", compile="now")
    for i in (good, np.array([1, 2, 7]), np.array([0, 1, 2]), good):
        np.testing.assert_array_equal(loaded(i), compiled(i))
    assert loaded.stats().written_out == 1


def test_weights_that_are_replaced() -> None:
    proto = model(
        [node("MatMul", ["x", "w"], ["s"]), node("Relu", ["s"], ["y"])],
        [value("x", [2, 3])], ["y"], [weight("w", np.eye(3, dtype=np.float32))],
    )  # fmt: skip
    loaded = ready(proto, X)
    np.testing.assert_array_equal(loaded(X), X)
    for factor in (2, -1, 3):
        loaded.params["w"] = factor * np.eye(3, dtype=np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(loaded(X), np.maximum(factor * X, 0))


def test_random_draws_differ_from_call_to_call() -> None:
    proto = model(
        [node("RandomUniformLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [value("x", [2, 3])], ["y"],
    )  # fmt: skip
    loaded = ready(proto, X)
    assert len({loaded(X).tobytes() for _ in range(5)}) == 5
    compiled = sardonyx.load(proto, backend="jax", compile="now")
    np.testing.assert_allclose(loaded.bind(key=7)(X), compiled.bind(key=7)(X), rtol=1e-6)


def test_a_setting_that_looks_for_nan_is_heeded() -> None:
    loaded = ready(model([node("Log", ["x"], ["y"])], [value("x", [2, 3])], ["y"]), X)
    assert np.isnan(loaded(-X - 1)).all()
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="Log"):
        loaded(-X - 1)
    assert np.isnan(loaded(-X - 1)).all()


def test_no_warning_of_numbers() -> None:
    """As errors, warnings would run the compiled function."""
    nodes = [
        node("Exp", ["w"], ["e"]),
        node("Div", ["x", "e"], ["d"]),
        node("Log", ["d"], ["y"]),
    ]
    large = weight("w", np.array([1e6, 1, -1e6], np.float32))
    loaded = ready(model(nodes, [value("x", [2, 3])], ["y"], [large]), X)
    with np.errstate(all="ignore"):
        expected = np.log(X / np.exp(np.array([1e6, 1, -1e6], np.float32)))
    np.testing.assert_allclose(loaded(X), expected, rtol=1e-6)
    assert (loaded.stats().written_out, loaded.stats().compiles) == (1, 0)


def test_the_error_state_of_the_caller() -> None:
    """It is not that of the model's own work, and stays as it is."""
    loaded = ready(model([node("Log", ["x"], ["y"])], [value("x", [2, 3])], ["y"]), X)
    with np.errstate(all="raise"):
        assert np.isnan(loaded(-X - 1)).all()
        with pytest.raises(FloatingPointError):
            np.log(-X - 1)
    assert loaded.stats().written_out == 1


def test_quiet_calls_in_one_another() -> None:
    contexts, huge = QuietContexts(), np.array([3e38], np.float32)

    def inner(count: int) -> Any:
        return contexts.run(inner, count - 1) if count else huge * huge

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(partial(contexts.run, inner), range(40)))
    assert np.isinf(results).all()
    with pytest.raises(ZeroDivisionError):
        contexts.run(lambda: 1 // 0)
    assert np.isinf(contexts.run(inner, 3))


def test_threads() -> None:
    loaded = ready(classifier(LABELS), X)
    rows = [np.roll(np.array([[1, 5, 2]], np.float32), i % 3, axis=1) for i in range(48)]

    def label(x: Any) -> str:
        return str(loaded(x)[0][0])

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            assert list(pool.map(label, rows)) == [LABELS[x.argmax()] for x in rows]


def test_a_profile_names_the_way() -> None:
    loaded = ready(classifier(), X)
    before = loaded.stats()
    profile = loaded.profile(X)
    assert profile.segments[0].tier == "written out"
    assert profile.segments[0].seconds > 0
    assert loaded.stats().calls == before.calls


def test_shapes_that_data_decide_compile_nothing() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["r", "rows"], ["chosen"]),
        node("Sqrt", ["chosen"], ["y"]),
    ]
    proto = model(nodes, [value("x", ["n"])], ["y"])
    loaded = sardonyx.load(proto, backend="jax", compile="background")
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = rng.standard_normal(12).astype(np.float32)
        np.testing.assert_array_equal(loaded(x), np.sqrt(x[x > 0]))
    loaded.compile({"x": x})
    assert not loaded.stats().compiles


def test_small_calls_whose_sizes_change_share_no_bucket() -> None:
    loaded = sardonyx.load(classifier(), backend="jax", compile="background")
    rng = np.random.default_rng(0)
    for n in [*range(1, 24)] * 4:
        x = rng.standard_normal((n, 3)).astype(np.float32)
        label, scores = loaded(x)
        np.testing.assert_array_equal(label, 4 + x.argmax(axis=1))
        np.testing.assert_allclose(scores, jax.nn.softmax(x), rtol=1e-5)
    assert (loaded.stats().compiles, loaded.stats().traces) == (0, 23)


def test_large_calls_share_a_bucket_after_small_ones() -> None:
    loaded = sardonyx.load(classifier(), backend="jax", compile="background")

    def traces(sizes: Sequence[int]) -> int:
        before = loaded.stats().traces
        for n in sizes:
            assert loaded(np.eye(n, 3, dtype=np.float32))[0].shape == (n,)
        return loaded.stats().traces - before

    assert traces([1, 2, 3, 4, 5]) == 5
    larger = iter(range(40_000, 60_000))
    wait_for(lambda: traces([next(larger)]) == 0)
    assert traces([next(larger) for _ in range(20)]) == 0

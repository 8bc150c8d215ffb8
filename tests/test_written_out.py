"""Small segments that run as calls of NumPy give what their steps give one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.backends.written_out.quiet import error_state
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.learned_calls import Pace
from sardonyx.graph.programs.written_segment import WrittenSegment
from tests.support.logged import wait_for
from tests.support.official import EXCLUDED, assert_same, node_tests
from tests.support.onnx_builders import model, node, value, weight
from tests.support.writing_jax import WritingJax
from tests.test_derived_recordings import wait_for_background

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LABELS = ["low", "middle", "high"]


# -- the cases of ONNX -----------------------------------------------------------------------------


def _fail(*inputs: Any) -> Any:
    raise AssertionError("NumPy raised an error")


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


def test_what_is_compiled_at_once_is_not_written_out() -> None:
    loaded = sardonyx.load(classifier(), backend="jax", compile="now")
    for _ in range(3):
        loaded(X)
    wait_for_background()
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


def test_a_step_on_the_host_takes_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrittenSegment, "_compiled", property(_fail))
    nodes = [
        node("Reshape", ["x", "sizes"], ["boxes"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["y"]),
    ]
    constants = {
        "sizes": np.array([1, 3, 4]), "most": np.array([2]), "overlap": np.float32([0.5]),
        "least": np.float32([0.3]), "scores": np.float32([[[0.4, 0.9, 0.8]]]),
    }  # fmt: skip
    weights = [weight(name, array) for name, array in constants.items()]
    outputs = [value("y", ["n", 3], onnx.TensorProto.INT64)]
    boxes = np.float32([0, 0, 2, 2, 5, 5, 6, 6, 5, 5, 6, 6.5])
    loaded = ready(model(nodes, [value("x", [12])], outputs, weights), boxes)
    for _ in range(3):
        assert loaded(boxes).tolist() == [[0, 0, 1], [0, 0, 0]]


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


def test_a_product_alone_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """NumPy's own warns of infinities that cancel each other out, and of overflow."""
    ones = weight("w", np.ones((3, 2), np.float32))
    loaded = ready(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], [ones]), X
    )
    assert np.isnan(loaded(np.asarray([[np.inf, -np.inf, 1]] * 2, np.float32))).all()
    assert np.isinf(loaded(np.full((2, 3), 3e38, np.float32))).all()
    assert (loaded.stats().written_out, loaded.stats().compiles) == (1, 0)
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def test_the_error_state_of_the_caller() -> None:
    """It is not that of the model's own work, and stays as it is."""
    loaded = ready(model([node("Log", ["x"], ["y"])], [value("x", [2, 3])], ["y"]), X)
    with np.errstate(all="raise"):
        assert np.isnan(loaded(-X - 1)).all()
        with pytest.raises(FloatingPointError):
            np.log(-X - 1)
    assert loaded.stats().written_out == 1


def test_the_error_state_after_an_error() -> None:
    """It is set back before the compiled function runs, which takes any index."""
    variable, quiet = error_state()
    nodes = [node("Exp", ["x"], ["e"]), node("Gather", ["e", "i"], ["y"])]
    inputs = [value("x", [2, 3]), value("i", [1], onnx.TensorProto.INT64)]
    loaded = ready(model(nodes, inputs, ["y"]), X, np.asarray([1]))
    with np.errstate(all="raise"):
        state = variable.get()
        np.testing.assert_allclose(loaded(X, np.asarray([0])), np.exp(X[:1]), rtol=1e-6)
        assert loaded(X, np.asarray([7])).shape == (1, 3)
        assert variable.get() is state is not quiet
        with pytest.raises(FloatingPointError):
            np.log(-X - 1)


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


@pytest.mark.slow
def test_small_calls_whose_sizes_change_share_no_bucket() -> None:
    loaded = sardonyx.load(classifier(), backend="jax", compile="background")
    rng = np.random.default_rng(0)
    for n in [*range(1, 24)] * 4:
        x = rng.standard_normal((n, 3)).astype(np.float32)
        label, scores = loaded(x)
        np.testing.assert_array_equal(label, 4 + x.argmax(axis=1))
        np.testing.assert_allclose(scores, jax.nn.softmax(x), rtol=1e-5)
    # A few more sizes are traced to find out whether one function can serve all. If that is soon
    # found, it serves those that come later.
    assert loaded.stats().compiles == 0
    assert loaded.stats().traces <= 35


def test_large_calls_share_a_bucket_after_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its program is used even where single steps take less time.
    monkeypatch.setattr(Pace, "at", lambda self, count: math.inf)
    monkeypatch.setattr(learned_calls, "SECONDS", 0.0)
    loaded = sardonyx.load(classifier(), backend="jax", compile="background")

    def interpreted(sizes: Sequence[int]) -> int:
        before = loaded.stats().interpreted
        for n in sizes:
            assert loaded(np.eye(n, 3, dtype=np.float32))[0].shape == (n,)
        return loaded.stats().interpreted - before

    interpreted([1, 2, 3, 4, 5])
    assert loaded.stats().compiles == 0
    larger = iter(range(40_000, 60_000))
    wait_for(lambda: interpreted([next(larger)]) == 0)
    before = loaded.stats().compiles
    assert interpreted([next(larger) for _ in range(20)]) == 0
    assert loaded.stats().compiles == before

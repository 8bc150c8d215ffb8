"""`out=` and `bind(writable=True)`: which arrays results are in."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import parser

import sardonyx
from sardonyx import InvalidInput, Model
from tests.support.onnx_builders import model as graph_model
from tests.support.onnx_builders import node, value
from tests.support.raises import refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def graph(body: str, inputs: str = "float[a,3] x", outputs: str = "float[a,3] y") -> Any:
    head = '<ir_version: 10, opset_import: ["": 22, "ai.onnx.ml": 3]>'
    return parser.parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")


SQUARE = graph("y = Mul(x, x)")
TWO = graph("y = Mul(x, x) z = Identity(x)", outputs="float[a,3] y, float[a,3] z")


@pytest.fixture(params=["jax", "jax step by step", "numpy"])
def load(request: pytest.FixtureRequest) -> Any:
    name, _, steps = request.param.partition(" ")
    mode = "never" if steps else "now"

    def loaded(proto: onnx.ModelProto) -> Model:
        return sardonyx.load(proto, backend=name, compile=mode)

    return loaded


# -- out ------------------------------------------------------------------------------------------


def test_an_output_is_written_to_an_array(load: Any) -> None:
    square, y = load(SQUARE), np.empty_like(X)
    assert square(X, out=y) is y
    assert_array_equal(y, X * X)
    for out in ([y], (y,), {"y": y}):
        y[:] = 0
        assert square(X + 1, out=out) is y
        assert_array_equal(y, (X + 1) ** 2)
    assert square.run(None, {"x": X}, out=y)[0] is y
    assert square.run(["y"], {"x": X}, out={"y": y})[0] is y
    assert_array_equal(y, X * X)
    assert square(jnp.asarray(X), out=y) is y
    assert square.bind(out=y).bind(key=1)(X) is y


def test_some_of_several_outputs(load: Any) -> None:
    both, y, z = load(TWO), np.empty_like(X), np.empty_like(X)
    found = both(X, out=[y, z])
    assert found["y"] is y
    assert found.z is z if hasattr(found, "z") else found["z"] is z
    found = both(X, out={"z": z})
    assert found["z"] is z
    assert found["y"] is not y
    found = both(X, out=[None, z])
    assert found["z"] is z
    assert_array_equal(found["y"], X * X)
    assert both.run(["z", "y"], {"x": X}, out=[z, y])[0] is z
    assert_array_equal(z, X)
    assert_array_equal(y, X * X)


def test_arrays_that_overlap_inputs(load: Any) -> None:
    x = X.copy()
    assert load(SQUARE)(x, out=x) is x
    assert_array_equal(x, X * X)
    memory = np.arange(12, dtype=np.float32)
    first, shifted = memory[:6].reshape(2, 3), memory[3:9].reshape(2, 3)
    before = first.copy()
    # z is the input itself, which the writing of y changes.
    found = load(TWO)(first, out={"y": shifted})
    assert_array_equal(found["y"], before * before)
    assert_array_equal(found["z"], before)
    turned = graph("y = Transpose<perm = [1, 0]>(x)", "float[3,3] x", "float[3,3] y")
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert_array_equal(load(turned)(square, out=square), np.arange(9).reshape(3, 3).T)


def test_arrays_that_are_not_contiguous(load: Any) -> None:
    wide = np.zeros((2, 6), np.float32)
    load(TWO)(X, out=[wide[:, ::2], wide[:, 1::2]])
    assert_array_equal(wide[:, ::2], X * X)
    assert_array_equal(wide[:, 1::2], X)
    turned = np.zeros((3, 2), np.float32)
    load(SQUARE)(X, out=turned.T[::-1])
    assert_array_equal(turned.T[::-1], X * X)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.bool_, np.int64])
def test_any_dtype_and_shape(dtype: Any, load: Any) -> None:
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for shape in ((), (0, 3), (2, 3)):
        proto = graph_model(
            [node("Identity", ["x"], ["y"])], [value("x", shape, number)], ["y"], opset=22
        )
        x, y = np.ones(shape, dtype), np.zeros(shape, dtype)
        assert load(proto)(x, out=y) is y
        assert_array_equal(y, x)


def test_strings(load: Any) -> None:
    proto = graph("y = StringConcat(x, x)", "string[n] x", "string[n] y")
    y = np.empty(2, object)
    assert load(proto)(np.array(["a", "b"], object), out=y) is y
    assert y.tolist() == ["aa", "bb"]


def test_values_inside_the_graph(load: Any) -> None:
    inner = load(graph("a = Exp(x) y = Mul(a, a)"))
    a, y = np.empty_like(X), np.empty_like(X)
    assert inner.run(["a"], {"x": X}, out=a)[0] is a
    np.testing.assert_allclose(a, np.exp(X), rtol=1e-6)
    found, captured = inner(X, out=y, capture="a")
    assert found is y
    np.testing.assert_allclose(captured["a"] ** 2, y, rtol=1e-6)


def test_an_input_called_out_is_an_input(load: Any) -> None:
    proto = graph("y = Add(x, out)", "float[a,3] x, float[a,3] out")
    y = np.empty_like(X)
    assert_array_equal(load(proto)(X, out=X), 2 * X)
    assert load(proto).bind(out=y)(X, out=X) is y
    assert load(proto).run(None, {"x": X, "out": X}, out=y)[0] is y
    assert_array_equal(y, 2 * X)


READ_ONLY = np.zeros((2, 3), np.float32)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.zeros((3, 2), np.float32), ["float32[3, 2]", "float32[2, 3]"]),
        (np.zeros((2, 3)), ["float64[2, 3]"]),
        (np.zeros((2, 3), ">f4"), ["'y'"]),
        (READ_ONLY, ["read-only"]),
        (np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (2, 3), (0, 4)), ["repeats"]),
        (np.ma.zeros((2, 3), np.float32), ["MaskedArray"]),
        (jnp.zeros((2, 3)), ["JAX's arrays cannot be changed"]),
        ("y", ["str"]),
        (5, ["int"]),
        ([], ["1 outputs"]),
        ([np.zeros((2, 3), np.float32)] * 2, ["2", "1 outputs"]),
        ({"q": np.zeros((2, 3), np.float32)}, ["'q'"]),
        ({0: np.zeros((2, 3), np.float32)}, ["output 0"]),
        ({"y": [1.0]}, ["list"]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_arrays_that_cannot_hold_the_output_are_refused(
    out: Any, words: list[str], load: Any
) -> None:
    square = load(SQUARE)
    with refused(InvalidInput, *words):
        square(X, out=out)
    with refused(InvalidInput, *words):
        square.run(None, {"x": X}, out=out)
    assert_array_equal(square(X, out=None), X * X)


def test_nothing_is_written_unless_all_fits(load: Any) -> None:
    y = np.zeros_like(X)
    with refused(InvalidInput, "'z'"):
        load(TWO)(X, out=[y, np.zeros(3, np.float32)])
    assert not y.any()
    with refused(InvalidInput, "'y' and 'z' share memory"):
        load(TWO)(X, out=[y, y])
    with refused(InvalidInput, "2 outputs", "pass a list"):
        load(TWO)(X, out=y)
    lists = graph("y = SequenceConstruct(x)", outputs="seq(float[a,3]) y")
    with refused(InvalidInput, "no tensor"):
        load(lists)(X, out=y)
    with refused(InvalidInput, "'z'"):
        load(TWO).bind(out={"z": READ_ONLY})


def test_under_a_transformation_there_is_nothing_to_write() -> None:
    square = sardonyx.load(SQUARE, backend="jax")
    with refused(InvalidInput, "leave out out="):
        jax.jit(lambda x: square(x, out=np.zeros_like(X)))(X)


def test_exported_and_sharded_models_write_too() -> None:
    exported = sardonyx.load(sardonyx.export(SQUARE, platforms=["cpu"]).to_bytes())
    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    for each in (exported, sardonyx.shard(SQUARE, mesh, "data")):
        y = np.empty_like(X)
        assert each(X, out=y) is y
        assert_array_equal(y, X * X)
        assert each.bind(writable=True)(X).flags.writeable


# -- writable -------------------------------------------------------------------------------------


def arrays_in(found: Any) -> list[Any]:
    if isinstance(found, (list, tuple)):
        return [array for one in found for array in arrays_in(one)]
    return [found] if isinstance(found, np.ndarray) else []


SHARING = graph(
    """i = Identity(x) c = Constant<value = float[2] {1, 2}>() r = Reshape(x, s)
    twice = Mul(x, x) again = Identity(twice) v = Identity(w) q = SequenceConstruct(x, x)""",
    "float[2,3] x, int64[1] s",
    "float[2,3] i, float[2] c, float[6] r, float[2,3] twice, float[2,3] again, float[2] v, "
    "seq(float[2,3]) q",
)
SHARING.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))


def test_writable_results_share_memory_with_nothing(load: Any) -> None:
    loaded = load(SHARING)
    writable = loaded.bind(writable=True)
    x, s = X.copy(), np.array([6])
    expected = [array.copy() for array in arrays_in(loaded(x, s))]
    for call in (lambda: writable(x, s), lambda: writable.run(None, {"x": x, "s": s})):
        for _ in range(3):
            found = arrays_in(call())
            for i, array in enumerate(found):
                assert_array_equal(array, expected[i])
                assert type(array) is np.ndarray
                assert array.flags.writeable
                assert array.flags.owndata
                others = [x, s, *found[:i], *found[i + 1 :]]
                assert not any(np.shares_memory(array, other) for other in others)
                array[...] = -1
            assert_array_equal(x, X)


def test_maps_and_captured_values_are_new_too(load: Any) -> None:
    proto = graph(
        "z = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2, 3]>(x)",
        outputs="seq(map(int64, float)) z",
    )
    writable = load(proto).bind(writable=True)
    writable(X)[0][1] = 7.0
    assert writable(X)[0] == {1: 0.0, 2: 1.0, 3: 2.0}
    found, captured = load(TWO).bind(writable=True)(X, capture="x")
    assert captured["x"].flags.writeable
    assert not np.shares_memory(captured["x"], X)
    assert found["y"].flags.writeable


def test_options_stay_through_bind_and_pickle(load: Any) -> None:
    bound = load(SQUARE).bind(writable=True).bind(key=1)
    assert bound(X).flags.owndata
    assert pickle.loads(pickle.dumps(bound))(X).flags.owndata
    assert "writable" in repr(bound)
    plain = load(TWO)
    assert plain.bind(writable=True).bind(writable=False)(X)["z"] is plain(X)["z"]
    with refused(InvalidInput, "'writable' is 1"):
        bound.bind(writable=1)


def test_threads_write_to_arrays_of_their_own(load: Any) -> None:
    square = load(SQUARE)

    def call(number: int) -> None:
        y = np.empty_like(X)
        for _ in range(20):
            square(X + number, out=y)
            assert_array_equal(y, (X + number) ** 2)
            y += 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call, number) for number in range(8)]:
            done.result()

"""Sessions: what they say of a model, what calls take, and what they return."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
import sardonyx.compat
import sardonyx.types
from tests.compat.pairs import (
    CPU,
    FEEDS,
    TWO,
    X,
    assert_equal,
    both_modules,
    parsed,
    same,
    session,
)
from tests.support.raises import refused

ONE = np.ones(2, np.float32)
# A graph and the feeds of a call.
GRAPHS: dict[str, tuple[str, dict[str, Any]]] = {
    "names, sizes and neither": (
        "g (float[N,?] x, float[] z, float q) => (float[N,?] y) { h = Add(x,z) y = Add(h,q) }",
        {"x": X, "z": X, "q": np.array(2, np.float32)},
    ),
    "sequences": (
        "g (seq(float[N]) x, int64 i) => (float[N] y, seq(float[N]) c)"
        " { y = SequenceAt(x,i) c = SequenceInsert(x,y) }",
        {"x": [ONE, 2 * ONE], "i": np.array(1)},
    ),
    "an optional that is absent": (
        "g (optional(float[N]) x) => (bool y) { y = OptionalHasElement(x) }",
        {},
    ),
    "an optional that is None": (
        "g (optional(float[N]) x) => (bool y) { y = OptionalHasElement(x) }",
        {"x": None},
    ),
    "text": (
        "g (string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": np.array(["a", "bé"])},
    ),
    "text as objects": (
        "g (string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": np.array(["a", "bé"], object)},
    ),
    "numbers as text": (
        "g (string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": np.array([1, 2.5, "c"], object)},
    ),
    "a list of text": ("g (string[N] x) => (string[N] y) { y = Identity(x) }", {"x": ["a", "b"]}),
    "half floats": (
        "g (float16[N] x) => (float16[N] y) { y = Add(x,x) }",
        {"x": ONE.astype(np.float16)},
    ),
    "floats of 8 bits": (
        "g (float[N] x) => (float8e4m3fn[N] y) { y = Cast<to=17>(x) }",
        {"x": ONE},
    ),
    "a scalar result": (
        "g (float[N] x) => (float[] y) { y = ReduceSum<keepdims=0>(x) }",
        {"x": ONE},
    ),
    "a default": (
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {2.0}> { y = Mul(x,w) }",
        {"x": ONE},
    ),
    "a default that is overridden": (
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {2.0}> { y = Mul(x,w) }",
        {"x": ONE, "w": np.full(1, 5, np.float32)},
    ),
    "maps with numbers": (
        "g (int64[N] x) => (seq(map(int64,float)) y) { k = Cast<to=1>(x)"
        " y = ai.onnx.ml.ZipMap<classlabels_int64s=[5,7]>(k) }",
        {"x": np.array([1, 2])},
    ),
    "maps with text": (
        "g (int64[N] x) => (seq(map(string,float)) y) { k = Cast<to=1>(x)"
        ' y = ai.onnx.ml.ZipMap<classlabels_strings=["a","b"]>(k) }',
        {"x": np.array([1, 2])},
    ),
    "a map as an input": (
        "g (map(string,float) x) => (float[N,2] y)"
        ' { y = ai.onnx.ml.DictVectorizer<string_vocabulary=["a","b"]>(x) }',
        {"x": {"b": 1.0, "a": 2.0}},
    ),
    "nothing as an input": ("g () => (float[1] y) { y = Constant<value_floats=[2.0]>() }", {}),
    "equal names of unequal sizes": (
        "g (float[N,4] x, float[N,4] b) => (float[N,4] y) { y = Add(x,b) }",
        {"x": X, "b": X[:1]},
    ),
    "elements that are none": ("g (float[N] x) => (float[N] y) { y = Relu(x) }", {"x": ONE[:0]}),
    "a list of numbers": ("g (float[N] x) => (float[N] y) { y = Relu(x) }", {"x": [1, 2.5]}),
    "a view": ("g (float[N,M] x) => (float[N,M] y) { y = Relu(x) }", {"x": X.T}),
}


def described(args: Any) -> list[tuple[str, str, Any]]:
    return [(arg.name, arg.type, arg.shape) for arg in args]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", GRAPHS)
def test_a_graph(case: str) -> None:
    text, feeds = GRAPHS[case]

    def body(ort: ModuleType) -> Any:
        loaded = session(ort, parsed(text))
        groups = (
            loaded.get_inputs(),
            loaded.get_outputs(),
            loaded.get_overridable_initializers(),
        )
        return [described(args) for args in groups], loaded.run(None, feeds)

    assert isinstance(same(body), tuple)


@both_modules
def test_a_shape_belongs_to_the_caller(ort: ModuleType) -> None:
    loaded = session(ort)
    shape = loaded.get_inputs()[0].shape
    shape[0] = 1
    assert loaded.get_inputs()[0].shape == ["N", 4]


def test_the_text_of_an_argument() -> None:
    same(lambda ort: str(session(ort).get_inputs()[0]))


def test_shapes_that_only_follow_from_the_graph() -> None:
    bare = parsed("g (float[N,4] x) => (float[?,?] y, float[K,4] z) { y = Relu(x) z = Neg(x) }")
    assert same(lambda ort: described(session(ort, bare).get_outputs()))[0][2] == ["N", 4]
    bare.graph.output[0].type.tensor_type.ClearField("shape")
    assert same(lambda ort: described(session(ort, bare).get_outputs()))[0][2] == ["N", 4]
    odd = parsed("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    odd.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert same(lambda ort: described(session(ort, odd).get_inputs()))[0][2] == [None, 4]
    same(lambda ort: session(ort, odd).run(None, {"x": X}))


def test_the_metadata() -> None:
    facts = [
        "producer_name", "graph_name", "domain", "description", "graph_description", "version",
        "custom_metadata_map",
    ]  # fmt: skip
    told = copy.deepcopy(TWO)
    told.producer_name, told.model_version, told.domain, told.doc_string = "p", 3, "d", "text"
    told.graph.doc_string = "more"
    onnx.helper.set_model_props(told, {"key": "value"})
    for proto in (TWO, told):
        same(lambda ort, p=proto: [getattr(session(ort, p).get_modelmeta(), f) for f in facts])


def test_names_of_outputs() -> None:
    for names in (None, [], ["z"], ("z", "y"), ["y", "y"]):
        same(lambda ort, names=names: session(ort).run(names, FEEDS))


@both_modules
def test_results_belong_to_the_caller(ort: ModuleType) -> None:
    alias = parsed(
        "g (float[N] x) => (float[N] y, float[N] z, float[1] w, float[2] c, float[N] t)"
        " <float[1] w = {2.0}>"
        " { y = Identity(x) z = Identity(x) t = Transpose(x)"
        " c = Constant<value_floats=[1.0,2.0]>() }"
    )
    loaded, x = session(ort, alias), np.arange(3, dtype=np.float32)
    for _ in range(3):
        results = loaded.run(None, {"x": x})
        for place, result in enumerate(results):
            assert result.flags.writeable
            assert result.flags.c_contiguous
            assert not np.shares_memory(result, x)
            assert not any(np.shares_memory(result, other) for other in results[:place])
            np.add(result, 7, out=result)
        np.testing.assert_array_equal(x, [0, 1, 2])
    np.testing.assert_array_equal(loaded.run(["w"], {"x": x})[0], [2])


@pytest.mark.parametrize("provider", ["NumpyExecutionProvider", "JaxExecutionProvider"])
def test_results_belong_to_the_caller_on_each_backend(provider: str) -> None:
    text = "g (float[N] x, string[N] s) => (float[N] y, string[N] t, seq(float[N]) q)"
    model = parsed(text + " { y = Identity(x) t = Identity(s) q = SequenceConstruct(x) }")
    feeds = {"x": np.ones(3, np.float32), "s": np.array(["a", "b", "c"], object)}
    loaded = session(sardonyx.compat, model, providers=[provider])
    y, t, (q,) = loaded.run(None, feeds)
    y += 1
    q += 1
    t[0] = "z"
    np.testing.assert_array_equal(feeds["x"], 1)
    assert feeds["s"][0] == "a"
    assert loaded.get_providers() == [provider, *CPU]


def test_inputs_of_other_libraries() -> None:
    loaded = session(sardonyx.compat)
    for x in (jnp.asarray(X), sardonyx.compat.OrtValue.ortvalue_from_numpy(X), X.tolist(), X.view(np.matrix)):  # fmt: skip  # noqa: E501
        (y,) = loaded.run(["y"], {"x": x, "b": X})
        assert_equal(y, X + X)


def test_types_that_numpy_lacks_come_as_those_of_ml_dtypes() -> None:
    """There onnxruntime's `run` raises, and only its OrtValue has the result."""
    half = parsed("g (float[N] x) => (bfloat16[N] y, int4[N] z) { y = Cast<to=16>(x) z = Cast<to=22>(x) }", opset=21)  # fmt: skip  # noqa: E501
    y, z = session(sardonyx.compat, half).run(None, {"x": ONE})
    assert (y.dtype, z.dtype) == (ml_dtypes.bfloat16, ml_dtypes.int4)
    back = parsed("g (bfloat16[N] x) => (float[N] y) { y = Cast<to=1>(x) }")

    def body(ort: ModuleType) -> Any:
        bits = np.array([0x3F80, 0x4000], np.uint16)
        value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
        return session(ort, back).run(None, {"x": value})

    same(body)


def test_external_data(tmp_path: Path) -> None:
    proto = parsed("g (float[N] x) => (float[N] y) { y = Add(x,w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(2, dtype=np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    same(lambda ort: ort.InferenceSession(str(path)).run(None, {"x": ONE}))
    same(lambda ort: ort.InferenceSession(path).run(None, {"x": ONE}))
    content = path.read_bytes()

    def from_folder(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(tmp_path))
        return ort.InferenceSession(content, options).run(None, {"x": ONE})

    assert isinstance(same(from_folder), list)
    (tmp_path / "w.bin").rename(tmp_path / "gone")
    assert same(lambda ort: ort.InferenceSession(str(path))) == "Fail"
    assert same(lambda ort: ort.InferenceSession(content)) == "Fail"


def test_eight_threads_share_a_session() -> None:
    loaded = session(sardonyx.compat)
    with ThreadPoolExecutor(8) as pool:
        feeds = [{"x": X[: i % 2 + 1] + i, "b": X[: i % 2 + 1]} for i in range(64)]
        results = list(pool.map(lambda each: loaded.run(None, each), feeds))
    for each, (y, z) in zip(feeds, results, strict=True):
        np.testing.assert_allclose(y, each["x"] + each["b"])
        np.testing.assert_allclose(z, each["x"] * each["b"])


def test_a_copy_of_a_session() -> None:
    """Onnxruntime refuses it; a session of sardonyx reaches other processes."""
    options = sardonyx.compat.SessionOptions()
    options.intra_op_num_threads = 2
    loaded = session(sardonyx.compat, sess_options=options)
    for again in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        assert_equal(again.run(None, FEEDS), loaded.run(None, FEEDS))
        assert again.get_session_options().intra_op_num_threads == 2
        assert described(again.get_inputs()) == described(loaded.get_inputs())


@both_modules
def test_a_call_in_another_thread(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    loaded, got, done = session(ort, sess_options=options), [], threading.Event()

    def callback(results: Any, data: Any, error: str) -> None:
        got.append((results, data, error, threading.current_thread()))
        done.set()

    def wait() -> Any:
        assert done.wait(20)
        done.clear()
        return got.pop()

    loaded.run_async(None, FEEDS, callback, {"my": "data"})
    results, data, error, thread = wait()
    assert_equal(results, [X + X, X * X])
    assert (data, error) == ({"my": "data"}, "")
    assert thread is not threading.current_thread()
    for names, feeds in ((["q"], FEEDS), (None, {**FEEDS, "x": X.astype(np.float64)})):
        loaded.run_async(names, feeds, callback, None)
        results, data, error, _ = wait()
        assert (results, data) == ([], None)
        assert error
    with pytest.raises(ValueError, match="Required inputs"):
        loaded.run_async(None, {"x": X}, callback, None)


def test_an_error_of_a_callback_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, done = [], threading.Event()

    def note(arguments: Any) -> None:
        shown.append(arguments.exc_type)
        done.set()

    monkeypatch.setattr(threading, "excepthook", note)
    session(sardonyx.compat).run_async(None, FEEDS, lambda *_: 1 / 0, None)
    assert done.wait(20)
    assert shown == [ZeroDivisionError]


def test_a_proto_is_taken_and_stays_as_it_is() -> None:
    before = TWO.SerializeToString()
    options = sardonyx.compat.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    loaded = sardonyx.compat.InferenceSession(TWO, options, providers=CPU)
    assert_equal(loaded.run(["y"], FEEDS), [X + X])
    assert TWO.SerializeToString() == before


@sardonyx.op(domain="mine")
def Twice(xp: sardonyx.types.Backend, x: sardonyx.types.Array) -> sardonyx.types.Array:
    return x * 2


def test_options_of_load_are_keywords() -> None:
    text = "g (float[N] x) => (float[N] y) { y = mine.Twice(x) }"
    proto = parsed(text)
    proto.opset_import.add(domain="mine", version=1)
    loaded = session(sardonyx.compat, proto, ops=[Twice])
    assert_equal(loaded.run(None, {"x": ONE}), [ONE * 2])
    gather = parsed("g (float[3] x, int64[1] i) => (float[1] y) { y = Gather(x,i) }")
    feeds = {"x": np.ones(3, np.float32), "i": np.array([7])}
    with refused(sardonyx.compat.capi._pybind_state.Fail, "Gather"):
        session(sardonyx.compat, gather, checked=True).run(None, feeds)


def test_options_of_load_are_checked() -> None:
    for wrong in ({"precision": "low"}, {"jit": 5}, {"ops": 5}):
        with refused(sardonyx.InvalidInput, next(iter(wrong))):
            session(sardonyx.compat, **wrong)


def test_a_keyword_that_nobody_takes() -> None:
    with pytest.warns(UserWarning, match="takes no 'session_options'"):
        session(sardonyx.compat, session_options=None)

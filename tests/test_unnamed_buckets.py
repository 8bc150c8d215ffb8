"""Buckets for dimensions that the file does not name, and for steps on the host, as of labels."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx import InvalidInput, Model
from tests.support.poisoned_padding import PoisonedJax
from tests.support.raises import refused

MODELS = Path(__file__).parent / "models"
BUCKETS: Any = {("X", 0): [1, 8, 32]}
# In three buckets, on their edges, beyond the last, of one row and of none.
ROWS = (5, 3, 8, 1, 7, 20, 32, 31, 9, 2, 40, 0)
STRINGS = 'classlabels_strings = ["a", "b", "c"]'
INTEGERS = "classlabels_ints = [5, 6, 7]"
KEYS = {STRINGS: STRINGS, INTEGERS: "classlabels_int64s = [5, 6, 7]"}


def graph(
    body: str, inputs: str = "float[?,4] X", outputs: str = "y", opset: int = 21
) -> onnx.ModelProto:
    """A graph whose inputs may have `?` for dimensions without a name."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "ai.onnx.ml": 3]>'
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    text = inputs.replace("?", "unnamed")
    proto = parser.parse_model(f"{head} g ({text}) => ({declared}) {{ {body} }}")
    for info in proto.graph.output:
        info.ClearField("type")
    for info in proto.graph.input:
        for dimension in info.type.tensor_type.shape.dim:
            if dimension.dim_param == "unnamed":
                dimension.ClearField("dim_param")
    return proto


def classifier(labels: str) -> onnx.ModelProto:
    """Labels, and a list of dicts, as skl2onnx writes a logistic regression."""
    return graph(
        f"""label, p = ai.onnx.ml.LinearClassifier<{labels}, multi_class = 0,
            coefficients = [1.0, 2.0, 3.0, -1.0, -2.0, 0.5, 0.25, 1.0, -1.0, 1.0, -2.0, 2.0],
            intercepts = [0.1, 0.2, 0.3], post_transform = "SOFTMAX">(X)
        q = ai.onnx.ml.Normalizer<norm = "L1">(p)
        z = ai.onnx.ml.ZipMap<{KEYS[labels]}>(q)""",
        outputs="label z",
    )


def rows(count: int, columns: int = 4) -> Any:
    return np.random.default_rng(count).normal(size=(count, columns)).astype(np.float32)


def bucketed(proto: Any, buckets: Any = BUCKETS, **options: Any) -> Model:
    return sardonyx.load(proto, **{"backend": PoisonedJax(), "compile": "now", **options},
                         buckets=buckets)  # fmt: skip


def assert_alike(found: Any, expected: Any) -> None:
    """Equal labels and shapes, and numbers up to rounding, in nested results too."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_alike(*pair)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        assert_allclose(list(found.values()), list(expected.values()), rtol=2e-5)
    else:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if expected.dtype == object:
            assert_array_equal(found, expected)
        else:
            assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["now", "background"])
@pytest.mark.parametrize("labels", [STRINGS, INTEGERS], ids=["strings", "integers"])
def test_a_classifier_shows_no_padded_rows(labels: str, mode: str) -> None:
    proto = classifier(labels)
    model, plain = bucketed(proto, compile=mode), sardonyx.load(proto, backend="numpy")
    for count in ROWS * 2:
        assert_alike(model(rows(count)), plain(rows(count)))
    stats = model.stats()
    # The buckets 8, 32 and 64, one row, and no row.
    assert stats.compiles <= 5
    assert stats.calls == 2 * len(ROWS)
    assert stats.traces < len(set(ROWS))


def test_labels_that_the_graph_looks_up_and_reshapes() -> None:
    """As skl2onnx writes those of most classifiers."""
    proto = graph(
        """scores = Gemm<transB = 0>(X, w, b) top = ArgMax<axis = 1>(scores)
        names = Constant<value_strings = ["ham", "spam"]>()
        chosen = ai.onnx.ml.ArrayFeatureExtractor(names, top)
        flat = Constant<value_ints = [-1]>() label = Reshape(chosen, flat)""",
        outputs="label scores",
    )
    weights = {"w": np.ones((4, 2), np.float32) * [1, -1], "b": np.array([0.1, 0.2])}
    for name, value in weights.items():
        array = onnx.numpy_helper.from_array(value.astype(np.float32), name)
        proto.graph.initializer.append(array)
    model, plain = bucketed(proto), sardonyx.load(proto, backend="numpy")
    for count in ROWS:
        if count:
            assert_alike(model(rows(count)), plain(rows(count)))
    assert model.stats().compiles <= 4


@pytest.mark.parametrize("name", ["sklearn_mlp", "sklearn_kmeans", "sklearn_linear_float64"])
def test_models_that_skl2onnx_wrote(name: str) -> None:
    plain = sardonyx.load(MODELS / f"{name}.onnx", backend="numpy")
    (info,) = plain.inputs
    assert info.shape is not None
    assert info.shape[0] is None
    model = bucketed(MODELS / f"{name}.onnx", {(info.name, -2): [4, 16]})
    for count in (3, 4, 2, 9, 16, 5):
        x = rows(count, info.shape[1]).astype(info.dtype)
        assert_alike(model(x), plain(x))
    assert model.stats().compiles <= 2


TWO = "float[?,4] A, float[?,4] B"


def test_inputs_that_share_a_size() -> None:
    proto = graph("s = Add(A, B) y = Softmax<axis = 0>(s)", TWO)
    model = bucketed(proto, {("A", 0): [8, 32], ("B", 0): [8, 32]})
    plain = sardonyx.load(proto, backend="numpy")
    for count in (3, 5, 7, 8, 4, 20, 30):
        assert_alike(model(rows(count), -rows(count)), plain(rows(count), -rows(count)))
    stats = model.stats()
    assert stats.compiles == 2
    # Two ends, one neighbour and one call for each bucket; formulas plan the others.
    assert stats.traces <= 8


def test_inputs_whose_sizes_are_their_own() -> None:
    proto = graph("t = Transpose(B) y = MatMul(A, t)", TWO)
    model = bucketed(proto, {("A", 0): [8], ("B", 0): [8]})
    plain = sardonyx.load(proto, backend="numpy")
    for a, b in ((3, 5), (5, 5), (4, 4), (7, 3), (6, 1), (2, 8)):
        assert_alike(model(rows(a), rows(b)), plain(rows(a), rows(b)))
    # Equal sizes, other sizes, and a single row.
    assert model.stats().compiles <= 3


def test_names_and_axes_together() -> None:
    proto = graph(
        "one = Constant<value_ints = [1, 2]>() y = ReduceMean(X, one)", "float[batch,?,4] X"
    )
    model = bucketed(proto, {"batch": [4], ("X", 1): "powers of two"})
    plain = sardonyx.load(proto, backend="numpy")
    for shape in ((3, 5), (2, 7), (4, 8), (3, 3), (1, 6)):
        x = np.random.default_rng(1).normal(size=(*shape, 4)).astype(np.float32)
        assert_alike(model(x), plain(x))
    # A key may also mean a dimension that has a name.
    model = bucketed(proto, {("X", 0): [4], ("X", -2): [8]})
    assert_alike(model(x), plain(x))


def test_an_input_of_unknown_rank() -> None:
    proto = graph("y = Softmax<axis = -1>(X)", "float[?] X")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    model, plain = bucketed(proto, {("X", -1): [8]}), sardonyx.load(proto, backend="numpy")
    for shape in ((3,), (2, 5), (2, 7), (2, 3, 6), (5,)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        assert_alike(model(x), plain(x))
    with refused(InvalidInput, "axis -1", "0 dimensions"):
        model(np.float32(1))
    twice = bucketed(proto, {("X", 0): [8], ("X", -1): [8]})
    twice(rows(3))
    with refused(InvalidInput, "axis 0 of the input 'X' twice"):
        twice(rows(1)[0])


def test_strings_that_the_device_reads_later_are_refused() -> None:
    proto = graph(
        """n = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.0, 2.0]>(X)
        y = Exp(n)""",
        "string[?] X",
    )
    with pytest.raises(InvalidInput, match=r"cannot be padded.*the host computes"):
        bucketed(proto)(np.array(["a", "b", "c"], object))


def test_strings_in_and_out_on_the_host_alone() -> None:
    proto = graph("y = StringConcat(X, X)", "string[?] X")
    model = bucketed(proto)
    for count in (3, 5, 8, 11):
        text = np.array([f"s{i}" for i in range(count)], object)
        assert_array_equal(model(text), text + text)


def test_results_whose_sizes_depend_on_data_are_refused() -> None:
    with refused(InvalidInput, "depend on data", "without buckets"):
        bucketed(graph("y = Compress(X, c)", "float[?,4] X, bool[?] c"))(
            rows(3), np.ones(3, np.bool_)
        )


@pytest.mark.slow
def test_labels_of_calls_whose_sizes_change_are_padded_too() -> None:
    model = sardonyx.load(classifier(STRINGS), backend="jax", compile="now")
    plain = sardonyx.load(classifier(STRINGS), backend="numpy")
    for count in range(2, 40):
        assert_alike(model(rows(count)), plain(rows(count)))
    assert model.stats().compiles < 15


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        model = bucketed(classifier(STRINGS), backend="jax", cache=tmp_path)
        assert model(rows(5))["label"].shape == (5,)
        written.append({path: path.stat().st_size for path in tmp_path.rglob("*.xla")})
    assert len(written[0]) == 1
    assert written[0] == written[1]


@pytest.mark.slow
def test_threads_share_programs_and_may_release_them() -> None:
    model = bucketed(classifier(STRINGS))
    plain = sardonyx.load(classifier(STRINGS), backend="numpy")
    expected = {count: plain(rows(count)) for count in ROWS}

    def call(count: int) -> None:
        assert_alike(model(rows(count)), expected[count])
        if count == 20:
            model.release()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call, count) for count in ROWS * 4]:
            done.result()


def test_copies_keep_the_buckets() -> None:
    model = pickle.loads(pickle.dumps(bucketed(classifier(STRINGS), backend="jax")))
    for count in (3, 5, 7, 8):
        model(rows(count))
    assert model.stats().compiles == 1


def test_ahead_of_the_first_call() -> None:
    model = bucketed(classifier(STRINGS))
    model.compile({"X": (8, 4)}, {"X": (32, 4)})
    assert model.stats().compiles == 2
    for count in (3, 8, 25):
        model(rows(count))
    assert model.stats().compiles == 2


@pytest.mark.parametrize(
    ("buckets", "words"),
    [
        ({("Y", 0): [8]}, ["the input 'Y'", "its inputs are: X"]),
        ({("X", 2): [8]}, ["axis 2", "2 dimensions"]),
        ({("X", -3): [8]}, ["axis -3"]),
        ({("X", 1): [8]}, ["size is fixed"]),
        ({("X", 0): [8], ("X", -2): [8]}, ["X[0] twice"]),
        ({("X",): [8]}, ["('X',)", "an input's name and an axis"]),
        ({("X", True): [8]}, ["('X', True)"]),
        ({("X", 0.0): [8]}, ["('X', 0.0)"]),
        ({(0, "X"): [8]}, ["(0, 'X')"]),
        ({0: [8]}, ["the key 0"]),
        ({None: [8]}, ["the key None"]),
        ({("X", 10**30): [8]}, ["2 dimensions"]),
        ({("X", 0): [8, 4]}, ["ascending"]),
        ({("X", 0): []}, ["ascending"]),
        ({("X", 0): None}, ["('X', 0)"]),
        ({"X": [8]}, ["an input and an axis"]),
    ],
    ids=str,
)
def test_keys_that_mean_nothing_are_refused(buckets: Mapping[Any, Any], words: list[str]) -> None:
    with refused(InvalidInput, *words):
        bucketed(graph("y = Exp(X)"), buckets)


def test_one_dimension_by_its_name_and_by_its_axis_is_refused() -> None:
    proto = graph("y = Add(A, B)", "float[n,4] A, float[n,4] B")
    with refused(InvalidInput, "A[0] twice"):
        bucketed(proto, {"n": [8], ("A", 0): [8]})
    with refused(InvalidInput, "B[0] twice"):
        bucketed(proto, {("A", 0): [8], ("B", 0): [4]})
    model = bucketed(proto, {("A", 0): [8], ("B", 0): [8]})
    assert_allclose(model(rows(3), rows(3)), 2 * rows(3))


def test_sequences_have_no_axes() -> None:
    proto = graph("zero = Constant<value_int = 0>() y = SequenceAt(X, zero)", "seq(float[?]) X")
    with refused(InvalidInput, "only dimensions of tensors"):
        bucketed(proto)

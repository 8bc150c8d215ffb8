"""Shape buckets: few compiles for many sizes, and results as if there were none."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx import InvalidInput, Model
from tests.support.onnx_builders import FLOAT, node, value, weight
from tests.support.onnx_builders import model as graph_model
from tests.support.poisoned_padding import PoisonedJax

BUCKETS = {"batch": [4, 8], "sequence": [4, 8, 16]}
# Sizes in two buckets, some on their edge, and one that is not padded.
SIZES = [(3, 5), (2, 7), (4, 8), (3, 3), (1, 6)]


def model(body: str, inputs: str = "float[batch,sequence,6] x", output: str = "y") -> Any:
    """A model of one output, whose constants are written as `[1, 2]` where a tensor is meant."""
    head = '<ir_version: 10, opset_import: ["": 23]>'
    proto = parser.parse_model(f"{head} g ({inputs}) => (float[] {output}) {{ {body} }}")
    proto.graph.output[0].ClearField("type")
    return proto


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def compare(
    proto: Any,
    feeds: Sequence[Mapping[str, Any]],
    buckets: Any = BUCKETS,
    tolerance: float = 2e-5,
) -> Model:
    """Run with and without buckets; the model with buckets, for its counts."""
    plain = sardonyx.load(proto, backend="jax")
    bucketed = sardonyx.load(proto, backend=PoisonedJax(), buckets=buckets)
    for feed in feeds:
        for found, expected in zip(bucketed.run(None, feed), plain.run(None, feed), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return bucketed


AXIS = "one = Constant<value_ints = [1]>() both = Constant<value_ints = [0, 1]>() "
GRAPHS = {
    "element-wise": "y = Log(x)",
    "softmax": "y = Softmax<axis = 1>(x)",
    "mean over the sequence": f"{AXIS} y = ReduceMean(x, one)",
    "mean of all": f"{AXIS} y = ReduceMean<keepdims = 0>(x, both)",
    "norm over both": "y = MeanVarianceNormalization<axes = [0, 1]>(x)",
    "layer norm": """s = Constant<value = float[6] {1, 2, 1, 1, 3, 1}>()
        y = LayerNormalization(x, s)""",
    "place of the largest": "y = ArgMax<axis = 1>(x)",
    "largest": "k = Constant<value_ints = [2]>() y, i = TopK<axis = 1>(x, k)",
    "all in order": "k = Shape<start = 1, end = 2>(x) y, i = TopK<axis = 1>(x, k)",
    "running total backwards": "a = Constant<value_int = 1>() y = CumSum<reverse = 1>(x, a)",
    "divided by a size": "n = Shape<start = 1, end = 2>(x) f = Cast<to = 1>(n) y = Div(x, f)",
    "positions": """n = Shape<start = 1, end = 2>(x) zero = Constant<value_ints = [0]>()
        s = Squeeze(n, zero) o = Constant<value_int = 0>() i = Constant<value_int = 1>()
        r = Range(o, s, i) f = Cast<to = 1>(r) last = Constant<value_ints = [-1]>()
        u = Unsqueeze(f, last) y = Add(x, u)""",
    "attention": """t = Transpose<perm = [0, 2, 1]>(x) scores = MatMul(x, t)
        p = Softmax<axis = -1>(scores) y = MatMul(p, x)""",
    "causal attention": "y = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(x, x, x)",
    "lower triangle": """t = Transpose<perm = [0, 2, 1]>(x) m = MatMul(x, t)
        l = Trilu<upper = 0>(m) y = MatMul(l, x)""",
    "concatenated": f"e = Exp(x) c = Concat<axis = 1>(x, e, x) {AXIS} y = ReduceMean(c, one)",
    "batch times sequence": """flat = Constant<value_ints = [-1, 6]>() m = Reshape(x, flat)
        e = Exp(m) s = Shape(x) y = Reshape(e, s)""",
    "mean of what is merged": f"""flat = Constant<value_ints = [-1, 6]>() m = Reshape(x, flat)
        o = Constant<value_ints = [0]>() {AXIS} y = ReduceMean(m, o)""",
    "flattened": "y = Flatten(x)",
    "all but the last": """a = Constant<value_ints = [0]>() b = Constant<value_ints = [-1]>()
        one = Constant<value_ints = [1]>() y = Slice(x, a, b, one)""",
    "the last two": """a = Constant<value_ints = [-2]>() b = Constant<value_ints = [99]>()
        one = Constant<value_ints = [1]>() y = Slice(x, a, b, one)""",
    "backwards": """a = Constant<value_ints = [-1]>() b = Constant<value_ints = [-99]>()
        one = Constant<value_ints = [1]>() y = Slice(x, a, b, one, a)""",
    "the first three": """a = Constant<value_ints = [0]>() b = Constant<value_ints = [3]>()
        one = Constant<value_ints = [1]>() y = Slice(x, a, b, one)""",
    "taken from the end": "i = Constant<value_ints = [-1, 0]>() y = Gather<axis = 1>(x, i)",
    "taken where it is largest": """i = ArgMax<axis = 1, keepdims = 1>(x)
        y = GatherElements<axis = 1>(x, i)""",
    "written at the end": """z = Constant<value = int64[1, 2] {-1, -1}>()
        u = Constant<value = float[1, 6] {9, 8, 7, 6, 5, 4}>() y = ScatterND(x, z, u)""",
    "one of each": """i = ArgMax<axis = 1, keepdims = 0>(x) d = Shape<start = 1, end = 2>(x)
        v = Constant<value = float[2] {0, 1}>() y = OneHot(i, d, v)""",
    "padded by the graph": """p = Constant<value_ints = [0, 1, 0, 0, 2, 0]>()
        y = Pad<mode = "edge">(x, p)""",
    "convolution": """w = RandomNormal<shape = [4, 6, 3], seed = 1.0>()
        t = Transpose<perm = [0, 2, 1]>(x) y = Conv<pads = [1, 1]>(t, w)""",
    "depthwise": """w = RandomNormal<shape = [6, 1, 3], seed = 1.0>()
        t = Transpose<perm = [0, 2, 1]>(x) y = Conv<pads = [1, 1], group = 6>(t, w)""",
    "maximum of windows": """t = Transpose<perm = [0, 2, 1]>(x)
        y = MaxPool<kernel_shape = [3], pads = [1, 1], strides = [2]>(t)""",
    "LSTM": """w = RandomNormal<shape = [2, 8, 6], seed = 1.0>()
        r = RandomNormal<shape = [2, 8, 2], seed = 2.0>() t = Transpose<perm = [1, 0, 2]>(x)
        a, y, c = LSTM<hidden_size = 2, direction = "bidirectional">(t, w, r)""",
    "GRU": """w = RandomNormal<shape = [1, 6, 6], seed = 1.0>()
        r = RandomNormal<shape = [1, 6, 2], seed = 2.0>() t = Transpose<perm = [1, 0, 2]>(x)
        y, h = GRU<hidden_size = 2>(t, w, r)""",
    "quantised": "y, s, z = DynamicQuantizeLinear(x)",
    "a size": "y = Shape(x)",
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_those_without_buckets(name: str) -> None:
    bucketed = compare(model(GRAPHS[name]), [{"x": normal(*sizes, 6)} for sizes in SIZES])
    # Of a call with a single sequence, or a single position, that axis stays as it is.
    assert bucketed.stats().compiles <= len(set(map(bucket_of, SIZES)))


def bucket_of(sizes: tuple[int, int]) -> tuple[int, ...]:
    pairs = zip(sizes, BUCKETS.values(), strict=True)
    return tuple(n if n < 2 else min(m for m in chosen if m >= n) for n, chosen in pairs)


def test_each_bucket_is_compiled_once() -> None:
    proto = model(GRAPHS["attention"])
    plain = sardonyx.load(proto, backend="numpy")
    bucketed = sardonyx.load(proto, backend=PoisonedJax(), buckets=BUCKETS)
    for sizes in itertools.product(range(1, 9), repeat=2):
        x = normal(*sizes, 6)
        assert_allclose(bucketed(x), plain(x), rtol=1e-4, atol=1e-5)
    assert bucketed.stats().compiles == 3 * 3


def test_loops_over_a_padded_axis_stop_where_it_ends() -> None:
    proto = model(
        """zero = Constant<value = float[6] {0, 0, 0, 0, 0, 0}>() o = Constant<value_ints = [0]>()
        m = ReduceMax<keepdims = 0>(x, o) h, y = Scan<num_scan_inputs = 1, body = b
            (float[6] s, float[6] xi) => (float[6] so, float[6] r) {
                so = Add(s, xi) r = Exp(so) }>(zero, m)"""
    )
    bucketed = compare(proto, [{"x": normal(*sizes, 6)} for sizes in [(3, 9), (2, 13), (4, 16)]])
    assert bucketed.stats().compiles == 1


def test_elementwise_results_are_the_same_bits() -> None:
    proto = model("e = Exp(x) s = Sigmoid(e) t = Transpose(s) y = Sqrt(t)")
    compare(proto, [{"x": normal(*sizes, 6)} for sizes in SIZES], tolerance=0)


EXPORTED = {
    "cnn_dynamo": {"batch": [(3, 4), (2, 4), (6, 8)]},
    "encoder_dynamo": {"batch": [(3, 4), (2, 4)], "sequence": [(7, 8), (5, 8)]},
    "encoder_torchscript": {"batch": [(3, 4), (4, 4)], "sequence": [(7, 8), (6, 8)]},
    "masks_dynamo": {"batch": [(3, 4), (2, 4)], "sequence": [(7, 8), (5, 8)]},
    "decoder_dynamo": {
        "batch": [(3, 4), (1, 1)], "past": [(7, 8), (3, 4)], "sequence": [(2, 4), (3, 4)]
    },
    "separable_torchscript": {
        "batch": [(3, 4), (2, 4)], "height": [(9, 12), (10, 12)], "width": [(7, 8), (8, 8)]
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_networks(name: str) -> None:
    path = Path(__file__).parent / "models" / f"{name}.onnx"
    infos = sardonyx.load(path, backend="numpy").inputs
    sizes, feeds = EXPORTED[name], []
    for call in zip(*sizes.values(), strict=False):
        chosen = {axis: size for axis, (size, _) in zip(sizes, call, strict=True)}
        feeds.append({info.name: fed(info, chosen) for info in infos})
    buckets = {axis: sorted({wide for _, wide in pairs}) for axis, pairs in sizes.items()}
    compiled = {tuple(wide for _, wide in call) for call in zip(*sizes.values(), strict=True)}
    assert compare(path, feeds, buckets).stats().compiles == len(compiled)


def fed(info: Any, sizes: Mapping[str, int]) -> Any:
    shape = [sizes.get(size, size) for size in info.shape]
    return (
        normal(*shape, dtype=info.dtype) if info.dtype.kind == "f" else np.ones(shape, info.dtype)
    )


# -- choosing sizes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buckets", "sizes", "padded"),
    [
        ([1, 8, 32], [1, 2, 8, 9, 32, 33, 65], [1, 8, 8, 32, 32, 64, 96]),
        ("powers of two", [1, 2, 3, 5, 8, 100], [1, 2, 4, 8, 8, 128]),
    ],
)
def test_a_call_runs_in_the_least_bucket_that_holds_it(
    buckets: Any, sizes: Sequence[int], padded: Sequence[int]
) -> None:
    proto = model("y = Exp(x)", inputs="float[batch] x")
    bucketed = sardonyx.load(proto, backend="jax", buckets={"batch": buckets})
    found = [bucketed.trace(normal(size)).inputs[0].shape[0] for size in sizes]
    assert found == list(padded)


@pytest.mark.parametrize(
    ("buckets", "reason"),
    [
        ({"rows": [1]}, "free dimensions of the model's inputs are: batch, sequence"),
        ({"batch": []}, "ascending order, or 'powers of two'"),
        ({"batch": [8, 4]}, "ascending"),
        ({"batch": [0, 4]}, "ascending"),
        ({"batch": [1.5]}, "ascending"),
        ({"batch": "powers of three"}, "powers of two"),
        ({"batch": 8}, "ascending"),
        ([8], "pass a dict"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(buckets: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        sardonyx.load(model("y = Exp(x)"), buckets=buckets)


def test_dimensions_that_are_sums_of_others_are_padded_with_them() -> None:
    inputs = (
        'float[batch,past,2] old, float[batch,sequence,2] new, float["batch", "past + sequence"] m'
    )
    proto = model(
        """k = Concat<axis = 1>(old, new) last = Constant<value_ints = [-1]>()
        u = Unsqueeze(m, last) p = Mul(k, u) one = Constant<value_ints = [1]>()
        y = ReduceSum(p, one)""",
        inputs,
    )
    proto.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "past + sequence"
    feeds = [
        {"old": normal(b, p, 2), "new": normal(b, s, 2), "m": normal(b, p + s)}
        for b, p, s in [(2, 5, 3), (3, 7, 2), (1, 6, 4)]
    ]
    bucketed = compare(proto, feeds, {"past": [8], "sequence": [4], "batch": [4]})
    assert bucketed.stats().compiles == 2


# -- what is refused, and what runs as it is ------------------------------------------------------


REFUSED = {
    "draws": ("y = RandomUniformLike<seed = 1.0>(x)", "node with output 'y' .RandomUniformLike"),
    "spectrum": (
        """a = Constant<value_int = 1>() l = Constant<value_ints = [-1]>() u = Unsqueeze(x, l)
        y = DFT(u, , a)""",
        "node with output 'y' .DFT",
    ),
    "data decides": ("y = NonZero(x)", "runs on the host"),
    "a value decides": (
        """o = Constant<value_ints = [0]>() m = ReduceMax<keepdims = 0>(x) c = Cast<to = 7>(m)
        k = Abs(c) u = Unsqueeze(k, o) y = Expand(m, u)""",
        "a computed value",
    ),
    "one by one": ("s = SplitToSequence<axis = 1>(x) y = ConcatFromSequence<axis = 1>(s)", "'s'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_proved_is_refused_with_its_node(name: str) -> None:
    body, reason = REFUSED[name]
    bucketed = sardonyx.load(model(body), backend="jax", buckets=BUCKETS)
    with pytest.raises(InvalidInput, match=reason):
        bucketed(normal(3, 5, 6))
    assert bucketed.stats().compiles == 0


@pytest.mark.slow
def test_draws_for_a_padded_batch_are_those_of_the_call() -> None:
    proto = model("y = RandomUniformLike(x)")
    plain = sardonyx.load(proto, backend="jax")
    bucketed = sardonyx.load(proto, backend="jax", buckets={"batch": [8]})
    for size in (3, 7, 8):
        x = normal(size, 5, 6)
        assert_array_equal(bucketed.bind(key=7)(x), plain.bind(key=7)(x))
        assert (bucketed(x) != bucketed(x)).any()
    assert bucketed.stats().compiles == 1


def test_a_size_for_which_the_graph_is_another_one_runs_as_it_is() -> None:
    """A Slice of the first three of two or three is nothing to run; of four it is."""
    bucketed = compare(model(GRAPHS["the first three"]), [{"x": normal(3, s, 6)} for s in (3, 2)])
    assert bucketed.stats().compiles == 0


# -- calls ----------------------------------------------------------------------------------------


def test_arrays_come_back_as_they_went_in() -> None:
    bucketed = sardonyx.load(model("y = Exp(x)"), backend="jax", buckets=BUCKETS)
    x = normal(3, 5, 6)
    assert isinstance(bucketed(x), np.ndarray)
    found = bucketed(jnp.asarray(x))
    assert isinstance(found, jax.Array)
    assert_allclose(found, np.exp(x), rtol=1e-6)


def test_outputs_that_are_inputs_weights_or_known() -> None:
    proto = graph_model(
        [
            node("Identity", ["x"], ["same"]),
            node("Shape", ["x"], ["size"]),
            node("Identity", ["w"], ["held"]),
            node("Mul", ["x", "w"], ["y"]),
        ],
        [value("x", ["batch", 2])],
        [value("same", None), value("size", None, onnx.TensorProto.INT64), "held", "y"],
        [weight("w", np.ones((1, 2), np.float32) * 3)],
    )
    bucketed = sardonyx.load(proto, backend="jax", buckets={"batch": [4]})
    x = normal(3, 2)
    same, size, held, y = bucketed(x)
    assert same is x
    assert_array_equal(size, [3, 2])
    assert_array_equal(held, [[3, 3]])
    assert_allclose(y, 3 * x)
    bucketed.params["w"] = np.full((1, 2), 2, np.float32)
    assert_allclose(bucketed(x)[3], 2 * x)
    assert bucketed.stats().compiles == 1


def test_a_program_may_depend_on_inputs_that_are_not_padded() -> None:
    proto = model("y, i = TopK<axis = 1>(x, k)", "float[batch,sequence] x, int64[1] k")
    plain = sardonyx.load(proto, backend="jax")
    bucketed = sardonyx.load(proto, backend="jax", buckets=BUCKETS)
    for sizes, k in [((3, 6), 2), ((2, 5), 2), ((2, 5), 3), ((3, 6), 3), ((4, 8), 2)]:
        x = normal(*sizes)
        assert_allclose(bucketed(x, np.asarray([k])), plain(x, np.asarray([k])))
    assert bucketed.stats().compiles == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double", "int32", "uint8"])
@pytest.mark.sampled(3)
def test_other_types(dtype: str) -> None:
    proto = model(
        """one = Constant<value_ints = [1]>() m = ReduceMax(x, one) s = Sub(m, x)
        k = ArgMax<axis = 1>(x) v = GatherElements<axis = 1>(s, k)
        c = Concat<axis = 1>(s, v) y = Transpose(c)""",
        f"{dtype}[batch,sequence,6] x",
    )
    kind = jnp.dtype({"double": "float64"}.get(dtype, dtype))
    feeds = [{"x": (4 * normal(*sizes, 6)).astype(kind)} for sizes in SIZES[:4]]
    compare(proto, feeds, tolerance=0)


def test_booleans() -> None:
    proto = model("n = Not(x) y = Concat<axis = 0>(x, n)", "bool[batch,sequence] x")
    compare(proto, [{"x": normal(*sizes) > 0} for sizes in SIZES], tolerance=0)


@pytest.mark.parametrize("options", [{"backend": "numpy"}, {"backend": "jax", "jit": False}])
def test_where_nothing_is_compiled_there_is_nothing_to_pad(options: Any) -> None:
    bucketed = sardonyx.load(model("y = NonZero(x)"), buckets=BUCKETS, **options)
    assert bucketed(normal(3, 5, 6)).shape == (3, 90)


def test_under_a_caller_s_jit_the_sizes_are_those_of_the_call() -> None:
    bucketed = sardonyx.load(model(GRAPHS["softmax"]), backend="jax", buckets=BUCKETS)
    x = normal(3, 5, 6)
    assert_allclose(jax.jit(bucketed)(x), bucketed(x), rtol=1e-6)
    slope = jax.grad(lambda x: bucketed(x)[0, 0, 0])(jnp.asarray(x))
    assert slope.shape == x.shape


@pytest.mark.slow
def test_programs_are_compiled_ahead_shown_and_given_back() -> None:
    bucketed = sardonyx.load(model(GRAPHS["softmax"]), backend="jax", buckets=BUCKETS)
    bucketed.compile({"x": (3, 5, 6)}, {"x": (2, 7, 6)})
    assert bucketed.stats().compiles == 1
    bucketed(normal(4, 6, 6))
    assert bucketed.stats().compiles == 1
    program = bucketed.trace(normal(4, 6, 6))
    assert "float32[4, 8, 6]" in str(program)
    assert bucketed.memory(x=(4, 6, 6)).inputs == 4 * 4 * 8 * 6
    del program
    bucketed.release()
    bucketed(normal(4, 6, 6))
    assert bucketed.stats().compiles == 2


def test_padded_programs_list_their_constants() -> None:
    proto = model("c = Constant<value_float = 3.0>() y = Mul(x, c)")
    bucketed = sardonyx.load(proto, backend="jax", buckets=BUCKETS)
    program = bucketed.trace(normal(4, 6, 6))
    assert program.inputs[0].shape == (4, 8, 6)
    assert list(program.constants) == list(sardonyx.load(proto).trace(normal(4, 6, 6)).constants)
    assert list(program.constants) == ["c"]


def test_several_inputs_and_dimensions() -> None:
    proto = graph_model(
        [
            node("Concat", ["a", "b"], ["both"], axis=1),
            node("MatMul", ["both", "c"], ["product"]),
            node("Softmax", ["product"], ["y"], axis=0),
        ],
        [value("a", ["n", "m"]), value("b", ["n", 3]), value("c", [None, "k"], FLOAT)],
        ["y"],
    )
    feeds = [
        {"a": normal(n, m), "b": normal(n, 3), "c": normal(m + 3, k)}
        for n, m, k in [(3, 2, 5), (2, 2, 7), (4, 2, 6)]
    ]
    # The unnamed dimension of c goes with m, so that m may not be padded.
    assert compare(proto, feeds, {"n": [4], "k": [8]}).stats().compiles == 1
    bucketed = sardonyx.load(proto, backend="jax", buckets={"m": [8]})
    with pytest.raises(InvalidInput, match="m from 2 to 8"):
        bucketed.run(None, feeds[0])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", GRAPHS)
def test_arrays_without_elements_may_change_along_other_axes(name: str) -> None:
    """Or refused as they are without buckets."""
    bucketed = sardonyx.load(model(GRAPHS[name]), backend=PoisonedJax())
    plain = sardonyx.load(model(GRAPHS[name]), backend="numpy")
    for batch in (3, 7, 8, 5, 4):
        x = normal(batch, 0, 6)
        try:
            expected = plain(x)
        except sardonyx.SardonyxError as error:
            with pytest.raises(type(error)):
                bucketed(x)
        else:
            result = bucketed(x)
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            assert_allclose(result, expected)

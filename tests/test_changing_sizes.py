"""Dimensions that turn out to change: few traces and compiles, and results as if alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.backends.jax.padding.arrays import JaxPadding
from sardonyx.backends.padding.axes import Cut
from sardonyx.graph.buckets.automatic import STEPS
from sardonyx.graph.buckets.formulas import Formula, determine_formulas
from sardonyx.graph.buckets.sizes import Sizes
from tests.support.poisoned_padding import PoisonedJax
from tests.test_buckets import GRAPHS, model, normal

SIZES = [(17, 5), (18, 6), (19, 7), (21, 7), (24, 8), (23, 5), (17, 6), (20, 5)]

# Numbers of which one is another than all others.
TABLE = ", ".join("9" if n == 77 else "3" for n in range(99))

# A decoder of one layer, whose keys and values grow by one row with each call.
DECODER = """<ir_version: 10, opset_import: ["": 23]>
decoder (float[batch, 1, 8] x, float[batch, past, 8] keys, float[batch, past, 8] values)
    => (float[batch, 1, 8] y, float[batch, total, 8] all_keys, float[batch, total, 8] all_values) {
    k = Tanh (x)
    v = Sin (x)
    all_keys = Concat <axis = 1> (keys, k)
    all_values = Concat <axis = 1> (values, v)
    turned = Transpose <perm = [0, 2, 1]> (all_keys)
    scores = MatMul (x, turned)
    weights = Softmax <axis = -1> (scores)
    y = MatMul (weights, all_values)
}"""


def slicing(body: str) -> onnx.ModelProto:
    """A model with weights that tracing reads: a start of 1, an end of 5 and an axis of 1."""
    proto: onnx.ModelProto = model(body)
    for name, value in (("start", 1), ("end", 5), ("axis", 1)):
        proto.graph.initializer.add(name=name, data_type=7, dims=[1]).int64_data.append(value)
    return proto


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_those_of_programs_of_their_own(name: str) -> None:
    changing = sardonyx.load(model(GRAPHS[name]), backend=PoisonedJax())
    plain = sardonyx.load(model(GRAPHS[name]), backend="jax", buckets=None)
    for sizes in SIZES * 2:
        x = normal(*sizes, 6)
        result, expected = changing(x), plain(x)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def test_a_new_size_of_a_known_bucket_is_neither_traced_nor_compiled() -> None:
    loaded = sardonyx.load(model(GRAPHS["attention"]), backend="jax")
    for size in (33, 34, 36, 48):
        loaded(normal(2, size, 6))
    before = loaded.stats()
    for size in range(33, 49):
        loaded(normal(2, size, 6))
    after = loaded.stats()
    assert (after.traces, after.compiles) == (before.traces, before.compiles)
    assert before.compiles == 3  # Two sizes by themselves, and one bucket.


@pytest.mark.parametrize(
    ("backend", "library"),
    [
        ("jax", np),
        pytest.param("jax", jnp, marks=pytest.mark.slow),
        ("poisoned", np),
        pytest.param("poisoned", jnp, marks=pytest.mark.slow),
    ],
)
def test_a_decoder_whose_cache_grows_compiles_a_few_times(backend: str, library: Any) -> None:
    """With poisoned padding every call pads its cache; with JAX's own a result is passed on."""
    chosen = PoisonedJax() if backend == "poisoned" else backend
    changing = sardonyx.load(parser.parse_model(DECODER), backend=chosen)
    plain = sardonyx.load(parser.parse_model(DECODER), backend="numpy")
    theirs = [normal(1, 5, 8), normal(1, 5, 8)]
    ours = list(map(library.asarray, theirs))
    for i in range(256):
        x = normal(1, 1, 8) + np.float32(i / 100)
        y, *ours = changing(library.asarray(x), *ours)
        expected, *theirs = plain(x, *theirs)
        assert isinstance(y, library.ndarray)
        assert y.shape == expected.shape
        assert [cache.shape for cache in ours] == [cache.shape for cache in theirs]
        assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    for our, their in zip(ours, theirs, strict=True):
        assert_allclose(our, their, rtol=2e-5, atol=2e-5)
    stats = changing.stats()
    # A program for the first call and three buckets, and four traces for the first bucket.
    assert stats.compiles <= 4
    assert stats.compiles + stats.traces <= 12


@pytest.mark.parametrize("compile_when", ["now", "background"])
def test_prompts_of_many_lengths_share_the_programs_of_a_decoder(compile_when: str) -> None:
    """A batch of four writes a few rows after each of 30 pasts of other lengths."""
    proto = parser.parse_model(DECODER)
    changing = sardonyx.load(proto, backend=PoisonedJax(), compile=compile_when)
    plain = sardonyx.load(proto, backend="numpy")
    for length in np.random.default_rng(0).permutation(np.arange(3, 123, 4)).tolist():
        ours = theirs = [normal(4, length, 8), normal(4, length, 8)]
        for i in range(4):
            x = normal(4, 1, 8) + np.float32(i)
            y, *ours = changing(x, *ours)
            expected, *theirs = plain(x, *theirs)
            assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
            assert [cache.shape for cache in ours] == [cache.shape for cache in theirs]
    stats = changing.stats()
    assert stats.compiles + stats.traces <= 12


def test_a_result_that_comes_back_is_not_padded_again() -> None:
    padding = JaxPadding()
    whole, cut = jnp.arange(2**16).reshape(2, 2**15), Cut((2, 2**15), (2, 9999), (2, 9999))
    for is_native in (False, True):
        (result,) = padding.unpad([whole], [cut], is_native=is_native)
        assert_array_equal(result, whole[:, :9999])
        assert isinstance(result, jnp.ndarray if is_native else np.ndarray)
        assert padding.pad(result, whole.shape) is whole
        # Neither another shape nor other elements are those of the padded array.
        assert padding.pad(result, (2, 2**14)).shape == (2, 2**14)
        assert padding.pad(result + 0, whole.shape)[0, 9999] == 0


def test_a_bucket_ends_where_the_model_does() -> None:
    """The positions are those of a table of 40 rows, though the bucket would have 64."""
    body = """n = Shape <start = 1, end = 2> (x) one = Constant <value_ints = [1]> ()
        i = Sub (n, one) row = Gather (table, i) y = Add (x, row)"""
    proto = model(body)
    table = np.arange(240, dtype=np.float32).reshape(40, 6)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    changing = sardonyx.load(proto, backend=PoisonedJax())
    for size in (36, 33, 34, 35, 37, 38, 39, 40):
        x = normal(1, size, 6)
        assert_allclose(changing(x), x + table[size - 1], rtol=1e-6)
    assert changing.stats().compiles <= 5
    with pytest.raises(sardonyx.InvalidInput, match="Gather"):
        changing(normal(1, 41, 6))


def test_without_buckets_each_size_has_a_program_of_its_own() -> None:
    loaded = sardonyx.load(model(GRAPHS["softmax"]), backend="jax", buckets=None)
    for size in range(33, 38):
        loaded(normal(2, size, 6))
    assert loaded.stats().compiles == 5


def test_what_only_looks_at_a_call_teaches_nothing() -> None:
    loaded = sardonyx.load(model(GRAPHS["softmax"]), backend="jax")
    loaded.compile(*({"x": (2, size, 6)} for size in range(33, 38)))
    for size in range(33, 38):
        loaded.trace(normal(2, size, 6))
        loaded(normal(2, size, 6))
    assert loaded.stats().compiles == 5


@pytest.mark.parametrize(
    "body",
    [
        # The graph does something else for one size, and up to one.
        """t = Constant<value_ints = [77]>() n = Shape<start = 1, end = 2>(x) e = Equal(n, t)
        f = Cast<to = 1>(e) y = Add(x, f)""",
        """a = Constant<value_ints = [80]>() b = Constant<value_ints = [3]>() t = Sub(a, b)
        n = Shape<start = 1, end = 2>(x) d = Sub(n, t) e = Cast<to = 9>(d) f = Cast<to = 1>(e)
        y = Add(x, f)""",
        # A table that is looked up at the size.
        f"""table = Constant<value_ints = [{TABLE}]>() n = Shape<start = 1, end = 2>(x)
        i = Gather(table, n) f = Cast<to = 1>(i) y = Mul(x, f)""",
        # What depends on whether a size is even, and on its square root.
        """two = Constant<value_ints = [2]>() n = Shape<start = 1, end = 2>(x) m = Mod(n, two)
        f = Cast<to = 1>(m) y = Mul(x, f)""",
        """n = Shape<start = 1, end = 2>(x) f = Cast<to = 1>(n) s = Sqrt(f) y = Div(x, s)""",
        # Squares that meet a line at the sizes that are traced, once they are divided and rounded.
        """n = Shape<start = 1, end = 2>(x) nn = Mul(n, n) c = Constant<value_ints = [49]>()
        k = Constant<value_ints = [160]>() d = Sub(nn, c) q = Div(d, k) f = Cast<to = 1>(q)
        y = Add(x, f)""",
        """two = Constant<value_ints = [2]>() n = Shape<start = 1, end = 2>(x) nn = Pow(n, two)
        c = Constant<value_ints = [49]>() k = Constant<value_ints = [160]>() d = Sub(nn, c)
        q = Div(d, k) f = Cast<to = 1>(q) y = Add(x, f)""",
        # A cubic that is zero at these sizes, and a square that is positive there.
        """n = Shape<start = 1, end = 2>(x) a = Constant<value_ints = [65]>()
        b = Constant<value_ints = [95]>() c = Constant<value_ints = [96]>() d = Sub(n, a)
        e = Sub(n, b) h = Sub(n, c) p = Mul(d, e) q = Mul(p, h) f = Cast<to = 1>(q)
        y = Add(x, f)""",
        """n = Shape<start = 1, end = 2>(x) a = Constant<value_ints = [70]>()
        b = Constant<value_ints = [90]>() z = Constant<value_ints = [0]>() d = Sub(n, a)
        e = Sub(n, b) p = Mul(d, e) g = Greater(p, z) f = Cast<to = 1>(g) y = Add(x, f)""",
    ],
)
def test_every_size_of_a_bucket_is_right(body: str) -> None:
    changing = sardonyx.load(model(body), backend=PoisonedJax())
    plain = sardonyx.load(model(body), backend="numpy")
    for size in [70, 90, *range(65, 97)]:
        x = normal(2, size, 6)
        assert_allclose(changing(x), plain(x), rtol=2e-5, atol=2e-5)


def test_sizes_that_depend_on_others_follow_them() -> None:
    """A total that is the sum of two sizes, neither of which the file names."""
    body = """both = Concat <axis = 0> (a, b) y = Add (both, bias)"""
    proto = model(body, "float[m] a, float[n] b, float[total] bias")
    changing = sardonyx.load(proto, backend=PoisonedJax())
    for m, n in [(9, 17), (10, 19), (12, 18), (11, 21), (10, 23), (12, 24), (9, 20), (11, 22)]:
        a, b, bias = normal(m), normal(n), normal(m + n)
        assert_allclose(changing(a, b, bias), np.concatenate([a, b]) + bias, rtol=1e-6)
    assert changing.stats().compiles <= 3


def test_many_sizes_that_change_by_themselves_are_not_padded() -> None:
    names = [f"x{i}" for i in range(40)]
    inputs = ", ".join(f"float[n{i}] {name}" for i, name in enumerate(names))
    loaded = sardonyx.load(model(f"y = Concat <axis = 0> ({', '.join(names)})", inputs))
    rng = np.random.default_rng(0)
    for _ in range(5):
        arrays = [normal(size) for size in rng.integers(2, 99, 40).tolist()]
        assert_array_equal(loaded(*arrays), np.concatenate(arrays))
    assert loaded.stats().traces == 5


def test_many_inputs_may_share_a_size_that_changes() -> None:
    names = [f"x{i}" for i in range(8)]
    inputs = ", ".join(f"float[2, {name}] {name}" for name in names)
    loaded = sardonyx.load(model(f"y = Sum ({', '.join(names)})", inputs), backend="jax")
    for size in (33, 35, 36, 40, 47, 41):
        arrays = [normal(2, size) + i for i in range(8)]
        assert_allclose(loaded(*arrays), sum(arrays), rtol=1e-5)
    assert loaded.stats().compiles == 3


@pytest.mark.slow
def test_draws_are_those_of_the_size_itself() -> None:
    body = "noise = RandomNormalLike (x) y = Add (x, noise)"
    changing, plain = (
        sardonyx.load(model(body), backend="jax", buckets=buckets).bind(key=3)
        for buckets in ("auto", None)
    )
    for size in (33, 34, 36, 40, 47, 48):
        x = normal(2, size, 6)
        assert_array_equal(changing(x), plain(x))


def test_a_weight_that_tracing_read_may_be_replaced() -> None:
    loaded = sardonyx.load(slicing("y = Slice (x, start, end, axis)"), backend=PoisonedJax())
    for size in (33, 34, 36, 40):
        assert loaded(normal(2, size, 6)).shape == (2, 4, 6)
    loaded.params["end"] = np.array([9])
    for size in (36, 41, 42, 43, 44, 34):
        x = normal(2, size, 6)
        assert_array_equal(loaded(x), x[:, 1:9])


def test_calls_that_only_the_host_can_run_run_as_before() -> None:
    loaded = sardonyx.load(model("i = NonZero (x) y = Shape (i)"), backend="jax")
    for size in (33, 34, 36, 40, 41):
        x = np.ones((2, size, 6), np.float32)
        assert_array_equal(loaded(x), [3, x.size])


def test_threads_share_what_one_has_learned() -> None:
    loaded = sardonyx.load(model(GRAPHS["attention"]), backend=PoisonedJax())
    assert not wrong_sizes_in_threads(loaded, "attention", range(33, 65))


def wrong_sizes_in_threads(loaded: sardonyx.Model, name: str, sizes: range) -> list[int]:
    """Call a model of one of the graphs from six threads; return the sizes with wrong results."""
    plain = sardonyx.load(model(GRAPHS[name]), backend="numpy")
    wrong: list[int] = []

    def call(seed: int) -> None:
        for size in np.random.default_rng(seed).choice(sizes, 24).tolist():
            x = normal(2, size, 6)
            if not np.allclose(loaded(x), plain(x), rtol=1e-4, atol=1e-5):
                wrong.append(size)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_the_next_process_compiles_no_bucket_anew(tmp_path: Any) -> None:
    for compiles in (3, 0):
        loaded = sardonyx.load(model(GRAPHS["attention"]), backend="jax", cache=tmp_path)
        for size in (33, 34, 36, 40):
            loaded(normal(2, size, 6))
        assert loaded.stats().compiles >= compiles
    # Programs are read, not compiled: that counts as a compile, and takes no time.
    assert len(list(tmp_path.rglob("*"))) > 0


def test_formulas_return_every_number_that_they_were_fitted_to() -> None:
    sizes = [(5,), (8,), (7,), (33,)]
    assert determine_formulas(sizes)
    assert not determine_formulas(sizes[:2])
    for function in (lambda n: np.int32([n, 2 * n - 1, 4]), lambda n: np.float32(1 / n)):
        values = [np.asarray(function(n)) for (n,) in sizes]
        formula = Formula.fitted(sizes, values)
        assert formula is not None
        assert_array_equal(formula.at([1, 12]), function(12))
    assert Formula.fitted(sizes, [np.asarray(n // 2) for (n,) in sizes]) is None
    assert Formula.fitted(sizes, [np.asarray(min(n, 20)) for (n,) in sizes]) is None


def test_sizes_that_were_traced_prove_the_next_bucket() -> None:
    sizes = Sizes({"n": (64, 256, 1024)}, grow=True)

    def probes(size: int, *traced: int) -> list[int]:
        chosen = sizes.probes({"n": size}, [{"n": n} for n in traced]).sizes
        return [each["n"] for each in chosen]

    assert probes(64) == [2, 63]
    assert probes(256) == [65, 255]
    assert probes(256, 2, 63, 64) == [63, 64]
    # None that is too large, and none without a neighbour.
    assert probes(256, 100, 101) == [65, 255]
    assert probes(256, 50) == [50, 255]
    assert probes(256, 65, 66) == [65, 66]
    assert replace(sizes, reach=4).probes({"n": 1024}, []).sizes == [{"n": 256}, {"n": 1023}]


def test_no_size_is_padded_to_more_than_one_and_a_half_times_itself() -> None:
    for size in range(2, 2000):
        assert min(n for n in STEPS if n >= size) <= 1.5 * size

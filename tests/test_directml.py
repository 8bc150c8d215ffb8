"""DirectML's element-wise identity, as an op and as a function of arrays of any library."""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.backends import backend_of
from sardonyx.backends.base import Backend
from sardonyx.directml import element_wise_identity
from sardonyx.errors import InvalidInput
from sardonyx.ops.directml import ElementWiseIdentity, allows, level_name
from tests.support.arrays import on_host

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LEVELS = ("1.0", "2.1", "3.0", "4.1")


def put(xp: Backend, value: Any, dtype: str = "float32") -> Any:
    if xp.name == "strict" and dtype == "float16":
        pytest.skip("array_api_strict has no float16")
    with xp.scope():
        # A copy, for JAX may share memory with NumPy's array, which would outlive a donation.
        return xp.asarray(xp.put(np.array(value, dtype)), copy=True)


def byte_strides(array: Any) -> tuple[int, ...]:
    in_bytes = array.strides if hasattr(array, "strides") else on_host(array).strides
    return tuple(step // array.itemsize for step in in_bytes)


def counting(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# -- the op ----------------------------------------------------------------------------------------


def test_the_op_returns_its_very_input_where_nothing_changes(xp: Backend) -> None:
    x = put(xp, [[1.0, -0.0]])
    assert ElementWiseIdentity(xp, x) is x
    assert ElementWiseIdentity(xp, x, scale=2.0) is not x


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_scaled_in_their_own_type(xp: Backend, dtype: str) -> None:
    values = np.array([[-2.5, 0.0, 3.0], [np.inf, -np.inf, np.nan]], dtype)
    x = put(xp, values, dtype)
    with xp.scope():
        y = ElementWiseIdentity(xp, x, scale=1.5, bias=-0.25)
    np.testing.assert_array_equal(on_host(y), values * np.array(1.5, dtype) - np.array(0.25, dtype))
    assert on_host(y).dtype == dtype


def exactly(value: int, scale: float, bias: float, dtype: str) -> int:
    """The oracle: Python's integers, limited to the range."""
    limits = np.iinfo(dtype)
    if math.isnan(value * scale + bias):
        return 0
    if math.isinf(scale) or math.isinf(bias):
        return int(limits.max if value * scale + bias > 0 else limits.min)
    whole = float(scale).is_integer() and float(bias).is_integer()
    result = value * int(scale) + int(bias) if whole else math.trunc(value * scale + bias)
    return int(min(max(result, limits.min), limits.max))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("scale", "bias"), [(2, 3), (-1, 0), (3, -7), (0.5, 0.75), (2.0**40, 1), (math.nan, 0), (0, 5)]
)
def test_integers_are_truncated_and_limited(
    xp: Backend, dtype: str, scale: float, bias: float
) -> None:
    limits = np.iinfo(dtype)
    values = [
        limits.min,
        limits.max,
        limits.max // 2,
        limits.max // 3,
        0,
        1,
        7,
        limits.min // 2 + 1,
    ]
    if dtype.endswith("64") and not float(scale).is_integer():
        values = [0, 1, 7, 2**40]  # float64 is exact for these
    x = put(xp, [values], dtype)
    with xp.scope():
        y = ElementWiseIdentity(xp, x, scale=float(scale), bias=float(bias))
    assert on_host(y).dtype == dtype
    assert on_host(y).tolist() == [[exactly(int(v), scale, bias, dtype) for v in values]]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24))
@settings(deadline=None, max_examples=25)
def test_64_bits_are_exact_for_whole_numbers(value: int, scale: int, bias: int) -> None:
    for dtype in ("int64", "uint64"):
        start = value if dtype == "int64" else value % 2**64
        y = element_wise_identity(np.array([start], dtype), scale_bias=(scale, bias))
        assert y.tolist() == [exactly(start, scale, bias, dtype)]


def test_the_op_refuses_what_the_level_does_not_take(xp: Backend) -> None:
    x = put(xp, [1.0])
    with pytest.raises(ValueError, match=r"level 2.1 takes no float32 tensor of rank 1.*is 3.0;"):
        ElementWiseIdentity(xp, x, feature_level=2.1)
    assert ElementWiseIdentity(xp, x, feature_level=float(np.float32(4.1))) is x


# -- feature levels --------------------------------------------------------------------------------


def lowest_level(dtype: str, rank: int) -> str | None:
    """The table of the documentation, read the other way round."""
    if not 1 <= rank <= 8 or dtype not in FLOATS + INTEGERS:
        return None
    if dtype in ("float64", "int64", "uint64"):
        return "4.1"
    if rank not in (4, 5):
        return "3.0"
    return "1.0" if dtype in ("float16", "float32") else "2.1"


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_takes_its_types_and_ranks_and_names_the_level_that_would(level: str) -> None:
    dtypes = (*FLOATS, *INTEGERS, "bool", "complex64", ml_dtypes.bfloat16)
    for dtype, rank in product(map(np.dtype, dtypes), range(10)):
        lowest = lowest_level(dtype.name, rank)
        x = np.zeros((1,) * rank, dtype)
        if lowest is not None and lowest <= level:
            assert allows(dtype, rank, level)
            assert element_wise_identity(x, feature_level=level).dtype == dtype
            continue
        way_out = f"lowest that does is {lowest}" if lowest else "and no other level does"
        message = f"level {level} takes no {dtype.name} tensor of rank {rank}.*{way_out}"
        with pytest.raises(InvalidInput, match=message):
            element_wise_identity(x, feature_level=level)


def test_levels_between_are_those_below() -> None:
    four, five = np.zeros((1, 1, 1, 1), np.int8), np.zeros((1, 1), np.int64)
    with pytest.raises(InvalidInput, match=r"lowest that does is 2\.1"):
        element_wise_identity(four, feature_level="2.0")
    with pytest.raises(InvalidInput, match=r"lowest that does is 4\.1"):
        element_wise_identity(five, feature_level="4.0")
    for level in ("5.0", 5.2, "6.4"):
        element_wise_identity(five, feature_level=level)


def test_a_level_may_be_a_number_of_either_precision() -> None:
    assert [level_name(n) for n in (4.1, np.float32(4.1), "4.1", 3, 6.2)] == [
        *("4.1", "4.1", "4.1"),
        "3.0",
        "6.2",
    ]
    for unknown in (4.2, "7.0", "4", 0, math.nan, "DML_FEATURE_LEVEL_4_1"):
        with pytest.raises(InvalidInput, match="has no feature level"):
            element_wise_identity(np.zeros(1, np.float32), feature_level=unknown)


# -- the function ----------------------------------------------------------------------------------


def test_arrays_come_back_as_they_went_in(xp: Backend) -> None:
    x = put(xp, counting(2, 3))
    y = element_wise_identity(x, scale_bias=(2, 1))
    assert type(y) is type(x)
    np.testing.assert_array_equal(on_host(y), counting(2, 3) * 2 + 1)


def test_the_result_has_a_buffer_of_its_own(xp: Backend) -> None:
    x = put(xp, counting(2, 3))
    y = element_wise_identity(x)
    z = element_wise_identity(y, out=y, scale_bias=(0, 7))
    np.testing.assert_array_equal(on_host(x), counting(2, 3))
    np.testing.assert_array_equal(on_host(z), np.full((2, 3), 7))


def test_numpy_writes_into_out() -> None:
    x, other = counting(2, 3), np.zeros((2, 3), np.float32)
    assert element_wise_identity(x, out=other) is other
    np.testing.assert_array_equal(other, x)
    assert element_wise_identity(x, out=x, scale_bias=(2, 1)) is x
    np.testing.assert_array_equal(x, counting(2, 3) * 2 + 1)
    line = np.arange(6.0)
    element_wise_identity(line[:-1], out=line[1:])
    assert line.tolist() == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("scale_bias", [None, (2.0, 1.0)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_jax_gives_the_buffer_of_out_to_the_result(dtype: str, scale_bias: Any) -> None:
    xp = backend_of(jnp.zeros(1))
    expected = element_wise_identity(counting(2, 3).astype(dtype), scale_bias=scale_bias)
    for in_place in (True, False):
        x = put(xp, counting(2, 3), dtype)
        out = x if in_place else put(xp, np.zeros((2, 3)), dtype)
        pointer = out.unsafe_buffer_pointer()
        y = element_wise_identity(x, out=out, scale_bias=scale_bias)
        assert y.unsafe_buffer_pointer() == pointer
        assert out.is_deleted()
        assert x.is_deleted() == in_place
        assert y.dtype == dtype
        np.testing.assert_array_equal(on_host(y), expected)
        with pytest.raises(InvalidInput, match="already deleted or donated"):
            element_wise_identity(out)


def test_jax_compiles_an_equal_scaling_once() -> None:
    from sardonyx.backends.jax.operations import _writer  # noqa: PLC0415

    x = jnp.zeros((2, 3))
    writer = _writer(x.format)
    for _ in range(2):  # the first result is committed to its device, which x was not
        x = element_wise_identity(x, out=x, scale_bias=(3, 4))
    before = writer._cache_size()
    element_wise_identity(x, out=x, scale_bias=(3, 4))
    assert writer._cache_size() == before


def test_it_works_inside_of_jit() -> None:
    y = jax.jit(lambda x: element_wise_identity(x, scale_bias=(2, 1)) + element_wise_identity(x))
    np.testing.assert_array_equal(on_host(y(jnp.ones((2, 2)))), np.full((2, 2), 4))
    with pytest.raises(InvalidInput, match="outside of jit"):
        jax.jit(lambda x: element_wise_identity(x, strides=(1, 2)))(jnp.ones((2, 3)))


# -- strides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
@pytest.mark.parametrize("scale_bias", [None, (2, 1)])
def test_any_order_of_the_axes(xp: Backend, order: tuple[int, ...], scale_bias: Any) -> None:
    shape = (2, 3, 4, 5)
    packed = np.zeros([shape[axis] for axis in order]).transpose(np.argsort(order))
    strides = tuple(step // 8 for step in packed.strides)
    x = put(xp, counting(*shape))
    if xp.name == "strict" and order != (0, 1, 2, 3):
        with pytest.raises(InvalidInput, match=r"array_api_strict have no strides but"):
            element_wise_identity(x, strides=strides)
        return
    y = element_wise_identity(x, strides=strides, scale_bias=scale_bias)
    expected = counting(*shape) * 2 + 1 if scale_bias else counting(*shape)
    np.testing.assert_array_equal(on_host(y), expected)
    if xp.name != "strict":
        assert byte_strides(y) == strides
    if xp.name == "jax":
        assert y.format.layout.major_to_minor == order
        again = element_wise_identity(y, out=y, strides=strides, scale_bias=(1, 5))
        assert again.format.layout.major_to_minor == order
        np.testing.assert_array_equal(on_host(again), expected + 5)


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_numpy_has_any_strides_that_do_not_overlap(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    strides = tuple(data.draw(st.integers(0, 12)) for _ in shape)
    x = counting(*shape)
    places = {sum(map(int.__mul__, at, strides)) for at in product(*map(range, shape))}
    if len(places) == x.size:
        y = element_wise_identity(x, strides=strides)
        assert byte_strides(y) == strides
        np.testing.assert_array_equal(y, x)
    else:
        with pytest.raises(InvalidInput, match="two elements would overlap"):
            element_wise_identity(x, strides=strides)


def test_padded_rows_are_for_numpy_and_cupy() -> None:
    y = element_wise_identity(counting(2, 3), strides=(8, 2))
    assert y.strides == (32, 8)
    first, past = np.lib.array_utils.byte_bounds(y)
    assert past - first == 13 * 4
    with pytest.raises(InvalidInput, match=r"JAX has no strides \(8, 2\).*densely; NumPy"):
        element_wise_identity(jnp.ones((2, 3)), strides=(8, 2))


def test_the_default_is_row_major_whatever_the_input_is() -> None:
    x = np.asfortranarray(counting(2, 3, 4))
    assert element_wise_identity(x).flags.c_contiguous
    assert element_wise_identity(x, scale_bias=(2, 0)).flags.c_contiguous


@given(st.data())
@settings(deadline=None, max_examples=20)
def test_the_input_is_read_at_its_strides(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    strides = tuple(data.draw(st.integers(0, 9)) for _ in shape)
    x = counting(*shape)
    reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    for array in (x, np.asfortranarray(x), jnp.asarray(x)):
        if reach >= x.size:
            with pytest.raises(InvalidInput, match=f"reach element {reach}, but its buffer has"):
                element_wise_identity(array, strides=(strides, None))
            continue
        y = on_host(element_wise_identity(array, strides=(strides, None)))
        for at in product(*map(range, shape)):
            assert y[at] == sum(map(int.__mul__, at, strides))


def test_layouts_are_converted_both_ways(xp: Backend) -> None:
    """A buffer that holds N H W C is read as N C H W."""
    image = counting(2, 4, 5, 3)
    x = put(xp, image.reshape(2, 3, 4, 5))
    y = element_wise_identity(x, strides=((60, 1, 15, 3), None))
    np.testing.assert_array_equal(on_host(y), image.transpose(0, 3, 1, 2))
    if xp.name != "strict":
        back = element_wise_identity(y, strides=(60, 1, 15, 3))
        np.testing.assert_array_equal(on_host(back).transpose(0, 2, 3, 1), image)


def test_a_stride_of_zero_repeats(xp: Backend) -> None:
    x = put(xp, counting(4, 3))
    y = element_wise_identity(x, strides=((0, 1), None), scale_bias=(2, 0))
    np.testing.assert_array_equal(on_host(y), [[0, 2, 4]] * 4)
    z = element_wise_identity(y, out=y, strides=((1, 0), None))
    np.testing.assert_array_equal(on_host(z), [[0] * 3, [2] * 3, [4] * 3, [0] * 3])


def test_empty_arrays_have_nothing_to_overlap(xp: Backend) -> None:
    assert element_wise_identity(put(xp, np.zeros((0, 3))), strides=((0, 0), None)).shape == (0, 3)


# -- what is refused -------------------------------------------------------------------------------

X = counting(2, 3)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another dtype": ({"out": np.zeros((2, 3))}, r"out is float64 \(2, 3\), but input and output"),
    "another shape": ({"out": np.zeros((3, 2), np.float32)}, r"out is float32 \(3, 2\)"),
    "another rank": ({"out": np.zeros((1, 2, 3), np.float32)}, r"out is float32 \(1, 2, 3\)"),
    "another library": ({"out": jnp.zeros((2, 3))}, "must be an array of numpy"),
    "no array": ({"out": [[0.0] * 3] * 2}, "out is a list"),
    "read-only": ({"out": np.broadcast_to(np.float32(0), (2, 3))}, "overlap"),
    "frozen": ({"out": np.frombuffer(bytes(24), np.float32).reshape(2, 3)}, "read-only"),
    "out of other strides": (
        {"out": X.copy(), "strides": (1, 2)},
        r"has the strides \(3, 1\), not",
    ),
    "too few strides": ({"strides": (1,)}, "must be 2 whole numbers"),
    "negative strides": ({"strides": (-3, 1)}, "none of them negative"),
    "fractions of strides": ({"strides": (1.5, 1)}, "whole numbers"),
    "too few input strides": ({"strides": ((1,), None)}, "must be 2 whole numbers"),
    "broadcast output": ({"strides": (0, 1)}, "would overlap"),
    "one number": ({"scale_bias": (1,)}, "pair of numbers"),
    "no pair": ({"scale_bias": 2.0}, "pair of numbers"),
    "words": ({"scale_bias": ("a", "b")}, "pair of numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    options, message = REFUSED[case]
    prefix = r"^element_wise_identity of float32 \(2, 3\): "
    with pytest.raises(InvalidInput, match=prefix + f".*{message}"):
        element_wise_identity(X.copy(), **options)


def test_what_is_no_array_is_refused() -> None:
    for nothing in ([1.0], 1.0, None, "x"):
        with pytest.raises(InvalidInput, match="is no array"):
            element_wise_identity(nothing)
    with pytest.raises(InvalidInput, match="byte order"):
        element_wise_identity(np.zeros(3, ">f4"))

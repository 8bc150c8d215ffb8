"""Tensors of a model file become arrays, or an error that names them."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded
from sardonyx.graph.loading.tensors import decode, decode_sparse
from sardonyx.graph.standard.types import (
    ELEMENT_TYPES,
    ElementType,
    dtype_of,
    number_of,
    short_name,
    type_name,
)

KINDS = {kind.name: kind for kind in ELEMENT_TYPES.values()}
NUMERIC = [name for name in KINDS if name != "string"]


def some_values(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Any bits will do, but for bools, and for NaNs, of which a Python float keeps no payload."""
    kind = KINDS[name]
    count = math.prod(shape)
    numbers = np.random.default_rng(7).integers(-100, 100, (count, 2))
    if kind.bits < 8:
        bits = numbers[:, 0].astype(np.uint8) & ((1 << kind.bits) - 1)
        if name.startswith("int"):
            bits = ((bits << (8 - kind.bits)).view(np.int8) >> (8 - kind.bits)).view(np.uint8)
        return bits.view(kind.dtype).reshape(shape)
    if kind.dtype.kind == "c":
        return (numbers @ [1, 1j]).astype(kind.dtype).reshape(shape)
    if name == "bool":
        return (numbers[:, 0] > 0).reshape(shape)
    return numbers[:, 0].astype(kind.dtype).reshape(shape)


def assert_same(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


def test_the_types_are_those_of_the_schemas() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    names = {t for s in schemas for c in s.type_constraints for t in c.allowed_type_strs}
    assert {f"tensor({name})" for name in KINDS} == {t for t in names if t[:7] == "tensor("}


@pytest.mark.parametrize("kind", [k for k in KINDS.values() if k.dtype.kind in "iufV"], ids=str)
def test_the_bits_of_a_type_are_those_of_its_dtype(kind: ElementType) -> None:
    info = ml_dtypes.iinfo if "int" in kind.name else ml_dtypes.finfo
    assert kind.bits == info(kind.dtype).bits


def test_types_have_numbers_and_names() -> None:
    assert all(number_of(dtype_of(number)) == number for number in ELEMENT_TYPES)
    assert type_name(np.dtype(">f4")) == "tensor(float)"
    assert short_name(dtype_of(16)) == "bfloat16"
    with pytest.raises(InvalidInput, match="datetime64"):
        type_name(np.dtype("datetime64[s]"))
    with pytest.raises(InvalidModel, match="Element type 99"):
        dtype_of(99)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 5), (5, 1, 3)], ids=str)
@pytest.mark.parametrize("name", NUMERIC)
def test_every_type_from_raw_data_and_from_its_field(name: str, shape: tuple[int, ...]) -> None:
    values = some_values(name, shape)
    raw = numpy_helper.from_array(values)
    assert_same(decode(raw, None), values)
    typed = helper.make_tensor("w", KINDS[name].number, shape, values.ravel())
    assert not typed.raw_data
    assert_same(decode(typed, None), values)


@pytest.mark.parametrize("name", [n for n in NUMERIC if KINDS[n].dtype.itemsize < 8])
def test_every_bit_pattern_as_onnx_reads_it(name: str) -> None:
    kind = KINDS[name]
    data = bytes(range(252)) if name != "bool" else bytes([0, 1] * 126)
    count = len(data) * 8 // kind.bits
    tensor = TensorProto(name="w", data_type=kind.number, dims=[count], raw_data=data)
    wide = kind.dtype if kind.dtype.isbuiltin == 1 else np.float32
    expected, actual = numpy_helper.to_array(tensor), decode(tensor, None)
    with np.errstate(invalid="ignore"):  # some patterns are signalling NaNs
        np.testing.assert_array_equal(actual.astype(wide), expected.astype(wide))


@given(st.binary(min_size=1, max_size=40), st.sampled_from(["int2", "uint4", "float6e3m2"]))
@settings(deadline=None, max_examples=25)
def test_a_last_byte_may_be_filled_in_part(data: bytes, name: str) -> None:
    kind = KINDS[name]
    for count in range((len(data) - 1) * 8 // kind.bits + 1, len(data) * 8 // kind.bits + 1):
        tensor = TensorProto(data_type=kind.number, dims=[count], raw_data=data)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        fields = bits[: count * kind.bits].reshape(count, kind.bits)
        codes = decode(tensor, None).view(np.uint8) & ((1 << kind.bits) - 1)
        np.testing.assert_array_equal(codes, np.packbits(fields, 1, bitorder="little").ravel())


def test_strings_keep_every_character() -> None:
    words = ["", "naïve", "trailing\0", "漢字"]
    encoded = [word.encode() for word in words]
    table = TensorProto(data_type=TensorProto.STRING, dims=[2, 2], string_data=encoded)
    array = decode(table, None)
    assert array.dtype == object
    assert array.tolist() == [words[:2], words[2:]]
    scalar = decode(helper.make_tensor("s", TensorProto.STRING, (), [b"one"]), None)
    assert scalar.shape == ()
    assert scalar.item() == "one"


def test_signed_and_unsigned_bits_are_the_same_bits() -> None:
    negative = TensorProto(data_type=TensorProto.FLOAT16, dims=[1], int32_data=[-(2**15)])
    positive = TensorProto(data_type=TensorProto.FLOAT16, dims=[1], int32_data=[2**15])
    assert_same(decode(negative, None), decode(positive, None))


def test_bools_of_other_bytes_become_proper_bools() -> None:
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x02\xff")
    assert decode(tensor, None).view(np.uint8).tolist() == [0, 1, 1]


def test_arrays_are_read_only_and_share_the_bytes() -> None:
    shared = decode(numpy_helper.from_array(np.ones(5, np.float32)), None)
    owned = decode(helper.make_tensor("w", TensorProto.INT4, (3,), [1, 2, 3]), None)
    assert isinstance(shared.base, np.ndarray)
    assert not shared.flags.writeable
    assert not shared.flags.owndata
    assert not owned.flags.writeable


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def tensor(**fields: Any) -> TensorProto:
    return TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, "dims": [2]} | fields)


REFUSED = {
    "negative dimension": (tensor(dims=[2, -3], raw_data=b"12345678"), "negative"),
    "overflow": (tensor(dims=[2**62, 2**62], raw_data=b"1234"), "address"),
    "overflow beside a zero": (tensor(dims=[0, 2**62, 2**62]), "address"),
    "too many dimensions": (tensor(dims=[1] * 100_000, raw_data=b"1234"), "100,000 dimensions"),
    "one dimension too many": (tensor(dims=[1] * 65, raw_data=b"1234"), "limit is 64"),
    "raw data too short": (tensor(raw_data=b"1234567"), r"7 bytes, but float of shape \(2,\)"),
    "raw data too long": (tensor(raw_data=b"123456789"), "9 bytes.*needs 8"),
    "huge shape": (tensor(dims=[2**40], raw_data=b"1234"), "needs 4,398,046,511,104"),
    "huge typed shape": (tensor(dims=[2**40], float_data=[1.0]), "1 values"),
    "no data": (tensor(), "0 bytes"),
    "too few values": (tensor(float_data=[1.0]), "float_data holds 1 values.*needs 2"),
    "half a complex": (
        tensor(data_type=TensorProto.COMPLEX64, float_data=[1.0, 2.0, 3.0]),
        "3 values.*needs 4",
    ),
    "values where none belong": (tensor(dims=[0], float_data=[1.0]), "needs 0"),
    "packed, too few": (
        tensor(data_type=TensorProto.INT4, dims=[5], raw_data=b"12"),
        "2 bytes.*needs 3",
    ),
    "packed, too many": (
        tensor(data_type=TensorProto.UINT2, dims=[4], int32_data=[1, 2]),
        "2 values.*needs 1",
    ),
    "raw and typed": (tensor(raw_data=b"12345678", float_data=[1, 2]), "both in raw_data and"),
    "two fields": (tensor(float_data=[1, 2], double_data=[1, 2]), "float_data and double_data"),
    "another type's field": (tensor(double_data=[1, 2]), "double_data, but float belongs in"),
    "unknown type": (tensor(data_type=99, raw_data=b"12345678"), "Element type 99"),
    "undefined type": (tensor(data_type=0, raw_data=b"12345678"), "UNDEFINED"),
    "strings in raw data": (
        tensor(data_type=TensorProto.STRING, raw_data=b"ab"),
        "strings belong in string_data",
    ),
    "segment": (
        tensor(float_data=[1, 2], segment=TensorProto.Segment(begin=0, end=2)),
        "segment",
    ),
    "invalid UTF-8": (
        tensor(data_type=TensorProto.STRING, string_data=[b"fine", b"a\xff"]),
        "string 1 is not valid UTF-8.*byte 1",
    ),
    "a value too large": (
        tensor(data_type=TensorProto.UINT8, int32_data=[1, 256]),
        "holds 256, which does not fit uint8",
    ),
    "a value too small": (
        tensor(data_type=TensorProto.INT8, int32_data=[1, -129]),
        "holds -129, which does not fit int8",
    ),
    "a large uint32": (
        tensor(data_type=TensorProto.UINT32, uint64_data=[1, 2**32]),
        "holds 4294967296, which does not fit uint32",
    ),
    "external and internal": (
        tensor(raw_data=b"12345678", data_location=TensorProto.EXTERNAL),
        "both inside and outside",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tensor_that_contradicts_itself_is_refused(case: str) -> None:
    wrong, message = REFUSED[case]
    refused = pytest.raises(InvalidModel, match=f"(?s)^Tensor 'w': .*{message}")
    with little_memory(), refused as caught:
        decode(wrong, None)
    assert "\n" not in str(caught.value)


def test_a_hostile_name_stays_short_and_on_one_line() -> None:
    with pytest.raises(InvalidModel) as caught:
        decode(tensor(name="line\n" * 1000), None)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    with pytest.raises(InvalidModel, match="A tensor without a name"):
        decode(tensor(name=""), None)
    with pytest.raises(InvalidModel, match=r"\\xff"):
        decode(TensorProto.FromString(b"\x42\x02\xff\xfe"), None)


# -- sparse ----------------------------------------------------------------------------------------


def sparse(
    values: Any, indices: Any, dims: tuple[int, ...], index_type: Any = np.int64
) -> onnx.SparseTensorProto:
    stored = numpy_helper.from_array(np.asarray(values), "w")
    places = numpy_helper.from_array(np.asarray(indices, index_type), "i")
    return onnx.SparseTensorProto(values=stored, indices=places, dims=dims)


@given(st.lists(st.integers(0, 4), max_size=5).map(tuple), st.data())
@settings(deadline=None, max_examples=25)
def test_both_layouts_of_any_rank(shape: tuple[int, ...], data: st.DataObject) -> None:
    size = math.prod(shape)
    places = sorted(data.draw(st.sets(st.integers(0, size - 1)))) if size else []
    values = np.arange(1, len(places) + 1, dtype=np.float32)
    expected = np.zeros(size, np.float32)
    expected[places] = values
    for indices in (places, np.argwhere(expected.reshape(shape))):
        dense = decode_sparse(sparse(values, indices, shape), None)
        assert_same(dense, expected.reshape(shape))
        assert not dense.flags.writeable


@pytest.mark.parametrize("name", NUMERIC)
def test_every_type_may_be_sparse(name: str) -> None:
    values = some_values(name, (3,))
    expected = np.zeros(8, values.dtype)
    expected[[1, 4, 6]] = values
    assert_same(decode_sparse(sparse(values, [1, 4, 6], (2, 4)), None), expected.reshape(2, 4))


def test_sparse_strings_are_empty_where_nothing_is_said() -> None:
    stored = helper.make_tensor("w", TensorProto.STRING, (1,), [b"x"])
    places = numpy_helper.from_array(np.array([2]))
    words = onnx.SparseTensorProto(values=stored, indices=places, dims=[3])
    assert decode_sparse(words, None).tolist() == ["", "", "x"]


def test_no_values_need_no_indices() -> None:
    nothing = numpy_helper.from_array(np.zeros(0, np.float32), "w")
    empty = onnx.SparseTensorProto(values=nothing, dims=[2, 2])
    assert_same(decode_sparse(empty, None), np.zeros((2, 2), np.float32))


ONE, TWO = np.ones(1, np.float32), np.ones(2, np.float32)
REFUSED_SPARSE = {
    "past the end": (sparse(TWO, [0, 6], (2, 3)), "outside"),
    "negative": (sparse(TWO, [-1, 2], (2, 3)), "outside"),
    "coordinate past its axis": (sparse(ONE, [[0, 3]], (2, 3)), "outside"),
    "coordinates that would wrap": (sparse(ONE, [[2**62, 2**62]], (2, 3)), "outside"),
    "in no place at all": (sparse(ONE, [0], (2, 0)), "outside"),
    "unsorted": (sparse(TWO, [3, 1], (2, 3)), "ascend"),
    "unsorted coordinates": (sparse(TWO, [[1, 0], [0, 2]], (2, 3)), "ascend"),
    "doubled": (sparse(TWO, [3, 3], (2, 3)), "ascend"),
    "too few coordinates": (sparse(ONE, [[1]], (2, 3)), r"\(1, 2\), not int64 of shape \(1, 1\)"),
    "too many axes": (sparse(ONE, [[[1, 1]]], (2, 3)), "shape"),
    "too few indices": (sparse(TWO, [1], (2, 3)), "its 2 sparse values"),
    "int32 indices": (sparse(ONE, [1], (2, 3), np.int32), "int64 indices.*not int32"),
    "two axes of values": (sparse(np.ones((1, 1), np.float32), [1], (2, 3)), "one axis"),
    "negative shape": (sparse(ONE, [1], (2, -3)), "negative"),
    "overflowing shape": (sparse(ONE, [1], (2**62, 2**62)), "address"),
    "no indices": (onnx.SparseTensorProto(values=numpy_helper.from_array(ONE, "w")), "UNDEFINED"),
}


@pytest.mark.parametrize("case", REFUSED_SPARSE)
def test_a_sparse_tensor_that_contradicts_itself_is_refused(case: str) -> None:
    wrong, message = REFUSED_SPARSE[case]
    with pytest.raises(InvalidModel, match=message):
        decode_sparse(wrong, None)


def test_a_sparse_bomb_is_not_unpacked() -> None:
    with little_memory(), pytest.raises(LimitExceeded, match="2,147,483,652 bytes"):
        decode_sparse(sparse(ONE, [1], (2**29 + 1,)), None)

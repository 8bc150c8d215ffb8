"""Large weights inside a model file: not copied by protobuf, and read when programs need them."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

import sardonyx
from sardonyx.backends.mapped_files import mapping_of
from sardonyx.errors import InvalidModel
from sardonyx.graph.loading import inline_weights, read
from sardonyx.graph.loading.inline_weights import SMALLEST, cut_out
from sardonyx.graph.standard.types import ELEMENT_TYPES
from sardonyx.graph.values.mmap import CAN_READ_AT, ModelFile, content
from tests.support.onnx_builders import model, node, value
from tests.support.raises import refused

MODELS = sorted((Path(__file__).parent / "models").glob("*.onnx"))
COUNT = SMALLEST // 4 + 24

reads_at = pytest.mark.skipif(not CAN_READ_AT, reason="files are read whole here")


def summing(weights: list[TensorProto]) -> onnx.ModelProto:
    """A model that adds float weights to its input."""
    nodes = [node("Add", [f"x{i}", w.name], [f"x{i + 1}"]) for i, w in enumerate(weights)]
    return model(nodes, [value("x0", ["n"])], [f"x{len(weights)}"], weights)


@pytest.fixture
def weights() -> list[TensorProto]:
    """Tensors at all addresses modulo 16, because their names differ in length."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, COUNT).astype(np.float32) for _ in range(16)]
    return [numpy_helper.from_array(array, "w" * (i + 1)) for i, array in enumerate(arrays)]


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are mapped."""
    monkeypatch.setattr(read, "SMALLEST_MAP", 1)


# -- what is cut out ------------------------------------------------------------------------------


def parsed(data: bytes | bytearray) -> onnx.ModelProto | None:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return None
    return proto


def restored(content: Any, smallest: int) -> tuple[onnx.ModelProto | None, int]:
    """The model with its weights put back, and how many there were."""
    rest, inline = cut_out(content, smallest)
    proto, count = parsed(rest), 0
    for tensor in proto.graph.initializer if proto else ():
        data = inline.data(tensor.raw_data)
        if data is not None:
            tensor.raw_data = data.tobytes()
            count += 1
    return proto, count


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_damaged_files_are_parsed_to_the_same_models(path: Path) -> None:
    rng = np.random.default_rng(1)
    original = path.read_bytes()
    found = 0
    for round_ in range(30):
        damaged = bytearray(original)
        for place in rng.integers(0, len(original), round_):
            damaged[place] = rng.choice([0, 1, 0x80, 0xFF, rng.integers(256)])
        if round_ % 3 == 2:
            del damaged[rng.integers(len(original)) :]
        proto, count = restored(damaged, 8)
        assert proto == parsed(damaged)
        found += count
    assert found or not any(len(t.raw_data) >= 8 for t in parsed(original).graph.initializer)


@reads_at
@pytest.mark.parametrize("window", [24, 64, 2**14])
def test_files_are_parsed_alike_in_windows_of_any_size(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_weights, "_WINDOW", window)
    rng = np.random.default_rng(2)
    for path in MODELS:
        damaged = bytearray(path.read_bytes())
        for place in rng.integers(0, len(damaged), rng.integers(3)):
            damaged[place] = rng.integers(256)
        copy = tmp_path / path.name
        copy.write_bytes(damaged)
        with copy.open("rb") as file:
            proto, count = restored(ModelFile(file.fileno(), copy), 8)
        assert proto == parsed(damaged)
        assert count == restored(damaged, 8)[1]


def test_data_that_comes_twice_counts_once() -> None:
    first, second = (TensorProto(raw_data=bytes([i]) * 20) for i in (1, 2))
    tensor = b"".join(each.SerializeToString() for each in (first, second))
    graph = onnx.GraphProto(name="g").SerializeToString() + b"\x2a" + bytes([len(tensor)]) + tensor
    whole = b"\x3a" + bytes([len(graph)]) + graph
    proto, count = restored(whole * 2, 8)
    assert proto == parsed(whole * 2)
    assert count == 2


@pytest.mark.parametrize(
    "header",
    [
        b"\xba\x00\x1a",  # A tag in more bytes than it needs.
        b"\x3a\x9a\x80\x80\x80\x00",  # The same for a length.
        b"\x3a\x9a\x80\x80\x80\x80\x00",
        b"\x3a\x9a\x80\x80\x80\x80\x80\x80\x80\x80\x80",
        b"\x3b",  # A group.
        b"\x3a\xff\xff\xff\xff\x0f",
    ],
)
def test_unusual_bytes_are_left_to_protobuf(header: bytes) -> None:
    tensor = TensorProto(raw_data=bytes(20), name="w").SerializeToString()
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    assert len(graph) == 27
    for whole in (header.replace(b"\x9a", b"\x9b").replace(b"\x1a", b"\x1b") + graph, header):
        assert restored(whole, 8)[0] == parsed(whole)


def test_what_looks_like_a_mark_is_none(weights: list[TensorProto]) -> None:
    whole = summing(weights).SerializeToString()
    rest, _ = cut_out(whole)
    again, inline = cut_out(rest, 8)
    proto = parsed(again)
    assert proto is not None
    marks = [inline.data(tensor.raw_data) for tensor in proto.graph.initializer]
    assert [None if mark is None else mark.size for mark in marks] == [24] * len(weights)


# -- where they are -------------------------------------------------------------------------------


def sources(proto: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    path = folder / "model.onnx"
    whole = proto.SerializeToString()
    path.write_bytes(whole)
    stream = io.BytesIO(whole)
    return {"path": path, "bytes": whole, "array": bytearray(whole), "stream": stream}


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_results_are_the_same_from_any_source(
    backend: str, weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    proto = summing(weights)
    x = np.arange(COUNT, dtype=np.float32)
    expected = x + sum(numpy_helper.to_array(weight) for weight in weights)
    for source in sources(proto, tmp_path).values():
        loaded = sardonyx.load(source, backend=backend)
        np.testing.assert_array_equal(loaded(x), expected)
        for weight in weights:
            host = loaded.params.host(weight.name)
            np.testing.assert_array_equal(host, numpy_helper.to_array(weight))
            assert host.flags.aligned
            assert not host.flags.writeable


def test_a_model_of_a_mapped_file_is_pickled_with_its_weights(
    weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    path = sources(summing(weights), tmp_path)["path"]
    pickled = pickle.dumps(sardonyx.load(path, backend="numpy"))
    path.unlink()
    expected = sum(numpy_helper.to_array(weight) for weight in weights)
    np.testing.assert_array_equal(pickle.loads(pickled)(np.zeros(COUNT, np.float32)), expected)


# Strings are never raw data.
RAW_TYPES = [kind for kind in ELEMENT_TYPES.values() if kind.name != "string"]


@pytest.mark.parametrize("kind", RAW_TYPES, ids=lambda kind: kind.name)
def test_every_type_is_decoded_as_from_a_proto(kind: Any, tmp_path: Path, mapped: None) -> None:
    count = SMALLEST * 8 // kind.bits + 3
    size = -(-count * kind.bits // 8)
    raw = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    raw = raw & 1 if kind.name == "bool" else raw
    tensor = TensorProto(name="w", data_type=kind.number, dims=[count], raw_data=raw.tobytes())
    info = value("y", [count], kind.number)
    proto = model([node("Identity", ["w"], ["y"])], [], [info], [tensor], opset=25)
    proto.ir_version = onnx.IR_VERSION
    expected = sardonyx.load(proto, backend="numpy", strict=False).params.host("w")
    for source in sources(proto, tmp_path).values():
        host = sardonyx.load(source, backend="numpy", strict=False).params.host("w")
        assert host.dtype == expected.dtype
        assert host.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.dims.append(2), ["raw_data holds", "needs"]),
        (lambda w: w.float_data.append(1), ["both in raw_data and in float_data"]),
        (lambda w: setattr(w, "data_type", TensorProto.STRING), ["string_data"]),
        (lambda w: setattr(w, "data_location", TensorProto.EXTERNAL), ["both inside and outside"]),
        (lambda w: setattr(w, "data_type", 99), ["'w'"]),
    ],
)
def test_tensors_that_contradict_themselves(
    change: Callable[[TensorProto], Any], words: list[str], weights: list[TensorProto]
) -> None:
    change(weights[0])
    whole = summing(weights).SerializeToString()
    messages = []
    for source in (whole, onnx.ModelProto.FromString(whole)):
        with refused(InvalidModel, "'w'", *words):
            try:
                sardonyx.load(source, backend="numpy")
            except InvalidModel as error:
                messages.append(str(error))
                raise
    assert len(set(messages)) == 1


def test_bytes_are_not_copied(weights: list[TensorProto]) -> None:
    whole = summing(weights).SerializeToString()
    loaded = sardonyx.load(whole, backend="numpy")
    array = loaded._source.graph.initializers["w"]
    assert np.shares_memory(np.frombuffer(whole, np.uint8), array)


# -- files that change ----------------------------------------------------------------------------


def overwritten(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))


def shortened(path: Path) -> None:
    os.truncate(path, 0)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


@reads_at
@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("change", [overwritten, shortened, grown])
def test_a_file_that_is_written_to_is_noticed(
    change: Callable[[Path], None],
    backend: str,
    weights: list[TensorProto],
    tmp_path: Path,
    mapped: None,
) -> None:
    path = sources(summing(weights), tmp_path)["path"]
    loaded = sardonyx.load(path, backend=backend)
    change(path)
    with refused(InvalidModel, str(path), "overwritten", "load it again"):
        loaded(np.zeros(COUNT, np.float32))
    with refused(InvalidModel, "overwritten"):
        loaded.params.host("w")


def gathered(array: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A model whose indices are a weight: that they are in range is checked while it is traced."""
    index = numpy_helper.from_array((np.abs(array) * 0).astype(np.int64), "w")
    return model([node("Gather", ["x", "w"], ["y"])], [value("x", ["n"])], ["y"], [index])


def selected(array: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A model with a step on the host, whose result has a size that depends on data."""
    nodes = [
        node("Cast", ["x"], ["keep"], to=TensorProto.BOOL),
        node("Compress", ["w", "keep"], ["y"]),
    ]
    weight = numpy_helper.from_array(array, "w")
    return model(nodes, [value("x", ["n"])], ["y"], [weight])


def scaled(array: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A model with a weight that is computed ahead of all calls."""
    nodes = [node("Neg", ["w"], ["m"]), node("Mul", ["x", "m"], ["y"])]
    weight = numpy_helper.from_array(array, "w")
    return model(nodes, [value("x", ["n"])], ["y"], [weight])


@reads_at
@pytest.mark.parametrize("built", [gathered, selected, scaled])
def test_every_reader_notices(
    built: Callable[..., onnx.ModelProto], weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    array = numpy_helper.to_array(weights[0])
    path = sources(built(array), tmp_path)["path"]
    loaded, late = (sardonyx.load(path, backend="jax") for _ in range(2))
    x = np.ones(COUNT, np.float32)
    (y,) = sardonyx.load(built(array), backend="numpy").run(None, {"x": x})
    for _ in range(2):  # The first call is traced, the second one is replayed.
        np.testing.assert_array_equal(loaded(x), y)
    shortened(path)
    np.testing.assert_array_equal(loaded(x), y)
    with refused(InvalidModel, "overwritten"):
        late(x)


@reads_at
def test_shards_and_exports_notice(
    weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    proto = summing(weights)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = COUNT
    path = sources(proto, tmp_path)["path"]
    exported = sardonyx.export(path)
    fn, _ = sardonyx.to_jax(path)
    shortened(path)
    with refused(InvalidModel, "overwritten"):
        exported.save(tmp_path / "exported")
    assert set(fn.weights) == {weight.name for weight in weights}
    mapping = mapping_of(fn.weights["w"])
    assert isinstance(mapping, ModelFile)
    with refused(InvalidModel, "overwritten"):
        content(fn.weights["w"][::2])


@reads_at
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.with_name("new").replace(path)])
def test_a_file_that_was_deleted_or_replaced_is_still_read(
    change: Callable[[Path], Any], weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    path = sources(summing(weights), tmp_path)["path"]
    (tmp_path / "new").write_bytes(bytes(path.stat().st_size))
    loaded = sardonyx.load(path, backend="numpy")
    change(path)
    expected = sum(numpy_helper.to_array(weight) for weight in weights)
    np.testing.assert_array_equal(loaded(np.zeros(COUNT, np.float32)), expected)


def test_a_small_file_can_be_overwritten(weights: list[TensorProto], tmp_path: Path) -> None:
    path = sources(summing(weights), tmp_path)["path"]
    loaded = sardonyx.load(path, backend="numpy")
    shortened(path)
    assert loaded(np.zeros(COUNT, np.float32)).any()


@reads_at
def test_a_map_lets_go_of_its_file(
    weights: list[TensorProto], tmp_path: Path, mapped: None
) -> None:
    path = sources(summing(weights), tmp_path)["path"]
    array = sardonyx.load(path, backend="numpy")._source.graph.initializers["w"]
    mapping = mapping_of(array)
    assert isinstance(mapping, ModelFile)
    handle = mapping._handle
    assert content(array).tobytes() == array.tobytes()
    del array, mapping
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(handle)


@reads_at
def test_a_system_without_maps_reads_the_file(
    weights: list[TensorProto], tmp_path: Path, mapped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any) -> Any:
        raise OSError(19, "No such device")

    path = sources(summing(weights), tmp_path)["path"]
    monkeypatch.setattr(read, "ModelFile", failing)
    array = sardonyx.load(path, backend="numpy")._source.graph.initializers["w"]
    assert mapping_of(array) is None

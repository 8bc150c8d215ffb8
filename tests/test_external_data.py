"""Weights in files beside the model are mapped, and nothing outside of its folder is reached."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import sardonyx
from sardonyx.errors import InvalidModel
from sardonyx.graph.loading import external
from sardonyx.graph.loading.tensors import decode, decode_sparse
from sardonyx.graph.standard.types import ELEMENT_TYPES
from tests.support.onnx_builders import model, node

LARGE = 2 * external._SMALLEST_MAP
by_handle = pytest.mark.skipif(not external._BY_HANDLE, reason="Windows opens by path alone")


@pytest.fixture(
    params=[
        pytest.param(True, id="by handle", marks=by_handle),
        pytest.param(False, id="by path"),
    ]
)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, looked into in either of two ways, with a secret beside it."""
    monkeypatch.setattr(external, "_BY_HANDLE", request.param)
    (tmp_path / "secret.bin").write_bytes(bytes(LARGE))
    model = tmp_path / "model"
    (model / "weights").mkdir(parents=True)
    (model / "w.bin").write_bytes(bytes(range(256)))
    (model / "weights" / "deep.bin").write_bytes(bytes(range(256)))
    return model


def outside(
    location: str | None = "w.bin",
    shape: tuple[int, ...] = (4,),
    number: int = TensorProto.UINT8,
    **entries: Any,
) -> TensorProto:
    tensor = TensorProto(name="w", data_type=number, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def root(array: np.ndarray[Any, Any]) -> Any:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


@pytest.mark.parametrize("location", ["w.bin", "./w.bin", "weights/deep.bin", "weights//deep.bin"])
def test_a_tensor_is_read_from_its_place(folder: Path, location: str) -> None:
    assert decode(outside(location, offset=7, length=4), folder).tolist() == [7, 8, 9, 10]
    assert decode(outside(location), folder).tolist() == [0, 1, 2, 3]
    assert decode(outside(location, (2, 2), offset=252), folder).tolist() == [
        [252, 253],
        [254, 255],
    ]


@pytest.mark.parametrize("kind", [k for k in ELEMENT_TYPES.values() if k.name != "string"], ids=str)
def test_every_type_is_the_same_outside_as_inside(folder: Path, kind: Any) -> None:
    data = bytes([0, 1] * 24)
    shape = (len(data) * 8 // kind.bits,)
    (folder / "kind.bin").write_bytes(b"\xff" + data)
    inside = TensorProto(data_type=kind.number, dims=shape, raw_data=data)
    array = decode(outside("kind.bin", shape, kind.number, offset=1, length=len(data)), folder)
    assert array.tobytes() == decode(inside, None).tobytes()
    assert not array.flags.writeable
    assert array.flags.aligned


def test_large_files_are_mapped_once_and_let_go(folder: Path) -> None:
    (folder / "large.bin").write_bytes(bytes(LARGE))
    array = decode(outside("large.bin", (16,), offset=LARGE - 16), folder)
    other = decode(outside("large.bin", (8,), TensorProto.FLOAT), folder)
    assert root(array) is root(other)
    assert array.flags.owndata is False
    before = len(external._maps)
    del array, other
    assert len(external._maps) == before - 1


@by_handle
def test_300_tensors_take_milliseconds_and_few_descriptors(tmp_path: Path) -> None:
    each = 500_000_000 // 300 // 4
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(300 * each * 4)
    tensors = [
        outside("w.bin", (each,), TensorProto.FLOAT, offset=i * each * 4, length=each * 4)
        for i in range(300)
    ]
    start = time.process_time()
    arrays = [decode(tensor, tmp_path) for tensor in tensors]
    assert time.process_time() - start < 0.5
    assert len({id(root(array)) for array in arrays}) == 1


def test_what_onnx_saves_is_loaded(folder: Path) -> None:
    weight = numpy_helper.from_array(np.arange(5000, dtype=np.float64), "w")
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    info = onnx.helper.make_tensor_value_info("y", TensorProto.DOUBLE, [5000])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [info], [weight]))
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.data")
    saved = onnx.load(folder / "m.onnx", load_external_data=False).graph.initializer[0]
    np.testing.assert_array_equal(decode(saved, folder), np.arange(5000))


def test_an_empty_tensor_maps_nothing(folder: Path) -> None:
    (folder / "empty.bin").touch()
    assert decode(outside("empty.bin", (0, 3)), folder).shape == (0, 3)
    assert decode(outside("w.bin", (0,), offset=256, length=0), folder).shape == (0,)


def test_values_of_a_sparse_tensor_may_be_outside(folder: Path) -> None:
    indices = numpy_helper.from_array(np.array([1, 3]))
    sparse = onnx.SparseTensorProto(
        values=outside(shape=(2,), offset=8), indices=indices, dims=[2, 2]
    )
    assert decode_sparse(sparse, folder).tolist() == [[0, 8], [0, 9]]


ESCAPES = [
    "../secret.bin",
    "weights/../../secret.bin",
    "weights/../w.bin",
    "..",
    "/etc/passwd",
    "//server/share",
    "..\\secret.bin",
    "weights\\deep.bin",
    "C:secret.bin",
    "c:/secret.bin",
    "w.bin\0.txt",
    ".",
    "./",
]


@pytest.mark.parametrize("location", ESCAPES)
def test_a_location_outside_of_the_folder_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(InvalidModel, match=r"^Tensor 'w': .*own folder or below") as caught:
        decode(outside(location), folder)
    assert "\0" not in str(caught.value)


def test_links_are_refused(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "inward.bin").symlink_to("w.bin")
    (folder / "dangling.bin").symlink_to("nowhere")
    (folder / "folder").symlink_to(folder / "weights")
    (folder / "weights" / "up").symlink_to(folder.parent)
    for location in (
        "link.bin",
        "inward.bin",
        "dangling.bin",
        "folder/deep.bin",
        "weights/up/secret.bin",
    ):
        with pytest.raises(InvalidModel, match=r"symbolic link.*put a copy"):
            decode(outside(location), folder)


def test_a_hard_link_is_refused(folder: Path) -> None:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    with pytest.raises(InvalidModel, match="2 names"):
        decode(outside("hard.bin"), folder)


def test_what_is_no_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    for location in ("fifo", "weights", "w.bin/w.bin"):
        with pytest.raises(InvalidModel, match=r"not a regular file|not a file"):
            decode(outside(location), folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(InvalidModel, match=r"^Tensor 'w': its data file 'gone/w.bin' is not in '/"):
        decode(outside("gone/w.bin"), folder)
    with pytest.raises(InvalidModel, match="too long"):
        decode(outside("x" * 5000), folder)


def test_the_folder_itself_may_be_behind_a_link(folder: Path) -> None:
    (folder.parent / "alias").symlink_to(folder)
    assert decode(outside(), folder.parent / "alias").tolist() == [0, 1, 2, 3]


def test_a_file_that_became_a_link_after_the_look_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened is examined, not what was seen before."""
    true_open = os.open

    def exchange(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("w.bin"):
            (folder / "w.bin").unlink(missing_ok=True)
            os.link(folder.parent / "secret.bin", folder / "w.bin")
        return true_open(path, *args, **options)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(InvalidModel, match="2 names"):
        decode(outside(), folder)


def test_a_model_without_a_path_has_no_folder() -> None:
    with pytest.raises(InvalidModel, match="load the model from its path"):
        decode(outside(), None)


WRONG_NUMBERS = [
    "-1",
    "1_0",
    " 1",
    "1 ",
    "+1",
    "0x10",
    "1e3",
    "",
    "ten",
    "٣",
    str(2**63),
    "9" * 5000,
]


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("text", WRONG_NUMBERS)
def test_what_is_no_number_is_refused(folder: Path, key: str, text: str) -> None:
    with pytest.raises(InvalidModel, match=f"the {key} of its external data") as caught:
        decode(outside(**{key: text}), folder)
    assert len(str(caught.value)) < 500


REFUSED = {
    "past the end": (outside(offset=253), "4 bytes at offset 253 of 'w.bin', which has only 256"),
    "far past the end": (outside(offset=2**63 - 1), "which has only 256"),
    "longer than the file": (outside(shape=(257,)), "which has only 256"),
    "length of another shape": (outside(length=5), "is 5 bytes.*need 4"),
    "shape of another length": (outside(shape=(2**40,), length=4), "is 4 bytes"),
    "packed, one byte too many": (
        outside(shape=(5,), number=TensorProto.INT4, length=4),
        "need 3",
    ),
    "negative shape": (outside(shape=(-4,)), "negative"),
    "strings": (outside(number=TensorProto.STRING), "strings cannot"),
    "no location": (outside(None, offset=0), "no file name"),
    "an empty location": (outside(""), "no file name"),
    "a key that would set a field": (outside(__class__="x"), "the key '__class__'"),
    "an unknown key": (outside(basepath="/"), "the key 'basepath'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_external_data_that_contradicts_itself_is_refused(folder: Path, case: str) -> None:
    tensor, message = REFUSED[case]
    with pytest.raises(InvalidModel, match=f"^Tensor 'w': .*{message}"):
        decode(tensor, folder)


def test_a_doubled_key_is_refused(folder: Path) -> None:
    tensor = outside()
    tensor.external_data.add(key="location", value="weights/deep.bin")
    with pytest.raises(InvalidModel, match="two locations"):
        decode(tensor, folder)


def test_invalid_utf8_is_refused(folder: Path) -> None:
    entry = onnx.StringStringEntryProto.FromString(b"\x0a\x08location\x12\x02\xff\xfe")
    tensor = outside(None)
    tensor.external_data.append(entry)
    with pytest.raises(InvalidModel, match="UTF-8"):
        decode(tensor, folder)


def test_a_checksum_is_accepted(folder: Path) -> None:
    assert decode(outside(checksum="0" * 40), folder).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_unaligned_weights_are_copied_when_they_are_needed(backend: str, folder: Path) -> None:
    stored = np.arange(LARGE, dtype=np.float32)
    (folder / "w.data").write_bytes(b"\xff" + stored.tobytes())
    tensor = outside("w.data", stored.shape, TensorProto.FLOAT, offset=1)
    tensor.name = "w"
    proto = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [tensor])
    onnx.save(proto, folder / "m.onnx")
    loaded = sardonyx.load(folder / "m.onnx", backend=backend)
    assert not loaded._source.graph.initializers["w"].flags.aligned
    np.testing.assert_array_equal(loaded(np.ones(1, np.float32)), stored + 1)
    assert loaded.params.host("w").flags.aligned

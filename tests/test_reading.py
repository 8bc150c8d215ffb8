"""Where a model is read from: whose name is believed, and how much is read of what has no end."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import random
import socket
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded
from tests.support.onnx_builders import model, node
from tests.support.raises import refused

SECRET = b"do not read!"


def load(source: Any) -> sardonyx.Model:
    return sardonyx.load(source, backend="numpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a secret, and with a model whose only tensor is that secret."""
    (tmp_path / "secret").write_bytes(SECRET)
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[len(SECRET)])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    stealing = model(
        [node("Identity", ["w"], ["y"])], [], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    (tmp_path / "model.onnx").write_bytes(stealing.SerializeToString())
    return tmp_path


def stolen(source: Any) -> bytes:
    return bytes(np.asarray(load(source)()))


# -- names ----------------------------------------------------------------------------------------


class Named(io.BytesIO):
    """An upload, which has the name that its sender gave it."""

    name: Any = None


class Borrowed(Named):
    """One that is also open, as another file."""

    handle: Any = 0

    def fileno(self) -> Any:
        return self.handle


def test_a_file_that_is_open_under_its_name_has_a_folder(folder: Path) -> None:
    with (folder / "model.onnx").open("rb") as file:
        assert stolen(file) == SECRET
    with open(os.fsencode(folder / "model.onnx"), "rb", buffering=0) as file:
        assert stolen(file) == SECRET


@pytest.mark.parametrize("name", ["upload.onnx", "model.onnx", "secret"])
def test_the_name_of_an_upload_is_no_folder(folder: Path, name: str) -> None:
    upload = Named((folder / "model.onnx").read_bytes())
    upload.name = str(folder / name)
    with refused(InvalidModel, "'w'", "'secret'", "from its path"):
        load(upload)


@pytest.mark.parametrize("handle", [-1, 10**30, None, "0", 1.5])
def test_an_upload_with_a_handle_that_is_none(folder: Path, handle: Any) -> None:
    upload = Borrowed((folder / "model.onnx").read_bytes())
    upload.name, upload.handle = str(folder / "model.onnx"), handle
    with refused(InvalidModel, "'w'", "from its path"):
        load(upload)


def test_an_upload_that_is_another_open_file(folder: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "upload"
    elsewhere.write_bytes((folder / "model.onnx").read_bytes())
    with elsewhere.open("rb") as file:
        upload = Borrowed(file.read())
        upload.name, upload.handle = str(folder / "model.onnx"), file.fileno()
        with refused(InvalidModel, "'w'", "from its path"):
            load(upload)


def test_a_number_is_no_name(folder: Path) -> None:
    handle = os.open(folder / "model.onnx", os.O_RDONLY)
    with os.fdopen(handle, "rb") as file, refused(InvalidModel, "'w'", "from its path"):
        load(file)


def test_a_relative_name_after_the_folder_has_changed(
    folder: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with open("model.onnx", "rb") as file:
        other = tmp_path_factory.mktemp("other")
        (other / "secret").write_bytes(b"another text")
        (other / "model.onnx").write_bytes(b"")
        monkeypatch.chdir(other)
        with refused(InvalidModel, "'w'", "from its path"):
            load(file)


def test_a_spooled_file_has_no_folder_and_stays_in_memory(folder: Path) -> None:
    with tempfile.SpooledTemporaryFile(max_size=2**20) as file:
        file.write((folder / "model.onnx").read_bytes())
        file.seek(0)
        with refused(InvalidModel, "'w'", "from its path"):
            load(file)
        assert isinstance(file._file, io.BytesIO)


def test_a_member_of_an_archive_has_no_folder(folder: Path, tmp_path: Path) -> None:
    inside = str(folder / "model.onnx")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(inside, inside)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, archive.open(inside[1:]) as member:
        assert member.name.endswith("model.onnx")
        with refused(InvalidModel, "'w'", "from its path"):
            load(member)


def test_what_is_compressed_is_read(folder: Path, tmp_path: Path) -> None:
    content = model([node("Relu", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    (tmp_path / "model.gz").write_bytes(gzip.compress(content))
    with gzip.open(tmp_path / "model.gz") as file:
        assert load(file)(np.array([-1, 2], np.float32)).tolist() == [0, 2]


def test_a_map_of_a_file_has_no_folder(folder: Path) -> None:
    with (
        (folder / "model.onnx").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        refused(InvalidModel, "'w'", "from its path"),
    ):
        load(mapped)


# -- without an end -------------------------------------------------------------------------------

MEGABYTE = 2**20


@contextmanager
def little_memory(most: int = 64 * MEGABYTE) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


class Reader:
    """A stream that reads by a function."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read


ENDLESS = {
    "zeros": bytes,
    "letters": lambda size: b"x" * size,
    "noise": random.Random(1).randbytes,
    "bytes": lambda _: b"\0",
    "more than asked": lambda _: bytes(32 * MEGABYTE),
    "arrays": bytearray,
    # A graph of 2**35 bytes.
    "a huge graph": lambda _: b"\x3a" + b"\x80\x80\x80\x80\x80\x01" + bytes(MEGABYTE),
    "empty functions": lambda size: b"\xca\x01\x00\xca\x01\x00",
    "lengths without end": lambda size: b"\xff" * size,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_stream_without_an_end_is_refused(kind: str) -> None:
    with little_memory(128 * MEGABYTE), pytest.raises((InvalidModel, LimitExceeded)) as caught:
        load(Reader(ENDLESS[kind]))
    assert "the file object" in str(caught.value)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/full"])
def test_a_device_is_refused(device: str) -> None:
    with refused(InvalidModel, "not a regular file", seconds=0.5):
        load(device)
    # One in some hundred random heads announces a graph of any size, or one that is too large.
    is_random = device == "/dev/urandom"
    kinds, memory = (InvalidModel, LimitExceeded), nullcontext() if is_random else little_memory()
    with open(device, "rb") as file, memory, refused(kinds, seconds=20 if is_random else 2):
        load(file)


def test_what_compresses_well_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "zeros.gz", "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(MEGABYTE))
    with (
        gzip.open(tmp_path / "zeros.gz") as file,
        little_memory(),
        refused(InvalidModel, "no field", seconds=2),
    ):
        load(file)


def test_bytes_are_measured_before_they_are_copied(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("w+b") as file:
        file.truncate(2**33)
        with mmap.mmap(file.fileno(), 2**33, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            with little_memory(), refused(LimitExceeded, "8,589,934,592", seconds=0.5):
                load(view)
            wide = view.cast("d")
            with little_memory(), refused(LimitExceeded, "8,589,934,592", seconds=0.5):
                load(wide)
            wide.release()
            view.release()


@pytest.mark.parametrize("path", ["/proc/self/mem", "/proc/self/environ", "/proc/self/maps"])
def test_files_of_the_kernel_are_no_models(path: str) -> None:
    if not os.path.exists(path):
        pytest.skip("This system has no /proc.")
    with refused(InvalidModel, path):
        load(path)


def test_a_socket_is_no_model(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with refused(InvalidModel, "cannot be opened"):
            load(tmp_path / "socket")


# -- readers that do otherwise --------------------------------------------------------------------


class TwoLinesError(Exception):
    def __str__(self) -> str:
        return "first line\nsecond line"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ZeroDivisionError("by nothing"), ["by nothing"]),
        (OSError(5, "Input/output error"), ["Input/output"]),
        (MemoryError(), ["MemoryError"]),
        (TwoLinesError(), ["first line"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reader_that_raises(fault: Exception, words: list[str]) -> None:
    def read(size: int) -> bytes:
        raise fault

    with refused(InvalidModel, "the file object", *words):
        load(Reader(read))


def test_an_interruption_passes() -> None:
    def read(size: int) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(Reader(read))


@pytest.mark.parametrize("told", ["text", 5, [b"x"]], ids=str)
def test_a_reader_of_anything_but_bytes(told: Any) -> None:
    with refused(InvalidInput, "binary mode", type(told).__name__):
        load(Reader(lambda _: told))


def test_a_reader_without_data_yet() -> None:
    with refused(InvalidModel, "None", "blocking"):
        load(Reader(lambda _: None))


def test_a_reader_that_takes_no_size() -> None:
    with refused(InvalidModel, "argument"):
        load(Reader(lambda: b""))


def test_a_seekable_reader_that_raises() -> None:
    class Broken(io.BytesIO):
        def seekable(self) -> bool:
            raise ArithmeticError("no answer")

    relu = model([node("Relu", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    assert load(Broken(relu))(np.array([-1], np.float32)).tolist() == [0]


@pytest.mark.parametrize("size", [1, 7, 1000, 10**7])
def test_a_model_may_come_in_pieces_of_any_size(size: int) -> None:
    noise = np.random.default_rng(0).random(300_000).astype(np.float32)
    tensor = onnx.numpy_helper.from_array(noise, "w")
    large = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [tensor])
    content = large.SerializeToString()
    if size < 1000:
        content = model([node("Relu", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    stream = io.BytesIO(content)
    loaded = load(Reader(lambda _: stream.read(size)))
    assert loaded(np.zeros(1, np.float32)).size == (1 if size < 1000 else noise.size)


def test_a_large_model_that_is_damaged_at_its_end() -> None:
    tensor = onnx.numpy_helper.from_array(np.ones(10**6, np.float32), "w")
    content = model([node("Relu", ["w"], ["y"])], [], ["y"], [tensor]).SerializeToString()
    with refused(InvalidModel, "the file object"):
        load(io.BytesIO(content[:-100]))
    with refused(InvalidModel, "the file object"):
        load(io.BytesIO(content + bytes(100)))

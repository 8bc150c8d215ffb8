"""Files that are no models, or lie where they should not: refused at load, soon and clearly."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import (
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    MissingFile,
    UnsupportedModel,
)
from sardonyx.graph.loading.wire import check_parsed, check_wire
from tests.support.onnx_builders import BOOL, changed, function, graph, model, node, value, weight
from tests.support.raises import refused

X = np.ones((2, 3), np.float32)
RELU = model([node("Relu", ["x"], ["y"], name="relu")], ["x"], ["y"])


def load(source: Any) -> sardonyx.Model:
    return sardonyx.load(source, backend="numpy")


# -- bytes ----------------------------------------------------------------------------------------

TEXTUAL = model(
    [
        node("Relu", ["the_input"], ["the_inner"], name="the_node"),
        node("Add", ["the_inner", "the_weight"], ["the_sum"]),
        node("the_function", ["the_sum"], ["the_output"], domain="mine", the_attribute=1),
    ],
    [value("the_input", ["the_size", 3])],
    ["the_output"],
    [weight("the_weight", np.ones(3, np.float32))],
    functions=[
        function("the_function", [node("Relu", ["a"], ["b"])], ["a"], ["b"], ["the_attribute"])
    ],
    mine=1,
)
TEXTUAL.producer_name = "the_producer"
TEXTUAL.doc_string = "the_text"
TEXTUAL.graph.name = "the_graph"
helper.set_model_props(TEXTUAL, {"the_key": "the_value"})
TEXTS = "input inner node sum function output attribute size weight producer text graph key value"


@pytest.mark.parametrize("text", TEXTS.split())
def test_no_string_may_be_other_than_utf8(text: str) -> None:
    load(TEXTUAL)
    damaged = TEXTUAL.SerializeToString().replace(
        f"the_{text}".encode(), b"\xff\xfe__" + text.encode()
    )
    with refused(InvalidModel, "UTF-8", f"__{text}"):
        load(damaged)


def test_an_attributes_text_must_be_utf8() -> None:
    bad = node("Constant", [], ["y"], name="text", value_string=b"\xff")
    with refused(InvalidModel, "UTF-8", "value_string", "'text'"):
        load(model([bad], [], ["y"]))


@pytest.mark.parametrize(
    "message",
    [
        weight("w", np.ones(3, np.float32)),
        RELU.graph,
        RELU.graph.node[0],
        RELU.graph.input[0],
        helper.make_opsetid("", 18),
        onnx.ModelProto(ir_version=10),
    ],
    ids=lambda message: type(message).__name__,
)
def test_other_messages_are_no_models(message: Any) -> None:
    with refused(InvalidModel):
        load(message.SerializeToString())


@pytest.mark.parametrize("size", [1, 10, 1000, 100_000])
def test_random_bytes_are_no_model(size: int) -> None:
    with refused(InvalidModel, "bytes"):
        load(np.random.default_rng(size).bytes(size))


def test_a_file_cut_off_anywhere_is_no_model_or_a_whole_one() -> None:
    content = TEXTUAL.SerializeToString()
    refusals = 0
    for end in range(len(content)):
        try:
            load(content[:end])
        except (InvalidModel, UnsupportedModel):
            refusals += 1
    assert refusals > 0.9 * len(content)


def test_an_unknown_field_is_refused() -> None:
    content = RELU.SerializeToString()
    unknown = b"\xa2\x1f\x02hi"  # field 500, two bytes
    with refused(InvalidModel, "field 500", "Upgrade onnx"):
        load(content + unknown)
    inner = changed(RELU, lambda m: m.graph.node[0].MergeFromString(unknown))
    with refused(InvalidModel, "Node 'relu'", "field 500"):
        load(inner.SerializeToString())


def test_a_damaged_file_is_refused_as_the_message_in_it_is() -> None:
    """Files are checked by protobuf, messages by a walk: both find the same texts and fields."""
    content = TEXTUAL.SerializeToString()
    sound = unsound = 0
    for place in range(len(content)):
        for byte in (0xFF, 0xED, content[place] ^ 0x10):
            damaged = content[:place] + bytes([byte]) + content[place + 1 :]
            message = onnx.ModelProto()
            try:
                message.ParseFromString(damaged)
            except DecodeError:
                continue
            walked, parsed = fault_of(check_wire, message), fault_of(check_parsed, message, damaged)
            assert parsed == walked
            sound, unsound = sound + (walked == ""), unsound + (walked != "")
    assert sound > 100 < unsound


def fault_of(check: Callable[..., None], *arguments: Any) -> str:
    try:
        check(*arguments)
    except InvalidModel as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (b"", InvalidModel, ["empty"]),
        (bytearray(b"\0"), InvalidModel, ["1 bytes"]),
        (memoryview(b""), InvalidModel, ["empty"]),
        (io.BytesIO(), InvalidModel, ["empty"]),
        (io.StringIO("text"), InvalidInput, ["binary"]),
        (3, InvalidInput, ["int", "path"]),
        (None, InvalidInput, ["NoneType", "path"]),
        ("nowhere.onnx", MissingFile, ["no file 'nowhere.onnx'", "check the path"]),
        ("a\0b", InvalidModel, ["cannot be opened", "null"]),
        (os.devnull, InvalidModel, ["not a regular file"]),
        (onnx.ModelProto(), InvalidModel, ["no graph"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_file_is_refused(source: Any, error: Any, words: list[str]) -> None:
    with refused(error, *words):
        load(source)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    with refused(InvalidModel, "not a regular file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with refused(InvalidModel, "not a regular file"):
        load(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with refused(InvalidModel, "empty"):
        load(tmp_path / "empty")
    (tmp_path / "secret").write_bytes(b"")
    (tmp_path / "secret").chmod(0)
    if os.access(tmp_path / "secret", os.R_OK):
        return  # Nothing is forbidden to root.
    with refused(InvalidModel, "Permission denied"):
        load(tmp_path / "secret")


def test_a_closed_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(RELU.SerializeToString())
    with (tmp_path / "model").open("rb") as file:
        assert load(file)(X).tolist() == X.tolist()
        with refused(InvalidModel, "read to its end"):
            load(file)
    with refused(InvalidModel, "closed file"):
        load(file)


def test_more_than_two_gigabytes_are_refused_unread(tmp_path: Path) -> None:
    huge = tmp_path / "huge.onnx"
    with huge.open("wb") as file:
        file.truncate(2**31)
    with refused(LimitExceeded, "2,147,483,648", "external data", seconds=0.5):
        load(huge)
    with huge.open("rb") as file, refused(LimitExceeded, "external data", seconds=0.5):
        load(file)


# -- versions -------------------------------------------------------------------------------------


def opset(version: int, domain: str = "") -> Callable[[Any], Any]:
    def change(m: Any) -> None:
        m.opset_import.add(domain=domain, version=version)

    return change


def only_opset(version: int) -> Callable[[Any], Any]:
    def change(m: Any) -> None:
        m.opset_import[0].version = version

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (only_opset(0), InvalidModel, ["version 0", "start at 1"]),
        (only_opset(-3), InvalidModel, ["version -3"]),
        (only_opset(99), UnsupportedModel, ["opset 99", "up to", "upgrade onnx"]),
        (only_opset(2**63 - 1), UnsupportedModel, ["opset 9223372036854775807"]),
        (opset(99, "ai.onnx.ml"), UnsupportedModel, ["opset 99", "ai.onnx.ml"]),
        (lambda m: m.ClearField("opset_import"), InvalidModel, ["imports no opset"]),
        (lambda m: setattr(m, "ir_version", 99), UnsupportedModel, ["IR version 99", "upgrade"]),
        (lambda m: setattr(m, "ir_version", 0), InvalidModel, ["IR version"]),
        (lambda m: setattr(m, "ir_version", -1), InvalidModel, ["IR version"]),
    ],
)
def test_versions(change: Callable[[Any], Any], error: Any, words: list[str]) -> None:
    with refused(error, *words):
        load(changed(RELU, change))


def test_the_same_import_twice_says_nothing_new() -> None:
    load(changed(RELU, opset(18)))
    load(changed(RELU, opset(18, "ai.onnx")))


def test_an_operator_from_the_future_of_its_opset() -> None:
    gelu = model([node("Gelu", ["x"], ["y"], name="g")], ["x"], ["y"], opset=18)
    with refused(UnsupportedModel, "Gelu", "opset 18", "20", "'g'"):
        load(gelu)


def test_all_unknown_operators_are_told_at_once() -> None:
    branch = graph([node("Hidden", ["x"], ["h"], name="in a branch")], [], ["h"])
    inner = function("F", [node("Deep", ["a"], ["b"], name="in a function")], ["a"], ["b"])
    unknown = model(
        [
            node("Foo", ["x"], ["a"], name="first"),
            node("Relu", ["a"], ["b"], name="innocent"),
            node("Bar", ["b"], ["c"], name="second", domain="com.example"),
            node("Baz", ["c"], ["d"], name="third", domain="never.imported"),
            node("Foo", ["d"], ["e"]),
            node("If", ["condition"], ["f"], then_branch=branch, else_branch=branch),
            node("F", ["e"], ["g"], domain="mine"),
        ],
        ["x", value("condition", [], BOOL)],
        ["f", "g"],
        functions=[inner],
        com_example=3,
        mine=1,
    )
    words = [
        "5 unsupported operators",
        "Foo of opset 18",
        "com.example::Bar of opset 3",
        "never.imported",
    ]
    labels = ["'first'", "output 'e'", "'second'", "'third'", "'in a branch'", "'in a function'"]
    with refused(UnsupportedModel, *words, *labels) as _:
        load(unknown)


# -- external data --------------------------------------------------------------------------------


def beside(tmp_path: Path, location: str, **entries: Any) -> Path:
    """A model whose only weight is in another file, as `location` and `entries` say."""
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(text))
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(bytes(8))
    (tmp_path / "outside.bin").write_bytes(bytes(8))
    made = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [tensor])
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


def test_weights_lie_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = beside(tmp_path, "w.bin")
    monkeypatch.chdir(path.parent)
    for source in (path, str(path), "model.onnx", path.open("rb")):
        assert load(source)(np.ones(2, np.float32)).tolist() == [1, 1]
        if isinstance(source, io.IOBase):
            source.close()


@pytest.mark.parametrize(
    ("location", "entries", "words"),
    [
        ("../outside.bin", {}, ["'..'"]),
        ("a/../../outside.bin", {}, ["'..'"]),
        ("..\\outside.bin", {}, ["forward slashes"]),
        ("/etc/hostname", {}, ["relative"]),
        ("C:/windows", {}, ["relative"]),
        ("", {}, ["no file name"]),
        ("missing.bin", {}, ["missing.bin"]),
        ("w.bin\0", {}, ["own folder"]),
        (".", {}, ["own folder"]),
        ("link.bin", {}, ["symbolic link"]),
        ("linked/outside.bin", {}, ["symbolic link"]),
        ("hard.bin", {}, ["hard link"]),
        ("pipe", {}, ["not a regular file"]),
        ("w.bin", {"offset": -1}, ["offset", "-1"]),
        ("w.bin", {"offset": 2**70}, ["offset"]),
        ("w.bin", {"offset": 4}, ["truncated"]),
        ("w.bin", {"length": -8}, ["length", "-8"]),
        ("w.bin", {"length": 4}, ["length"]),
        ("w.bin", {"__class__": "os.system"}, ["__class__"]),
        ("model.onnx", {}, ["model file itself"]),
        ("./model.onnx", {}, ["model file itself"]),
    ],
)
def test_weights_lie_nowhere_else(
    tmp_path: Path, location: str, entries: dict[str, Any], words: list[str]
) -> None:
    path = beside(tmp_path, location, **entries)
    (path.parent / "link.bin").symlink_to(tmp_path / "outside.bin")
    (path.parent / "linked").symlink_to(tmp_path)
    os.link(tmp_path / "outside.bin", path.parent / "hard.bin")
    os.mkfifo(path.parent / "pipe")
    error = MissingFile if location == "missing.bin" else InvalidModel
    with refused(error, "'w'", *words):
        load(path)


def test_weights_of_a_model_without_a_folder(tmp_path: Path) -> None:
    path = beside(tmp_path, "w.bin")
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with refused(InvalidModel, "'w'", "w.bin", "from its path"):
            load(source)

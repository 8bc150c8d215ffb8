"""Wrong calls and wrong models raise the class of error that onnxruntime raises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx.compat
from sardonyx import SardonyxError
from sardonyx.compat.capi import onnxruntime_pybind11_state as compiled
from tests.compat.pairs import FEEDS, TWO, X, parsed, same, session
from tests.support.raises import refused

WRONG_CALLS: dict[str, tuple[Any, Any, str]] = {
    "an input is missing": (None, {"x": X}, "ValueError"),
    "all inputs are missing": (None, {}, "ValueError"),
    "an unknown input": (None, {**FEEDS, "q": X}, "InvalidArgument"),
    "an unknown output": (["q"], FEEDS, "InvalidArgument"),
    "an output without a name": ([""], FEEDS, "InvalidArgument"),
    "too few dimensions": (None, {**FEEDS, "x": X[0]}, "InvalidArgument"),
    "too many dimensions": (None, {**FEEDS, "x": X[None]}, "InvalidArgument"),
    "another size": (None, {**FEEDS, "x": X[:, :3]}, "InvalidArgument"),
    "another float": (None, {**FEEDS, "x": X.astype(np.float64)}, "InvalidArgument"),
    "integers": (None, {**FEEDS, "x": X.astype(np.int64)}, "InvalidArgument"),
    "objects": (None, {**FEEDS, "x": X.astype(object)}, "InvalidArgument"),
    "sizes that do not fit": (None, {**FEEDS, "x": np.ones((3, 4), np.float32)}, "Fail"),
    "text": (None, {**FEEDS, "x": "a"}, "RuntimeError"),
    "any object": (None, {**FEEDS, "x": object()}, "RuntimeError"),
    "a list of text": (None, {**FEEDS, "x": [["a"]]}, "RuntimeError"),
    "a name in place of a list": ("y", FEEDS, "TypeError"),
    "names that are numbers": ([1], FEEDS, "TypeError"),
    "a key that is a number": (None, {**FEEDS, 3: X}, "TypeError"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call(case: str) -> None:
    names, feeds, kind = WRONG_CALLS[case]
    assert same(lambda ort: session(ort).run(names, feeds)) == kind


def test_wrong_options_of_a_call() -> None:
    assert same(lambda ort: session(ort).run(None, FEEDS, 5)) == "TypeError"


def test_missing_inputs_are_named() -> None:
    with pytest.raises(ValueError, match=r"Required inputs \(\['b'\]\) are missing"):
        session(sardonyx.compat).run(None, {"x": X})


def test_wrong_files(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"garbage" * 10)
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "cut.onnx").write_bytes(TWO.SerializeToString()[:-20])
    (tmp_path / "bare.onnx").write_bytes(onnx.ModelProto(ir_version=10).SerializeToString())
    expected = {
        "nowhere.onnx": "NoSuchFile",
        "broken.onnx": "InvalidProtobuf",
        "cut.onnx": "InvalidProtobuf",
        "empty.onnx": "InvalidArgument",
        "bare.onnx": "InvalidArgument",
        "": "InvalidProtobuf",
    }
    for name, kind in expected.items():
        path = os.path.join(tmp_path, name)
        assert same(lambda ort, path=path: ort.InferenceSession(path)) == kind, name
        if name and kind != "NoSuchFile":
            content = Path(path).read_bytes()
            assert same(lambda ort, content=content: ort.InferenceSession(content)) == kind, name
    for wrong in (None, 5, bytearray(b"")):
        assert same(lambda ort, wrong=wrong: ort.InferenceSession(wrong)) == "TypeError"


WRONG_MODELS = {
    "g (float[1] x) => (float[1] y) { y = Nope(x) }": "InvalidGraph",
    "g (float[1] x) => (float[1] y) { y = Relu<a=1>(x) }": "InvalidGraph",
    "g (float[1] x) => (float[1] y) { y = Add(x) }": "InvalidGraph",
    "g (float[1] x) => (float[1] y) { y = Relu(x) y = Relu(x) }": "Fail",
    "g (float[1] x) => (float[1] y) { y = Add(x,z) z = Relu(y) }": "Fail",
    "g (float[1] x, int64[1] z) => (float[1] y) { y = Add(x,z) }": "Fail",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", WRONG_MODELS)
def test_a_wrong_model(text: str) -> None:
    assert same(lambda ort: session(ort, parsed(text))) == WRONG_MODELS[text]


def test_a_model_that_is_too_new() -> None:
    assert same(lambda ort: session(ort, parsed("g (float[1] x) => (float[1] y) { y = Relu(x) }", ir=99))) == "Fail"  # fmt: skip  # noqa: E501


def test_data_that_do_not_fit() -> None:
    reshape = parsed("g (float[N] x, int64[k] s) => (float[a,b] y) { y = Reshape(x,s) }")
    feeds = {"x": np.ones(3, np.float32), "s": np.array([2, 2])}
    assert same(lambda ort: session(ort, reshape).run(None, feeds)) == "Fail"


def test_a_proto_without_a_graph() -> None:
    with refused(compiled.InvalidArgument, "no graph"):
        sardonyx.compat.InferenceSession(onnx.ModelProto(ir_version=10))


def test_names_are_those_of_onnxruntime() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as theirs  # noqa: PLC0415

    kinds = [n for n in dir(theirs) if isinstance(getattr(theirs, n), type)]
    errors = [name for name in kinds if issubclass(getattr(theirs, name), Exception)]
    assert len(errors) > 12
    for name in errors:
        assert issubclass(getattr(compiled, name), SardonyxError), name
        assert not issubclass(getattr(compiled, name), (ValueError, RuntimeError))


def test_an_error_is_caught_by_either_module() -> None:
    with pytest.raises(sardonyx.compat.capi._pybind_state.InvalidArgument):
        session(sardonyx.compat).run(["q"], FEEDS)
    with pytest.raises(SardonyxError):
        session(sardonyx.compat).run(["q"], FEEDS)

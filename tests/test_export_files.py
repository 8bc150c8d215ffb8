"""The files of exported programs: mapped, readable by others, and hostile ones."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.mapped_files import mapping_of
from sardonyx.exporting import archive
from tests.test_export import checked, floats, small

RNG = np.random.default_rng(8)


def test_a_saved_file_is_mapped_and_needs_no_model(tmp_path: Path) -> None:
    path = sardonyx.export(small()).save(tmp_path / "small.sardonyx")
    assert [file.name for file in tmp_path.iterdir()] == ["small.sardonyx"]
    program = sardonyx.load(path)
    host = program.params.host("w")
    assert mapping_of(host) is not None
    assert host.ctypes.data % archive.ALIGNMENT == 0
    assert not host.flags.writeable
    x = floats(2, 4)
    checked(small(), program, {"x": x})
    with open(path, "rb") as file:
        np.testing.assert_array_equal(sardonyx.load(file)(x), program(x))
    assert "exported program" in repr(program)


def test_weights_may_be_read_without_sardonyx(tmp_path: Path) -> None:
    path = sardonyx.export(small()).save(tmp_path / "small.sardonyx")
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        told = json.loads(file.read(archive.DESCRIPTION))
        raw = file.read(archive.WEIGHTS)
    (row,) = told["arrays"]
    found = np.frombuffer(raw, row["dtype"], 32, row["offset"]).reshape(row["shape"])
    np.testing.assert_array_equal(found, sardonyx.load(small()).params["w"])


@pytest.fixture(scope="module")
def content() -> bytes:
    return sardonyx.export(small(), platforms=["cpu"]).to_bytes()


def test_a_file_that_is_cut_anywhere_is_refused(content: bytes) -> None:
    for length in [4, 5, 29, 31, 100, *range(200, len(content), 997), len(content) - 1]:
        with pytest.raises(sardonyx.InvalidModel, match="exported program"):
            sardonyx.load(content[:length])


def test_a_file_with_a_changed_byte_is_refused_or_sound(content: bytes) -> None:
    """What the archive's checksums do not cover, the weights, is data and nothing else."""
    x = floats(2, 4)
    for place in RNG.integers(4, len(content), 150):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(RNG.integers(8))
        try:
            assert sardonyx.load(bytes(damaged))(x).shape == (2, 8)
        except sardonyx.SardonyxError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017  (any of several errors)


def rewritten(content: bytes, **changes: Any) -> bytes:
    """The archive with entries replaced, or fields of its description."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == archive.DESCRIPTION:
                told = json.loads(data)
                told.update({k: v for k, v in changes.items() if k not in ("weights_", "program_")})
                data = json.dumps(told).encode()
            if name == archive.WEIGHTS and "weights_" in changes:
                data = changes["weights_"]
            if name == archive.PROGRAM and "program_" in changes:
                data = changes["program_"]
            new.writestr(name, data, changes.get("compression", zipfile.ZIP_STORED))
    return out.getvalue()


OTHER = {"name": "v", "dtype": "float32", "shape": [4, 8], "offset": 0}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "format version 2, but this sardonyx reads version 1"),
        ({"format": "other"}, "its description is invalid"),
        ({"weights_": b"\0" * 100}, "lies outside the weights"),
        ({"program_": b"nothing"}, "cannot read the program in"),
        ({"program_": b""}, "cannot read the program in"),
        ({"arrays": [OTHER]}, "differ from those that the program takes"),
        ({"arrays": [{**OTHER, "name": "w", "shape": [8, 4]}]}, "takes other arrays"),
        ({"arrays": [{**OTHER, "name": "w", "shape": [-4, 8]}]}, "array 'w' has the dtype float32"),
        ({"arrays": [{**OTHER, "name": "w", "shape": [2**40, 2**40]}]}, "outside the weights"),
        ({"arrays": [{**OTHER, "name": "w", "dtype": "object"}]}, "array 'w' has the dtype object"),
        ({"arrays": [{**OTHER, "name": "w", "offset": -64}]}, "outside the weights"),
        (
            {"inputs": [{"name": "x", "type": "tensor(int64)", "shape": ["batch", 4]}]},
            "other arrays",
        ),
        ({"bounds": ["b <= 1"]}, "a bound of sizes is"),
        ({"bounds": ["floordiv(1, batch - 7) < 9"]}, "a bound of sizes is"),
        ({"platforms": ["cpu", "\x1b[31mtpu"]}, r"a platform is '\\x1b"),
        ({"largest": {"batch": "9"}}, "its 'largest' are"),
        ({"inputs": [{"name": "x", "type": "tensor(thing)", "shape": []}]}, "type is 'tensor"),
        ({"inputs": [{"name": "x", "type": "tensor(float)", "shape": ["9^9^9"]}]}, "a size is"),
        ({"inputs": [{"name": "x", "type": "tensor(float)", "shape": ["f()"]}]}, "a size is"),
        ({"bounds": ["__import__('os')"]}, "a bound of sizes is"),
        ({"bounds": ["(" * 3000]}, "a bound of sizes is"),
        ({"outputs": 3}, "its 'outputs' is 3"),
        ({"platforms": ["tpu"]}, "was exported for tpu"),
        ({"draws": "no"}, "its 'draws' is 'no'"),
        ({"compression": zipfile.ZIP_DEFLATED}, "was repacked with compression"),
    ],
)
def test_files_that_contradict_themselves_are_refused(
    content: bytes, changes: Mapping[str, Any], complaint: str
) -> None:
    assert sardonyx.load(rewritten(content))(floats(2, 4)).shape == (2, 8)
    with pytest.raises(sardonyx.SardonyxError, match=complaint):
        sardonyx.load(rewritten(content, **changes))


def test_another_archive_is_told_from_a_program(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.txt", "text")
    with pytest.raises(sardonyx.InvalidModel, match=r"has no 'description\.json'"):
        sardonyx.load(path)


def test_a_wrong_call_is_refused(content: bytes) -> None:
    program = sardonyx.load(content)
    with pytest.raises(sardonyx.InvalidInput, match="must be float32"):
        program(np.zeros((2, 4), np.int64))
    with pytest.raises(sardonyx.InvalidInput, match="size 4 on axis 1"):
        program(np.zeros((2, 5), np.float32))
    with pytest.raises(sardonyx.InvalidInput, match="also needs x"):
        program()
    with pytest.raises(sardonyx.InvalidInput, match="has no output 'z'"):
        program.run(["z"], {"x": floats(1, 4)})
    with pytest.raises(sardonyx.InvalidInput, match="runs on JAX, not on 'numpy'"):
        sardonyx.load(content, backend="numpy")

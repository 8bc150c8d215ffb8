"""`sardonyx export`: a portable program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx.cli.main import main
from tests.cli.models import ENCODER

pytest.importorskip("flatbuffers", reason="no flatbuffers; pip install 'sardonyx[export]'")


def test_a_program_for_free_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "encoder.sardonyx")
    options = ["--platform", "cpu", "--shape", "x=batch,4,48", "--largest", "batch=16"]
    assert main(["export", ENCODER, "-o", out, *options]) == 0
    told = capsys.readouterr().out
    assert "for cpu" in told
    assert "bound   batch <= 16" in told
    x = np.ones((3, 4, 48), np.float32)
    expected = sardonyx.load(ENCODER, backend="numpy")(x)
    np.testing.assert_allclose(sardonyx.load(out)(x), expected, atol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--platform", "abacus"], 2),
        (["--largest", "batch=none"], 2),
        (["--largest", "3", "--largest", "batch=4"], 2),
        (["--shape", "x"], 2),
        (["--shape", "x=a,4,48", "--shape", "x=b,4,48"], 2),
        (["--shape", "x=batch,2*2,48"], 1),
        (["--shape", "z=1"], 1),
        (["--platform", "cpu", "--shape", "x=2,4,48", "-o", "no/such/folder/file"], 1),
    ],
)
def test_mistakes(
    arguments: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["export", ENCODER, "-o", out, *arguments]) == status
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())

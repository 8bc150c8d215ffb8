"""`sardonyx.check` and `sardonyx check --target`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.targets.worker import Worker

ENCODER = str(Path(__file__).parents[2] / "examples" / "encoder.onnx")


@pytest.fixture
def compilers(target_worker: Worker) -> None:
    """XLA's compilers, where the extra is installed."""


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_a_report_for_each_target() -> None:
    v5e, h100 = sardonyx.check(ENCODER, ["v5e", "h100"], shapes={"x": (2, 8, 48)})
    for report in (v5e, h100):
        assert report.is_compiled, report.reason
        assert report.fits
        assert report.bound is not None
        assert 1e-8 < report.bound[1] < 1e-3
    assert v5e.padding > 0.1
    assert h100.padding == 0
    (facts,) = v5e.programs
    assert facts.products == h100.programs[0].products


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_models_in_each_form() -> None:
    proto = onnx.load(ENCODER)
    data = proto.SerializeToString()
    for model in (Path(ENCODER), data, bytearray(data), io.BytesIO(data), proto):
        (report,) = sardonyx.check(model, ["h100"], precision="bfloat16")
        assert report.is_compiled, report.reason
        assert report.programs[0].products.keys() == {"bfloat16"}


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_the_command_prints_a_column_for_each_target(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", ENCODER, "--shape", "x=4,8,48", "--target", "v5e", "--target", "h100:4"]
    assert main([*command, "--rules", "tensor", "--mesh", "model=4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if "v5e" in line)
    assert head.split() == ["v5e", "h100:4"]
    rows = {line.split("  ")[0].strip(): line.split()[-2:] for line in lines if line}
    assert set(rows["bounded by"]) <= {"products", "memory", "links"}
    assert any("weights per device" in line for line in lines)
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_the_command_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", ENCODER, "--shape", "x=3,8,48", "--target", "v5e", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["target"], found["outcome"], found["fits"]) == ("v5e", "compiled", True)
    facts = found["programs"][0]["facts"]
    assert sum(facts["kinds"].values()) > 0
    # The model is 48 wide, and a tile 128.
    assert any(label.startswith("48 as ") for label in facts["padding"])


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_the_command_says_what_does_not_compile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", ENCODER, "--shape", "z=1", "--target", "v5e"]) == 1
    assert "refused: No input is called 'z'; the model takes x." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": []}, r"pass a list"),
        ({"targets": "v5e"}, r"pass a list"),
        ({"targets": ["v5"]}, r"no target 'v5'"),
        ({"targets": ["v5e"], "precision": "low"}, r"no precision 'low'"),
        ({"targets": ["v5e"], "strict": "no"}, r"'strict'"),
        ({"targets": ["v5e"], "limit": 0}, r"'limit' is 0"),
        ({"targets": ["v5e"], "limit": float("nan")}, r"'limit' is nan"),
        ({"targets": ["v5e"], "limit": "long"}, r"'limit' is 'long'"),
        ({"targets": ["v5e"], "shapes": {"x": 5}}, r"shape of 'x' is 5"),
        ({"targets": ["v5e"], "shapes": {"x": (1, -8)}}, r"shape of 'x'"),
        ({"targets": ["v5e"], "shapes": {"x": "28"}}, r"shape of 'x'"),
        ({"targets": ["v5e"], "shapes": {"x": (1, 8.5)}}, r"shape of 'x'"),
    ],
)
def test_arguments_that_are_wrong(
    arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sardonyx.targets.checking.require_compiler", lambda target: None)
    with pytest.raises(InvalidInput, match=message):
        sardonyx.check(ENCODER, **arguments)


def test_a_loaded_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.targets.checking.require_compiler", lambda target: None)
    with pytest.raises(InvalidInput, match="pass the path"):
        sardonyx.check(sardonyx.load(ENCODER, backend="numpy"), ["v5e"])  # type: ignore[arg-type]


def test_an_axis_of_a_mesh_is_a_name_and_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", ENCODER, "--target", "v5e:2x2", "--mesh", "model"]) == 2
    assert "write it as in --mesh data=2 model=4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "high"], "--precision has an effect only with --target."),
        (["--rules", "data"], "--rules has an effect only with --target."),
        (["--mesh", "data=2"], "--mesh has an effect only with --target."),
        (["--target", "v5e", "--backend", "jax"], "--backend has an effect only without --target."),
        (["--target", "v5e", "--device", "cpu"], "--device has an effect only without --target."),
    ],
)
def test_options_that_would_have_no_effect(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", ENCODER, *options]) == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sardonyx.targets.names.find_spec", lambda module: None)
    with pytest.raises(BackendUnavailable):
        sardonyx.check(ENCODER, ["h100"])
    assert main(["check", ENCODER, "--target", "h100"]) == 1
    assert "pip install 'sardonyx[aot]'" in capsys.readouterr().err


def test_the_import_loads_neither_a_compiler_nor_what_starts_processes() -> None:
    code = "import sys, sardonyx; print([name for name in sys.modules if name.startswith(('jax', "
    code += (
        "'libtpu', 'multiprocessing', 'sardonyx.targets.')) and name != 'sardonyx.targets.api'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

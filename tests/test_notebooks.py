"""The notebooks run from top to bottom and show what they were stored with."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from sardonyx.backends import available

notebooks = pytest.importorskip(
    "tests.support.notebooks", reason="no nbclient or ipykernel; pip install 'sardonyx[test]'"
)

# Of the processor, for which other work on the machine counts less than on the clock. On two cores
# this is less than a minute.
MOST_SECONDS = 60
MOST_BYTES = 400_000
# A folder of this machine, or an address in its memory.
PRIVATE = re.compile(r"/(home|root|tmp|usr|work|Users|private)/\w|\bat 0x[0-9a-f]{6,}")


class Row(NamedTuple):
    """What a notebook needs, and how its outputs are compared with the stored ones.

    Their kinds always are. Their words are too, without numbers, unless they tell of times or of
    the machine.
    """

    requires: tuple[str, ...] = ()
    same_words: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.slow,)


NOTEBOOKS = {
    "01_five_minutes": Row(),
    "02_inside_a_program": Row(marks=()),
    "03_inside_jax": Row(requires=("matplotlib", "onnxruntime", "optax"), same_words=True),
    "04_changing_shapes": Row(requires=("matplotlib",)),
    "05_many_devices": Row(requires=("matplotlib",)),
    "06_cupy": Row(requires=("cupy", "matplotlib"), marks=(pytest.mark.gpu,)),
    "07_generation": Row(requires=("matplotlib",)),
    "08_bring_your_own": Row(
        requires=("matplotlib", "onnxruntime", "onnxscript", "skl2onnx", "sklearn", "torch")
    ),
    "09_numbers": Row(requires=("matplotlib", "onnx_ir", "onnxruntime")),
}
STORED = [name for name in NOTEBOOKS if name in notebooks.names()]


def lacking(row: Row) -> str:
    """Return why a notebook cannot run here, or nothing."""
    absent = [name for name in row.requires if find_spec(name) is None]
    if "cupy" in row.requires and not absent and "cupy" not in available():
        absent.append("GPU for CuPy")
    return f"no {', '.join(absent)}" if absent else ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NOTEBOOKS[name].marks) for name in STORED]
)
def test_its_cells_show_what_is_stored(name: str) -> None:
    row = NOTEBOOKS[name]
    reason = lacking(row)
    if reason:
        pytest.skip(reason)
    stored = notebooks.read(name)
    executed, seconds = notebooks.execute(notebooks.read(name))
    for number, (cell, expected) in enumerate(
        zip(notebooks.code_cells(executed), notebooks.code_cells(stored), strict=True), 1
    ):
        assert notebooks.kinds(cell) == notebooks.kinds(expected), notebooks.words(cell)
        if row.same_words:
            assert notebooks.words(cell) == notebooks.words(expected), f"cell {number}"
    assert seconds < MOST_SECONDS


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", STORED)
def test_it_was_stored_after_one_run_in_order(name: str) -> None:
    cells = notebooks.code_cells(notebooks.read(name))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", STORED)
def test_its_file_is_small_and_tells_nothing_of_a_machine(name: str) -> None:
    path = notebooks.FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < MOST_BYTES
    for cell in notebooks.code_cells(notebooks.read(name)):
        for output in cell.outputs:
            data = output.get("data", {})
            for text in (output.get("text", ""), *data.values()):
                found = PRIVATE.search(str(text))
                assert found is None, f"{cell.source}\n{found}"


def test_each_notebook_has_a_row() -> None:
    assert set(notebooks.names()) <= set(NOTEBOOKS)

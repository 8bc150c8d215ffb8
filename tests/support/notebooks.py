"""Executes notebooks and stores what they show: `python -m tests.support.notebooks [NAMES]`.

Without names it executes all of them. Each runs in a kernel of this interpreter, which inherits the
environment. What differs from run to run, or tells of this machine, is left out of the file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
# Seconds that a cell may take.
TIMEOUT = 300
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TAGS = re.compile(r"<[^>]*>")
_NUMBERS = re.compile(r"-?\d[\d,]*(\.\d*)?(e[+-]?\d+)?")


class Execution(NamedTuple):
    """An executed notebook, and the processor's time that its kernel took, in seconds."""

    notebook: NotebookNode
    seconds: float


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def execute(notebook: NotebookNode) -> Execution:
    """Run all cells in the folder of the notebooks; the first error ends it."""
    # No folders: a kernel that a user installed under the same name could be of another Python.
    specs = KernelSpecManager(kernel_dirs=[])
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs)
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=TIMEOUT,
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        coalesce_streams=True,
    )
    with client.setup_kernel(cleanup_kc=True):
        process = psutil.Process(kernel.provisioner.process.pid)
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        seconds = sum(process.cpu_times()[:4])
    _clean(notebook)
    return Execution(notebook, seconds)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: NotebookNode) -> list[str]:
    """Return which outputs a cell has: streams by name, displays by their types."""
    return [_kind(output) for output in cell.outputs]


def words(cell: NotebookNode) -> list[str]:
    """Return the text of the cell's outputs without numbers, whose last digits differ."""
    texts = [output.get("text") or output.data.get("text/plain", "") for output in cell.outputs]
    return [" ".join(_NUMBERS.sub("#", text).split()) for text in texts]


def _kind(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.name)
    return " ".join([output.output_type, *sorted(output.get("data", {}))])


def _clean(notebook: NotebookNode) -> None:
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    for cell in code_cells(notebook):
        cell.outputs = [_without_paths(output) for output in cell.outputs if _is_shown(output)]


def _is_shown(output: NotebookNode) -> bool:
    """Return whether the output stays: the bar of a long compilation is gone when it is ready."""
    if output.output_type == "stream":
        return bool(_ESCAPES.sub("", output.text).strip())
    if output.output_type != "display_data":
        return True
    if WIDGET in output.data:
        return False
    shown = (_TAGS.sub("", text) for kind, text in output.data.items() if kind != "text/plain")
    return any(text.strip() for text in shown)


def _without_paths(output: NotebookNode) -> NotebookNode:
    """Write paths relative to the repository."""
    if output.output_type == "stream":
        output.text = output.text.replace(f"{ROOT}/", "")
    for kind, content in output.get("data", {}).items():
        if isinstance(content, str):
            output.data[kind] = content.replace(f"{ROOT}/", "")
    return output


def _store(chosen: Iterable[str]) -> None:
    for name in chosen:
        notebook, seconds = execute(read(name))
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(notebook, path)
        print(f"{name}: {seconds:.1f} s of the processor, {path.stat().st_size:,} bytes")
        for number, cell in enumerate(code_cells(notebook), 1):
            print(f"  {number:2} {'; '.join(kinds(cell))}")


def _main(arguments: list[str]) -> Any:
    unknown = sorted(set(arguments) - set(names()))
    if unknown:
        return f"There is no notebook {', '.join(unknown)}. Choose from {', '.join(names())}."
    return _store(arguments or names())


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

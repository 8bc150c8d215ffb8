"""`Artefact`: an exported program, before it is saved."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sardonyx.display.markup import displayed
from sardonyx.display.tables import facts
from sardonyx.display.units import bytes_text
from sardonyx.exporting import archive
from sardonyx.exporting.description import Description
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.values_display import MOST_CHARACTERS, values_table, values_text
from sardonyx.printable import printable
from sardonyx.version import __version__


@dataclass(frozen=True, eq=False)
class Artefact:
    """A program for several platforms, with its weights, as `sardonyx.export` returns it."""

    description: Description
    program: bytes
    arrays: Mapping[str, np.ndarray[Any, Any]]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the archive to one file; an interrupted write leaves no file behind."""
        target = Path(path)
        unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
        try:
            with open(unfinished, "wb") as file:
                self._write(file)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        return target

    def to_bytes(self) -> bytes:
        """The archive as bytes, as `save` writes them."""
        file = io.BytesIO()
        self._write(file)
        return file.getvalue()

    def _write(self, file: Any) -> None:
        versions = {"sardonyx": __version__, "jax": jax.__version__}
        description = {**self.description.as_json(), "made_by": versions}
        archive.write(file, description, self.program, self.arrays)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it runs on."""
        return self.description.platforms

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs: name, dtype, and shape with names for free sizes."""
        return self.description.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The outputs: name, dtype, and shape with names for free sizes."""
        return self.description.outputs

    @property
    def bounds(self) -> tuple[str, ...]:
        """The conditions on the free sizes, such as `sequence <= 512`."""
        return self.description.bounds

    def __repr__(self) -> str:
        inputs = values_text(self.inputs)
        size = len(self.program) + sum(array.nbytes for array in self.arrays.values())
        platforms = ", ".join(self.platforms)
        return printable(
            f"<exported program for {platforms}: ({inputs}), {size:,} bytes>", MOST_CHARACTERS
        )

    def _repr_html_(self) -> str:
        weights = sum(array.nbytes for array in self.arrays.values())
        about = [
            ("platforms", ", ".join(self.platforms)),
            ("bounds", ", ".join(self.bounds) or "none"),
            ("program", bytes_text(len(self.program))),
            ("arrays", f"{len(self.arrays):,}, {bytes_text(weights)}"),
        ]
        return displayed("Exported program", facts(about), values_table(self.inputs, self.outputs))

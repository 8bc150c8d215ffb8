"""The inputs of one call of a model, and the outputs that test data expect of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.cli.inputs.arrays import array_of_npy, arrays_of_npz, as_declared
from sardonyx.cli.inputs.data_folder import expected_outputs, inputs_of_folder, value_of_file
from sardonyx.cli.inputs.images import array_of_image
from sardonyx.cli.inputs.options import InputOptions
from sardonyx.cli.inputs.random_arrays import drawn, known_sizes
from sardonyx.cli.shapes import Shapes
from sardonyx.errors import InvalidInput, MissingFile
from sardonyx.graph.ir import ValueInfo


@dataclass(frozen=True)
class Feeds:
    """Inputs by name, and by name the outputs that they should have."""

    inputs: dict[str, Any]
    expected: dict[str, Any] = field(default_factory=dict)


def feeds_of(model: Any, options: InputOptions) -> Feeds:
    """Return the inputs that the options say, for a model or an exported program."""
    infos = {info.name: info for info in (*model.inputs, *model.optional_inputs)}
    shapes = options.shapes or {}
    if unknown := [name for name in shapes if name not in infos]:
        raise InvalidInput(_no_input(unknown[0], infos))
    inputs: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for text in options.files:
        arrays, outputs = _read(text, infos, model.outputs, options)
        if twice := [name for name in arrays if name in inputs]:
            raise InvalidInput(f"The input '{twice[0]}' is passed twice: pass it once.")
        inputs |= arrays
        expected |= outputs
    missing = [i for i in model.inputs if i.name not in inputs and i.container != "optional"]
    extra = [i for i in model.optional_inputs if i.name in shapes and i.name not in inputs]
    if missing and not options.is_random:
        raise InvalidInput(
            f"The model needs {'; '.join(map(str, missing))}: pass it as in --input "
            f"{missing[0].name}=x.npy, or draw it with --random."
        )
    sizes = known_sizes(infos.values(), inputs, shapes)
    order = list(infos)
    for info in (*missing, *extra):
        seed = (options.seed, order.index(info.name))
        inputs[info.name] = drawn(info, shapes.get(info.name), sizes, seed, options.below)
    return Feeds(inputs, expected)


def _read(
    text: str,
    infos: Mapping[str, ValueInfo],
    outputs: Sequence[ValueInfo],
    options: InputOptions,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs in a file or folder, and the outputs that it expects."""
    name, path = _named_file(text, infos)
    if name is not None:
        return {name: _one(path, infos[name], options)}, {}
    if path.is_dir():
        ordered = list(infos.values())
        return inputs_of_folder(path, ordered), expected_outputs(path, outputs)
    if path.suffix.lower() == ".npz":
        arrays = arrays_of_npz(path, list(infos))
        if unknown := [each for each in arrays if each not in infos]:
            raise InvalidInput(
                f"'{path}' has an array '{unknown[0]}': {_no_input(unknown[0], infos)}"
            )
        return {n: as_declared(array, infos[n]) for n, array in arrays.items()}, {}
    if len(infos) != 1:
        raise InvalidInput(
            f"The model has several inputs ({', '.join(infos) or 'none'}): say for which of them "
            f"'{path}' is, as in --input {next(iter(infos), 'x')}={path}."
        )
    (info,) = infos.values()
    return {info.name: _one(path, info, options)}, {}


def _named_file(text: str, infos: Mapping[str, ValueInfo]) -> tuple[str | None, Path]:
    """Return the name of an input and a path, or a path alone; both may contain "="."""
    for at in (i for i, letter in enumerate(text) if letter == "="):
        if text[:at] in infos:
            return text[:at], _present(text[at + 1 :])
    if "=" in text and not os.path.exists(text):
        raise InvalidInput(_no_input(text.partition("=")[0], infos))
    return None, _present(text)


def _present(text: str) -> Path:
    path = Path(text)
    if not text or not path.exists():
        raise MissingFile(f"There is no file '{text}' for an input: check the path.")
    return path


def _one(path: Path, info: ValueInfo, options: InputOptions) -> Any:
    """Return the content of a file for one input."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return as_declared(array_of_npy(path), info)
    if suffix == ".npz":
        arrays = arrays_of_npz(path, [info.name])
        if len(arrays) != 1:
            raise InvalidInput(f"'{path}' has {len(arrays)} arrays: pass it without a name.")
        (array,) = arrays.values()
        return as_declared(array, info)
    if suffix == ".pb":
        return value_of_file(path, info)
    if path.is_dir():
        raise InvalidInput(f"'{path}' is a folder: pass a file for the input '{info.name}'.")
    shape = (options.shapes or {}).get(info.name)
    return array_of_image(path, info, shape, options.images)


def _no_input(name: str, infos: Mapping[str, ValueInfo]) -> str:
    return f"The model has no input '{name}'; it takes {', '.join(infos) or 'none'}."


def described(inputs: Mapping[str, Any]) -> str:
    """Return the inputs in one line, as in "x: float32[2, 3]"."""
    return ", ".join(f"{name}: {_text(value)}" for name, value in inputs.items())


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"a sequence of {len(value)}"
    if isinstance(value, Mapping):
        return f"a map of {len(value)}"
    if value is None:
        return "absent"
    array = np.asarray(value)
    name = "string" if array.dtype.kind in "OUST" else array.dtype.name
    return f"{name}{list(array.shape)}"


def shapes_of(inputs: Mapping[str, Any]) -> Shapes:
    """Return the shapes of inputs that are arrays."""
    return {name: np.shape(value) for name, value in inputs.items() if hasattr(value, "shape")}

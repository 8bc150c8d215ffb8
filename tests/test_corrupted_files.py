"""Exporters' models, damaged at random: whatever is wrong then, only our own errors come out."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, numpy_helper

import sardonyx
from sardonyx.errors import SardonyxError
from sardonyx.ops import OPS

MODELS = sorted((Path(__file__).parent / "models").glob("*.onnx"))
OPERATORS = sorted(name for domain, name in OPS if not domain)
NUMBERS = (-1, 0, 1, 2, 3, 7, 64, -2, 2**31, 2**40, -(2**63), 2**63 - 1)
TYPES = (1, 2, 6, 7, 8, 9, 10, 11, 16)
LONGEST = 10  # seconds, of some milliseconds that each case should take


def outcome(source: Any, backend: str, *, strict: bool = True) -> str:
    """Load and run; what came of it, where that is no bug."""
    start = time.process_time()
    try:
        loaded = sardonyx.load(source, backend=backend, strict=strict)
        feeds = {info.name: some_array(info) for info in loaded.inputs}
        for _ in range(2):  # What is recorded is also replayed.
            loaded.run(None, feeds)
        result, message = "ran", ""
    except SardonyxError as error:
        result, message = type(error).__name__, str(error)
    assert "\n" not in message
    assert time.process_time() - start < LONGEST
    return result


def some_array(info: Any) -> Any:
    shape = [min(size, 64) if isinstance(size, int) else 4 for size in info.shape or ()]
    return np.full(shape, "a", object) if info.dtype == object else np.ones(shape, info.dtype)


# -- bytes ----------------------------------------------------------------------------------------


def test_files_with_damaged_bytes() -> None:
    rng = np.random.default_rng(7)
    outcomes: Counter[str] = Counter()
    for path in MODELS:
        original = path.read_bytes()
        for _ in range(20):
            damaged = bytearray(original)
            for place in rng.integers(0, len(original), rng.integers(1, 4)):
                damaged[place] = rng.integers(256)
            if rng.random() < 0.2:
                damaged = damaged[: rng.integers(len(original))]
            outcomes[outcome(bytes(damaged), "numpy")] += 1
    assert outcomes.total() == 20 * len(MODELS)
    assert min(outcomes["ran"], outcomes["InvalidModel"]) > 20


# -- meaning --------------------------------------------------------------------------------------

Damage = Callable[[onnx.GraphProto, random.Random], None]


def another_number(graph: onnx.GraphProto, dice: random.Random) -> None:
    attributes = [a for n in graph.node for a in n.attribute if a.type in (2, 7)]
    if not attributes:
        return
    chosen = dice.choice(attributes)
    if chosen.type == AttributeProto.INT:
        chosen.i = dice.choice(NUMBERS)
    elif chosen.ints and dice.random() < 0.7:
        chosen.ints[dice.randrange(len(chosen.ints))] = dice.choice(NUMBERS)
    else:
        chosen.ints.append(dice.choice(NUMBERS))


def another_operator(graph: onnx.GraphProto, dice: random.Random) -> None:
    dice.choice(graph.node).op_type = dice.choice(OPERATORS)


def another_input(graph: onnx.GraphProto, dice: random.Random) -> None:
    names = [name for n in graph.node for name in n.output]
    names += [known.name for known in (*graph.initializer, *graph.input)]
    chosen = dice.choice([n for n in graph.node if n.input])
    chosen.input[dice.randrange(len(chosen.input))] = dice.choice(names)


def swapped_inputs(graph: onnx.GraphProto, dice: random.Random) -> None:
    chosen = dice.choice(graph.node)
    chosen.input[:] = reversed(chosen.input)


def lost_attribute(graph: onnx.GraphProto, dice: random.Random) -> None:
    chosen = dice.choice([n for n in graph.node if n.attribute] or list(graph.node))
    del chosen.attribute[:1]


def another_constant(graph: onnx.GraphProto, dice: random.Random) -> None:
    """Shapes and axes get other numbers, weights another shape."""
    constants = [n.attribute[0].t for n in graph.node if n.op_type == "Constant" and n.attribute]
    tensors = [t for t in (*graph.initializer, *constants) if t.data_type]
    if not tensors:
        return
    chosen = dice.choice(tensors)
    array = numpy_helper.to_array(chosen).copy()
    if array.dtype == np.int64 and array.size:
        array.flat[dice.randrange(array.size)] = dice.choice(NUMBERS)
    elif array.ndim:
        array = array[..., :-1] if dice.random() < 0.5 else array.reshape(-1)
    chosen.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), chosen.name))


def another_input_type(graph: onnx.GraphProto, dice: random.Random) -> None:
    declared = dice.choice(graph.input).type.tensor_type
    declared.elem_type = dice.choice(TYPES)


def another_input_size(graph: onnx.GraphProto, dice: random.Random) -> None:
    sizes = dice.choice(graph.input).type.tensor_type.shape.dim
    if sizes:
        dice.choice(sizes).dim_value = dice.choice((0, 1, 2, 5))


DAMAGES: list[Damage] = [
    another_number,
    another_operator,
    another_input,
    swapped_inputs,
    lost_attribute,
    another_constant,
    another_input_type,
    another_input_size,
]


@pytest.mark.sampled(27)
@pytest.mark.parametrize(("backend", "rounds"), [("numpy", 40), ("jax", 8)])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_models_that_mean_something_else(damage: Damage, backend: str, rounds: int) -> None:
    dice = random.Random(damage.__name__ + backend)
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        made = onnx.load(dice.choice(MODELS))
        damage(made.graph, dice)
        outcomes[outcome(made, backend, strict=dice.random() < 0.8)] += 1
    assert outcomes.total() == rounds
    assert backend == "jax" or outcomes["ran"] < rounds

"""Every operator that has cases of ONNX's own: called, and recorded, saved and run elsewhere."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from tests.support.official import assert_same
from tests.support.official_nodes import NodeCase, node_cases

BY_OPERATOR: dict[str, list[NodeCase]] = {}
for _case in node_cases():
    BY_OPERATOR.setdefault(f"{_case.node.domain}:{_case.node.op_type}", []).append(_case)


@pytest.mark.parametrize("operator", sorted(BY_OPERATOR))
def test_a_call_on_arrays_gives_what_the_standard_says(operator: str) -> None:
    for case in BY_OPERATOR[operator]:
        found = case.call(*case.inputs)
        for value, expected in zip(found, case.expected, strict=True):
            assert_same(value, expected, 1e-3, 1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("operator", "most"),
    [
        pytest.param(operator, most, marks=[pytest.mark.slow] if most > 1 else [])
        for operator in sorted(BY_OPERATOR)
        for most in (1, 1000)
    ],
)
def test_a_recorded_call_gives_the_same_here_and_in_onnxruntime(
    operator: str, most: int, tmp_path: Path
) -> None:
    for case in BY_OPERATOR[operator][:most]:
        check_recorded(case, tmp_path / "case.onnx")


def check_recorded(case: NodeCase, path: Path) -> None:
    kinds = {value.name: value.type for value in case.model.graph.input}
    model = sardonyx.record(lambda *arrays: tuple(case.call(*arrays)), kinds, backend="numpy")
    found = values(model, case)
    for value, expected in zip(found, case.expected, strict=True):
        assert_same(value, expected, 1e-3, 1e-6)
    sardonyx.save(model, path)
    for value, again in zip(found, values(sardonyx.load(path, backend="numpy"), case), strict=True):
        assert_same(again, value, 0, 0)
    # onnx's inference gives no rank where an input decides it, and its checker asks for one.
    if all(info.shape is not None or info.container for info in model.outputs):
        onnx.checker.check_model(path)
    try:
        theirs = in_onnxruntime(case.model.SerializeToString(), case)
    except Exception:
        return  # It cannot run the standard's own model.
    for value, expected in zip(in_onnxruntime(str(path), case), theirs, strict=True):
        assert_same(value, expected, 0, 0)


def values(model: Any, case: NodeCase) -> list[Any]:
    found = model(*case.inputs)
    return list(found) if len(model.outputs) > 1 else [found]


def in_onnxruntime(model: Any, case: NodeCase) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options)
        names = [value.name for value in case.model.graph.input]
        return list(session.run(None, dict(zip(names, case.inputs, strict=True))))


def test_there_are_cases_of_most_operators() -> None:
    assert len(BY_OPERATOR) > 190
    assert np.sum([len(cases) for cases in BY_OPERATOR.values()]) > 1400

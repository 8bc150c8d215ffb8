"""ONNX's own node cases of every operator that is built, through the `onnx.backend` interface."""

from __future__ import annotations

import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase

from sardonyx.backends.base import Backend
from sardonyx.onnx_backend import SardonyxBackend
from tests.conftest import as_parameter, backends_present
from tests.official import (
    as_array,
    assert_same,
    cases_by_expansion,
    cases_of_built_operators,
    feeds_of,
    node_cases,
)

DRAWN = "dropping at random as in training comes with the random operators"
ROUNDING = (
    "Attention, by its expansion: the expected values carry the rounding of a softmax taken step "
    "by step in the narrow type, where Softmax here computes in float32 and rounds once"
)

# Every case that is not run, with its reason.
EXCLUDED = {
    "test_training_dropout": DRAWN,
    "test_training_dropout_default": DRAWN,
    "test_training_dropout_default_mask": DRAWN,
    "test_training_dropout_mask": DRAWN,
    **{
        f"test_attention_{case}{expanded}": ROUNDING
        for expanded in ("", "_expanded")
        for case in (
            "3d_causal_bf16",
            "4d_attn_mask_causal_bf16",
            "4d_causal_bf16",
            "4d_causal_fp16",
            "4d_causal_padded_kv_bf16",
            "4d_padded_kv_bf16",
        )
    },
}

LOW_PRECISION = {
    number
    for name, number in onnx.TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT6", "FLOAT4")) or name in ("INT4", "UINT4", "INT2", "UINT2")
}
# The element types that a library has no arrays of, so that cases of these cannot run on it.
LACKING = {
    "cupy": LOW_PRECISION,
    "strict": LOW_PRECISION | {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16},
}


def runs_on(case: TestCase, backend: Backend) -> bool:
    return not LACKING.get(backend.name, set()) & element_types(case.model.graph)


def element_types(graph: onnx.GraphProto) -> set[int]:
    """Every element type that a graph's values, constants and casts name."""
    found = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    found |= {v.type.optional_type.elem_type.tensor_type.elem_type for v in graph.input}
    for node in graph.node:
        for attribute in node.attribute:
            found.add(attribute.t.data_type)
            if attribute.name in ("to", "dtype", "softmax_precision", "stash_type"):
                found.add(attribute.i)
    return found


def runs(cases: list[TestCase]) -> list[object]:
    return [
        as_parameter(backend, case, name=case.name)
        for case in cases
        for backend in backends_present()
        if case.name not in EXCLUDED and runs_on(case, backend)
    ]


@pytest.mark.parametrize(("case", "backend"), runs(cases_of_built_operators()))
def test_node_case(case: TestCase, backend: Backend) -> None:
    driven = type("Driven", (SardonyxBackend,), {"array_backend": backend})
    prepared = driven.prepare(case.model)
    for inputs, outputs in case.data_sets:
        for _ in range(2):  # The first call records, the second replays.
            found = prepared.run(feeds_of(case, inputs))
            for one, expected in zip(found, map(as_array, outputs), strict=True):
                assert_same(one, expected, case)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "backend"), runs(cases_by_expansion()))
def test_node_case_by_expansion(case: TestCase, backend: Backend) -> None:
    test_node_case(case, backend)


def test_every_exclusion_names_a_case() -> None:
    assert set(EXCLUDED) <= {case.name for case in node_cases()}

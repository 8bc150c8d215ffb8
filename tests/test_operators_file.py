"""The file with the standard's operators against the installed onnx, which defines them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.graph.standard import operators
from sardonyx.graph.standard.operators import Signature, signature_of_schema
from tests.operators_file import lines

FILE = Path(operators.__file__).with_name("operators.jsonl")
MODELS = Path(__file__).parent / "models"
CACHED = operators.signature, operators._table, operators._newest_of_onnx


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Nothing of what this process has looked up."""
    for each in CACHED:
        each.cache_clear()
    yield
    for each in CACHED:
        each.cache_clear()


def parts(found: Signature | None) -> Any:
    return found and [getattr(found, each.name) for each in fields(Signature)]


def test_the_file_is_what_onnx_says() -> None:
    written, expected = FILE.read_text("utf-8").splitlines(), list(lines())
    hint = "write it anew: python -m tests.operators_file > sardonyx/graph/standard/operators.jsonl"
    assert written[1:] == expected[1:], hint
    # A release that mends errors may have the same operators.
    shared = [{**json.loads(text[0]), "onnx": ""} for text in (written, expected)]
    assert shared[0] == shared[1], hint


@pytest.mark.parametrize("release", [onnx.__version__, "0.1.0"])
def test_schemas_are_those_of_onnx(
    release: str, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = onnx.defs.get_all_schemas_with_history()
    first: dict[tuple[str, str], int] = {}
    newest = {domain: operators.newest_version(domain) for domain in {e.domain for e in every}}
    monkeypatch.setattr(onnx, "__version__", release)
    operators._table.cache_clear()
    assert (operators._table() is None) == (release == "0.1.0")
    for schema in every:
        name, domain, since = schema.name, schema.domain, schema.since_version
        found = operators.signature(name, domain, since)
        assert parts(found) == parts(signature_of_schema(schema)), (name, domain, since)
        first[name, domain] = min(since, first.get((name, domain), since))
    for (name, domain), since in first.items():
        assert operators.first_version(name, domain) == since
        assert operators.signature(name, domain, since - 1) is None
        latest = signature_of_schema(onnx.defs.get_schema(name, domain))
        assert parts(operators.signature(name, domain, newest[domain] or 1)) == parts(latest)
        assert operators.newest_version(domain) == newest[domain]


def test_nobody_else_has_standard_operators(forgotten: None) -> None:
    assert operators.newest_version("com.microsoft") is None
    assert operators.signature("Gelu", "com.microsoft", 1) is None
    assert operators.first_version("Gelu", "com.microsoft") is None
    for name in ("", "Re", "relu", "Relu\n", '"Relu"', "[", "Ré"):
        assert operators.signature(name, "", 13) is None
        assert operators.first_version(name, "") is None


@pytest.mark.parametrize("name", ["cnn_dynamo", "encoder_torchscript", "sklearn_linear_float64"])
def test_to_run_a_model_onnx_registers_nothing(
    name: str, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take 7 MB of memory and longer than to load a small model."""

    def asked(*_: Any) -> None:
        raise AssertionError("onnx was asked")

    for function in ("get_schema", "has", "get_all_schemas", "get_all_schemas_with_history"):
        monkeypatch.setattr(onnx.defs, function, asked)
    model = sardonyx.load(MODELS / f"{name}.onnx", backend="numpy")
    with np.load(MODELS / f"{name}.npz") as saved:
        feeds = {each.name: saved[f"0/in/{each.name}"] for each in model.inputs}
        expected = [saved[f"0/out/{each.name}"] for each in model.outputs]
    for made, saved_one in zip(model.run(None, feeds), expected, strict=True):
        assert_allclose(made, saved_one, rtol=1e-4, atol=1e-4)

"""`load(rewrites=False)`: a program has the steps that were traced, and gives the same results."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sardonyx
from sardonyx.graph.model.model import Model
from tests.support.onnx_builders import model, node, value, weight
from tests.test_exporter_models import FOLDER

SPELLED = FOLDER / "spelled_torchscript_13.onnx"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4, 4)).astype(np.float32)

# Keys of one head, which both heads of the queries share: Attention on every backend.
SHARED_HEADS = model(
    [
        node("Unsqueeze", ["k", "two"], ["wide"]),
        node("Expand", ["wide", "repeated"], ["expanded"]),
        node("Reshape", ["expanded", "whole"], ["keys"]),
        node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"]),
        node("MatMul", ["shares", "keys"], ["y"]),
    ],
    [value("q", ["n", 2, 5, 4]), value("k", ["n", 1, 6, 4])],
    ["y"],
    [
        weight("two", np.array([2])),
        weight("repeated", np.array([1, 1, 2, 6, 4])),
        weight("whole", np.array([-1, 2, 6, 4])),
    ],
)
CALL = {
    "q": RNG.normal(size=(1, 2, 5, 4)).astype(np.float32),
    "k": RNG.normal(size=(1, 1, 6, 4)).astype(np.float32),
}


def titles(loaded: Model, **call: Any) -> list[str]:
    stages = loaded.trace(**call).stages
    return [step.title for stage in stages if stage.segment for step in stage.segment.steps]


def both(**options: Any) -> tuple[Model, Model]:
    """The same model with rewrites, and without."""
    rewritten, plain = (
        sardonyx.load(SHARED_HEADS, rewrites=rewrites, **options) for rewrites in (True, False)
    )
    return rewritten, plain


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_results_agree_and_more_steps_run(backend: str) -> None:
    with np.load(SPELLED.with_suffix(".npz")) as calls:
        call = {key: calls[f"0/in/{key}"] for key in ("x", "mask")}
    rewritten, plain = (
        sardonyx.load(SPELLED, backend=backend, rewrites=rewrites) for rewrites in (True, False)
    )
    for found, expected in zip(rewritten.run(None, call), plain.run(None, call), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert len(titles(plain, **call)) > len(titles(rewritten, **call))
    assert "Swish" in titles(rewritten, **call)
    assert "Swish" not in str(plain.trace(**call))


def test_steps_without_a_reader_are_left_out_all_the_same() -> None:
    nodes = [node("Neg", ["x"], ["y"]), node("Exp", ["x"], ["unread"])]
    loaded = sardonyx.load(model(nodes, ["x"], ["y"]), backend="numpy", rewrites=False)
    assert titles(loaded, x=X) == ["Neg"]


def test_a_recording_is_for_models_with_the_same_choice(tmp_path: Path) -> None:
    for _ in range(2):  # The second pair follows the recordings of the first.
        rewritten, plain = both(backend="jax", cache=tmp_path)
        np.testing.assert_allclose(rewritten(**CALL), plain(**CALL), rtol=1e-5)
        assert "Attention" in titles(rewritten, **CALL)
        assert "Attention" not in titles(plain, **CALL)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_keep_the_choice(copied: Callable[[Model], Model]) -> None:
    for loaded in both(backend="numpy"):
        assert titles(copied(loaded), **CALL) == titles(loaded, **CALL)


def test_buckets_keep_the_choice() -> None:
    rewritten, plain = both(backend="jax", buckets={"n": [4]})
    call = {name: np.concatenate([array] * 3) for name, array in CALL.items()}
    np.testing.assert_allclose(rewritten(**call), plain(**call), rtol=1e-5)
    assert "Attention" in titles(rewritten, **call)
    assert "Attention" not in titles(plain, **call)


def as_function(loaded: Model) -> Any:
    fn, params = sardonyx.to_jax(loaded)
    return partial(fn, params)


def as_sharded(loaded: Model) -> Any:
    return sardonyx.shard(loaded, jax.make_mesh((1,), ("data",)), "data")


@pytest.mark.parametrize("derived", [as_function, as_sharded])
def test_what_follows_from_the_model_keeps_the_choice(derived: Callable[[Model], Any]) -> None:
    text = [str(jax.make_jaxpr(derived(loaded))(**CALL)) for loaded in both()]
    # Only the keys that are written out for both heads have this shape.
    assert ["f32[1,1,2,6,4]" in each for each in text] == [False, True]


def test_exports_of_the_model_keep_the_choice() -> None:
    shapes = {name: array.shape for name, array in CALL.items()}
    rewritten, plain = (
        sardonyx.export(loaded, shapes, platforms=["cpu"]).to_bytes() for loaded in both()
    )
    assert rewritten != plain
    found, expected = (sardonyx.load(content)(**CALL) for content in (rewritten, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-5)

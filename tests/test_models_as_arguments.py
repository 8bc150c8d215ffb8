"""Models where JAX wants arrays: an error says what to pass instead, and nothing else changes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import sardonyx
from sardonyx.errors import InvalidInput, UnsupportedModel

X = jnp.ones((1, 8, 48))
KINDS = ("model", "bound", "exported", "sharded", "fn", "bound fn")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = sardonyx.load("examples/encoder.onnx", backend="jax")
    path: Path = tmp_path_factory.mktemp("exported") / "encoder.sardonyx"
    sardonyx.export(model, {"x": ("batch", 8, 48)}).save(path)
    fn, _ = sardonyx.to_jax(model)
    return {
        "model": model,
        "bound": model.bind(key=1),
        "exported": sardonyx.load(path),
        "sharded": sardonyx.shard(model, jax.make_mesh((1,), ("data",))),
        "fn": fn,
        "bound fn": fn.bind(key=1),
    }


def called(each: Any, x: Any) -> Any:
    if hasattr(each, "weights") or "pure function" in repr(each):
        return each(sardonyx.to_jax("examples/encoder.onnx")[1], x)
    return each(x)


# What takes its argument for an array.
USES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda m: jax.jit(called)(m, X),
    "a pytree": lambda m: jax.jit(lambda tree: called(tree["m"], X))({"m": m}),
    "grad": jax.grad(lambda m: called(m, X).sum()),
    "device_put": jax.device_put,
    "eval_shape": lambda m: jax.eval_shape(called, m, X),
    "export": lambda m: export.export(jax.jit(called))(m, X),
    "checkpoint": lambda m: jax.checkpoint(called)(m, X),
    "scan": lambda m: jax.lax.scan(lambda m, _: (m, None), m, None, length=2),
    "asarray": jnp.asarray,
    "a sum": lambda m: X + m,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_place_of_an_array_says_what_to_pass(
    objects: dict[str, Any], kind: str, use: str
) -> None:
    with pytest.raises(InvalidInput, match="is no array, so it cannot be an argument") as caught:
        USES[use](objects[kind])
    assert "let the function read it from outside" in str(caught.value)
    assert "params" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_worked_without_being_an_array_still_works(objects: dict[str, Any], kind: str) -> None:
    each = objects[kind]
    assert jax.jit(called, static_argnums=0)(each, X).shape == (1, 8, 48)
    assert jax.jit(lambda x: called(each, x))(X).shape == (1, 8, 48)
    assert jax.tree.leaves({"m": each}) == [each]
    assert np.asarray(each).dtype == object
    if kind != "exported":
        assert jax.vmap(called, (None, 0))(each, X[None]).shape == (1, 1, 8, 48)


@pytest.mark.parametrize("kind", KINDS)
def test_tools_that_look_at_all_attributes_are_not_disturbed(
    objects: dict[str, Any], kind: str
) -> None:
    each = objects[kind]
    assert "__jax_array__" not in dir(each)
    assert not hasattr(each, "_ipython_display_")
    assert not hasattr(each, "__array__")
    assert each._repr_html_()
    if kind != "bound fn":
        assert dict(inspect.getmembers(each))
    with pytest.raises(AttributeError, match="has no attribute 'wieghts'"):
        _ = each.wieghts


def test_copies_and_pickles_are_what_they_were() -> None:
    model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    x = np.ones((1, 8, 48), np.float32)
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again(x), model(x))


def test_an_exported_program_says_which_transformations_it_has_not(
    objects: dict[str, Any],
) -> None:
    with pytest.raises(UnsupportedModel, match=r"use sardonyx\.to_jax on the ONNX model"):
        jax.vmap(objects["exported"])(X[None])

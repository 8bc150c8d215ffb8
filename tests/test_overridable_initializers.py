"""Inputs with a default: an initializer of the same name, which a call may override."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import INT64, model, node, value, weight
from tests.support.raises import refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones(3, np.float32)


def with_defaults(ir: int) -> onnx.ModelProto:
    """y = reshape(x * scale, shape), where scale and shape have defaults."""
    made = model(
        [node("Mul", ["x", "scale"], ["scaled"]), node("Reshape", ["scaled", "shape"], ["y"])],
        [value("shape", [2], INT64), value("x", [2, 3]), value("scale", [1])],
        ["y"],
        [weight("scale", np.array([2], np.float32)), weight("shape", np.array([3, 2]))],
    )
    made.ir_version = ir
    return made


@pytest.mark.parametrize("ir", [3, 10])
def test_a_default_may_be_overridden(xp: Backend, ir: int) -> None:
    loaded = sardonyx.load(with_defaults(ir), backend=xp)
    assert [info.name for info in loaded.inputs] == ["x"]
    assert [info.name for info in loaded.optional_inputs] == ["shape", "scale"]
    shape, scale = np.array([6, 1]), np.array([5], np.float32)
    for _ in range(2):
        assert np.asarray(loaded(X)).tolist() == (2 * X).reshape(3, 2).tolist()
        assert np.asarray(loaded(X, scale=scale)).tolist() == (5 * X).reshape(3, 2).tolist()
        assert np.asarray(loaded(X, shape)).tolist() == (2 * X).reshape(6, 1).tolist()
        assert np.asarray(loaded(X, [1, 6])).tolist() == (2 * X).reshape(1, 6).tolist()
        both = loaded.run(["y"], {"shape": shape, "scale": scale, "x": X})
        assert both[0].tolist() == (5 * X).reshape(6, 1).tolist()
    assert loaded.trace(X, scale=scale).kind("scale") == "device"
    loaded.params["scale"] = np.array([7], np.float32)
    assert np.asarray(loaded(X, shape)).tolist() == (7 * X).reshape(6, 1).tolist()


def test_a_default_is_overridden_by_what_fits(xp: Backend) -> None:
    loaded = sardonyx.load(with_defaults(3), backend=xp)
    with refused(InvalidInput, "'scale'", "must be float32"):
        loaded(X, scale=np.array([1]))
    with refused(InvalidInput, "'scale'", "size 1 on axis 0"):
        loaded(X, scale=B)
    with refused(InvalidInput, "4"):
        loaded(X, [3, 2], B[:1], B)
    with refused(InvalidInput, "'shape'", "by position and by name"):
        loaded(X, [3, 2], shape=[3, 2])
    with refused(InvalidInput, "needs", "x: tensor(float)[2, 3]"):
        loaded(scale=B[:1])


def test_forms_of_a_model_share_what_was_replaced(tmp_path: Path) -> None:
    """The axis is static, so that replacing it concerns what other processes may recall."""

    def loaded() -> sardonyx.Model:
        proto = model(
            [
                node("Mul", ["x", "scale"], ["scaled"]),
                node("ReduceSum", ["scaled", "axes"], ["y"], keepdims=0),
            ],
            ["x", value("scale", [1])],
            ["y"],
            [weight("scale", np.array([1], np.float32)), weight("axes", np.array([0]))],
        )
        return sardonyx.load(proto, backend="jax", cache=tmp_path)

    def sums(found: sardonyx.Model) -> list[list[float]]:
        return [found(X).tolist(), found(X, scale=np.array([2], np.float32)).tolist()]

    by_column = [X.sum(0).tolist(), (2 * X).sum(0).tolist()]
    by_row = [X.sum(1).tolist(), (2 * X).sum(1).tolist()]
    replaced = loaded()
    replaced.params["axes"] = np.array([1])
    assert sums(replaced) == by_row
    assert sums(loaded()) == by_column  # What a fresh process finds in the folder.
    recalled = loaded()
    assert sums(recalled) == by_column
    recalled.params["axes"] = np.array([1])
    assert sums(recalled) == by_row

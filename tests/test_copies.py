"""Models that are pickled, copied, and carried over a fork."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from tests.support.onnx_builders import model, node, weight

ENCODER = "examples/encoder.onnx"
X = np.linspace(-1, 1, 2 * 8 * 48, dtype=np.float32).reshape(2, 8, 48)
NAME = "blocks.0.before.weight"

COPIES: list[Callable[[sardonyx.Model], sardonyx.Model]] = [
    copy.copy,
    copy.deepcopy,
    lambda loaded: pickle.loads(pickle.dumps(loaded)),
]
WAYS = ["copied", "deep-copied", "pickled"]


@sardonyx.op(domain="my.domain")
def Twice(xp: Backend, x: Array) -> Array:
    return x + x


@pytest.mark.parametrize("copied", COPIES, ids=WAYS)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_copy_gives_the_same_and_is_its_own(
    backend: str, copied: Callable[[sardonyx.Model], sardonyx.Model]
) -> None:
    loaded = sardonyx.load(ENCODER, backend=backend, device="cpu")
    loaded.params[NAME] = np.full(48, 0.5, np.float32)
    expected = loaded(X)
    other = copied(loaded)
    assert other.backend == backend
    np.testing.assert_array_equal(other(X), expected)
    other.params[NAME] = np.ones(48, np.float32)
    np.testing.assert_array_equal(loaded(X), expected)
    assert not np.array_equal(other(X), expected)


@pytest.mark.slow
@pytest.mark.parametrize("copied", COPIES, ids=WAYS)
def test_a_copy_keeps_what_the_model_was_loaded_with(
    copied: Callable[[sardonyx.Model], sardonyx.Model], tmp_path: Path
) -> None:
    loaded = sardonyx.load(
        ENCODER,
        backend="jax",
        jit=False,
        strict=False,
        cache=tmp_path / "cache",
        max_signatures=1,
        precision="bfloat16",
        rewrites=False,
    )
    other = copied(loaded)
    np.testing.assert_array_equal(other(X), loaded(X))
    other(X[:1])
    assert other.stats().signatures == 1
    assert other.stats().compiles == 0
    assert not other.is_strict
    assert str(other.trace(X)) == str(loaded.trace(X))
    bucketed = copied(sardonyx.load(ENCODER, backend="jax", buckets={"batch": [4]}))
    for batch in (1, 2):
        bucketed(X[:batch])
    bucketed(np.concatenate([X, X[:1]]))
    assert bucketed.stats().compiles == 2  # A batch of one runs as it is.


@pytest.mark.parametrize("copied", COPIES, ids=WAYS)
def test_operators_of_ones_own_are_copied_by_name(
    copied: Callable[[sardonyx.Model], sardonyx.Model],
) -> None:
    own = model([node("Twice", ["x"], ["y"], domain="my.domain")], ["x"], ["y"], **{"my.domain": 1})
    other = copied(sardonyx.load(own, backend="numpy", ops=[Twice]))
    np.testing.assert_array_equal(other(X), 2 * X)


def test_subgraphs_functions_and_strings_are_pickled() -> None:
    for path in sorted(Path("tests/models").glob("*.onnx")):
        loaded = sardonyx.load(path, backend="numpy")
        other = pickle.loads(pickle.dumps(loaded))
        assert other.inputs == loaded.inputs, path
        assert repr(other) == repr(loaded), path


IN_A_CHILD = """
import os, sys
import numpy as np
import sardonyx
from sardonyx.errors import BackendUnavailable

model = sardonyx.load({path!r}, backend={backend!r})
x = np.zeros((1, 8, 48), np.float32)
{before}
child = os.fork()
if not child:
    refused = 0
    for call in (
        lambda: model(x),
        lambda: model(np.zeros((2, 8, 48), np.float32)),
        lambda: sardonyx.load({path!r}, backend={backend!r})(x),
    ):
        try:
            assert call().shape[1:] == (8, 48)
        except BackendUnavailable as error:
            assert "forked" in str(error) and "spawn" in str(error)
            refused += 1
    os._exit(10 + refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 10)
"""


@pytest.mark.parametrize(
    ("backend", "before", "refused"),
    [
        ("jax", "model.compile({'x': x})", 3),
        ("jax", "import jax; jax.devices()", 3),
        ("jax", "model(x)", 0),
        ("numpy", "model(x)", 0),
        ("jax", "", 0),
    ],
    ids=[
        "after a compile",
        "after JAX was started",
        "before JAX was imported",
        "NumPy",
        "JAX before any call",
    ],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_runs_or_says_that_it_cannot(
    backend: str, before: str, refused: int
) -> None:
    """JAX's threads are not there in the child: without the refusal it would wait forever."""
    script = IN_A_CHILD.format(path=str(Path(ENCODER).absolute()), backend=backend, before=before)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.stdout.strip(), run.returncode) == (str(refused), 0), run.stderr


def test_constants_and_weights_of_a_pickled_model_are_read_only(xp: Backend) -> None:
    if xp.name not in ("numpy", "jax"):
        pytest.skip("a backend of the tests' own says not how it is pickled")
    made = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y", "w"], [weight("w", X)])
    other = pickle.loads(pickle.dumps(sardonyx.load(made, backend=xp)))
    _, w = other(X)
    with pytest.raises((ValueError, TypeError)):
        np.asarray(w)[0] = 1

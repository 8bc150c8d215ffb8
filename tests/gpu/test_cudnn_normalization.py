"""Normalization of few long rows by cuDNN, and of all others by a generated kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.ops.normalization import LayerNormalization, RMSNormalization
from tests.gpu.cudnn_plans import BFLOAT16, HALF, fused, on_host, plans, trusted

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("with_cudnn")]

FLOAT32 = np.dtype(np.float32)
LONG = 2**15 + 8


def layer(xp: Any, *arrays: Any) -> Any:
    return [LayerNormalization(xp, *arrays, axis=-arrays[1].ndim, epsilon=0.01)[0]]


def root_mean_square(xp: Any, *arrays: Any) -> Any:
    return [RMSNormalization(xp, *arrays, axis=-arrays[1].ndim, epsilon=0.01)]


FUNCTIONS = {"layer": layer, "root mean square": root_mean_square}


def drawn(name: str, shape: tuple[int, ...], axes: int, dtype: np.dtype[Any]) -> list[Any]:
    rng = np.random.default_rng(0)
    parameters = 2 if name == "layer" else 1
    shapes = [shape] + [shape[len(shape) - axes :]] * parameters
    return [(rng.standard_normal(each) + 0.5).astype(dtype) for each in shapes]


@pytest.mark.parametrize("dtype", [HALF, BFLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("shape", "axes"), [((3, LONG), 1), ((2, 2, LONG), 1), ((1, 8, 64, 80), 3), ((LONG,), 1)]
)
def test_few_long_rows(
    cupy_backend: CupyBackend, shape: Any, axes: int, name: str, dtype: np.dtype[Any]
) -> None:
    arrays = drawn(name, shape, axes, dtype)
    found, reasons = fused(cupy_backend, FUNCTIONS[name], *arrays)
    assert (found.dtype, reasons, trusted(cupy_backend)) == (dtype, [], [True])
    unit = float(ml_dtypes.finfo(dtype).eps)
    expected = on_host(FUNCTIONS[name], *arrays)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=8 * unit, atol=8 * unit)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(16, LONG), (3, 512), (0, LONG)], ids=str)
def test_other_rows_have_a_kernel(cupy_backend: CupyBackend, shape: Any, name: str) -> None:
    arrays = drawn(name, shape, 1, FLOAT32)
    found, reasons = fused(cupy_backend, FUNCTIONS[name], *arrays)
    np.testing.assert_allclose(found, on_host(FUNCTIONS[name], *arrays), rtol=1e-4, atol=1e-5)
    assert (reasons, plans(cupy_backend)) == ([], {})


@pytest.mark.parametrize("is_mixed", [False, True])
def test_parameters_that_cudnn_does_not_take(cupy_backend: CupyBackend, is_mixed: bool) -> None:
    """A scale that broadcasts, or one of another type."""
    x, scale = drawn("root mean square", (3, LONG), 1, FLOAT32)
    scale = scale.astype(np.float64) if is_mixed else scale[:1]
    found, reasons = fused(cupy_backend, root_mean_square, x, scale)
    np.testing.assert_allclose(found, on_host(root_mean_square, x, scale), rtol=1e-4, atol=1e-5)
    assert (reasons, plans(cupy_backend)) == ([], {})


def test_a_view_is_copied(cupy_backend: CupyBackend) -> None:
    x, scale = drawn("root mean square", (LONG, 3), 1, FLOAT32)
    scale = np.resize(scale, LONG)

    def transposed(xp: Any, x: Any, scale: Any) -> Any:
        return root_mean_square(xp, xp.permute_dims(x, (1, 0)), scale)

    found, reasons = fused(cupy_backend, transposed, x, scale)
    np.testing.assert_allclose(found, on_host(transposed, x, scale), rtol=1e-4, atol=1e-5)
    assert (reasons, trusted(cupy_backend)) == ([], [True])


def test_nan_and_infinities_stay_in_their_rows(cupy_backend: CupyBackend) -> None:
    arrays = drawn("layer", (4, LONG), 1, FLOAT32)
    arrays[0][1, 5], arrays[0][2, 7] = np.nan, np.inf
    found, _ = fused(cupy_backend, layer, *arrays)
    np.testing.assert_allclose(found, on_host(layer, *arrays), rtol=1e-4, atol=1e-5)


def test_wrong_results_are_not_used(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sardonyx.backends.cupy.cudnn.plans import Plans  # noqa: PLC0415

    run = Plans.run

    def doubled(self: Plans, plan: Any, arrays: Any, workspace: Any) -> None:
        run(self, plan, arrays, workspace)
        arrays[5][...] *= 2

    monkeypatch.setattr(Plans, "run", doubled)
    arrays = drawn("layer", (3, LONG), 1, FLOAT32)
    found, (reason,) = fused(cupy_backend, layer, *arrays)
    np.testing.assert_allclose(found, on_host(layer, *arrays), rtol=1e-4, atol=1e-5)
    assert "a normalization of float32" in reason
    assert "first result" in reason


def test_one_call_in_place_of_several(cupy_backend: CupyBackend) -> None:
    counts = pytest.importorskip("emulated_cuda.counts")
    if not counts.available():
        pytest.skip("only the emulated device counts")
    arrays = [cupy_backend.put(array) for array in drawn("layer", (3, LONG), 1, FLOAT32)]
    launches = []
    for uses in (True, False):
        backend = cupy_backend._changed(uses_cudnn=uses)
        executable = backend.bind(layer, arrays, pytest.fail)
        executable.run(*arrays)
        with counts.counted() as cost:
            executable.run(*arrays)
        launches.append((cost.kernels, cost.library_calls))
    assert launches[0] == (0, 1)
    assert launches[1][0] > 2

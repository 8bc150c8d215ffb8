"""What a call costs on CuPy, counted by the emulated device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.onnx_builders import INT64, model, node, value
from tests.test_exporter_models import FOLDER, recorded_calls

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

counts = pytest.importorskip("emulated_cuda.counts", reason="the emulated device is not in here")

# Those that need no value of the device on the host.
NETWORKS = [
    "cnn_dynamo",
    "cnn_torchscript",
    "encoder_dynamo",
    "encoder_torchscript",
    "masks_dynamo",
    "mlp_dynamo",
    "separable_dynamo",
    "sklearn_linear_float64",
]


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    if not counts.available():
        pytest.skip("only the emulated device counts")


@pytest.fixture
def inputs(cupy_backend: CupyBackend) -> Iterator[Any]:
    def put(values: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        return {name: cupy_backend.put(array) for name, array in values.items()}

    with cupy_backend.scope():
        yield put


def cost_of(loaded: sardonyx.Model, inputs: dict[str, Any]) -> Any:
    """The counts of a replay, with arrays that lie on the device.

    The calls before are recorded, run by kernels, and captured.
    """
    for _ in range(4):
        loaded(**inputs)
    with counts.counted() as cost:
        loaded(**inputs)
    return cost


@pytest.mark.parametrize("name", NETWORKS)
def test_a_segment_never_waits_for_the_device(
    cupy_backend: CupyBackend, inputs: Any, name: str
) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=cupy_backend)
    feeds, _ = recorded_calls(name)[0]
    cost = cost_of(loaded, inputs(feeds))
    assert cost.kernels + cost.library_calls > 0
    assert (cost.synchronizations, cost.copies_to_host) == (0, 0)
    assert cost.allocations == 0, "memory that CuPy's pool had not kept"
    # What has no graph is not worth one.
    reasons = loaded.stats().uncaptured
    assert cost.graph_launches == (not reasons)
    assert all("no more than" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["cnn_dynamo", "encoder_dynamo"])
def test_a_network_is_one_graph(cupy_backend: CupyBackend, inputs: Any, name: str) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=cupy_backend)
    feeds, expected = recorded_calls(name)[0]
    arrays = inputs(feeds)
    cost = cost_of(loaded, arrays)
    assert loaded.stats().uncaptured == {}
    # The inputs and the result are copied, and nothing else.
    moved = sum(array.nbytes for array in [*arrays.values(), *expected.values()])
    assert (cost.graph_launches, cost.bytes_on_device) == (1, moved)


IDENTITY = model([node("Identity", ["x"], ["h"]), node("Identity", ["h"], ["y"])], ["x"], ["y"])
RESHAPED = model(
    [
        node("Flatten", ["x"], ["flat"]),
        node("Transpose", ["flat"], ["turned"], perm=[1, 0]),
        node("Unsqueeze", ["turned", "axes"], ["y"]),
    ],
    ["x"],
    ["y"],
    [onnx.numpy_helper.from_array(np.array([0]), "axes")],
)
SHAPE = model(
    [node("Shape", ["x"], ["shape"]), node("Size", ["x"], ["size"])],
    ["x"],
    [value("shape", None, INT64), value("size", None, INT64)],
)


X = np.ones((2, 3, 4), np.float32)


@pytest.mark.parametrize("proto", [IDENTITY, RESHAPED], ids=["identity", "views"])
def test_aliases_and_views_do_nothing_on_the_device(
    cupy_backend: CupyBackend, inputs: Any, proto: onnx.ModelProto
) -> None:
    loaded = sardonyx.load(proto, backend=cupy_backend)
    assert cost_of(loaded, inputs({"x": X})) == counts.Counts()


def test_shapes_launch_nothing(cupy_backend: CupyBackend) -> None:
    loaded = sardonyx.load(SHAPE, backend=cupy_backend)
    # The input is uploaded, though only its shape is read.
    uploaded = counts.Counts(copies_to_device=1, bytes_to_device=X.nbytes)
    assert cost_of(loaded, {"x": X}) == uploaded

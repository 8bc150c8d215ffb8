"""Weights in the forms that oneDNN's kernels read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.onednn import loaded
from tests.support import onnx_builders as builders
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_onednn import WINDOWS, convolution, drawn, matrix_product

pytestmark = NEEDS_ONEDNN


def test_a_weight_is_packed_alike_on_the_host_and_within_a_program() -> None:
    for product in [convolution(WINDOWS[1]), matrix_product((40, 64), (64, 48))]:
        weight = drawn(*product.form.weight.shape)
        packed = product.form.pack(weight)
        assert isinstance(packed, np.ndarray)
        assert (packed.shape, packed.dtype) == product.form.packed
        np.testing.assert_array_equal(jax.jit(product.form.pack)(weight), packed)


def test_a_transposed_weight_is_packed_as_it_lies() -> None:
    for rows, is_transposed in [(1, False), (40, False), (40, True), (200, True)]:
        shape = (48, 64) if is_transposed else (64, 48)
        product = matrix_product((rows, 64), shape, is_transposed=is_transposed)
        lies_turned = drawn(*shape[::-1]).T
        packed = product.form.pack(lies_turned.copy(order="C"))
        np.testing.assert_array_equal(product.form.pack(lies_turned), packed)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("columns", [1024, 1000, 90, 20])
def test_products_with_any_rows_share_the_form_of_a_weight(
    columns: int, is_transposed: bool
) -> None:
    """The form says which bytes are in memory: equal ones are equal."""
    shape = (columns, 192) if is_transposed else (192, columns)
    weight, packed = drawn(*shape), dict[Any, np.ndarray]()
    matrix = (weight.T if is_transposed else weight).astype(np.float64)
    for rows in [*range(1, 20), 32, 64, 65, 100, 128, 500]:
        x = drawn(rows, 192)
        for threads in (1, 2, 3):
            product = onednn.matrix_product(
                Spec(x.shape, x.dtype),
                Spec(shape, weight.dtype),
                is_transposed=is_transposed,
                threads=threads,
            )
            assert product is not None
            array = replace(product.form).pack(weight)
            np.testing.assert_array_equal(packed.setdefault(product.form, array), array)
            np.testing.assert_allclose(product.run(x, array), x @ matrix, atol=1e-3)
    assert len(packed) == 1


def test_a_model_packs_its_weights_once_for_sizes_with_the_same_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack, packed = loaded.pack, list[Any]()
    monkeypatch.setattr(loaded, "pack", lambda *own: packed.append(own) or pack(*own))
    proto = builders.model(
        [builders.node("MatMul", ["x", "w"], ["y"])],
        [builders.value("x", ["n", 192])],
        ["y"],
        weights=[builders.weight("w", drawn(192, 256))],
    )
    model = sardonyx.load(proto, backend="jax", buckets=None)
    for size in (400, 401, 500, 428):
        model(drawn(size, 192))
    assert len(packed) == 1


def product_and_tanh(rows: int, *, further: int = 0, filters: bool = False) -> ModelProto:
    """Rows times a matrix, between so many further steps, or followed by a convolution."""
    names = ["h", *(f"h{i}" for i in range(further)), "y"]
    steps = [builders.node("Tanh", [a], [b]) for a, b in pairwise(names)]
    weights = [builders.weight("w", drawn(32, 32))]
    results = ["y"]
    if filters:
        shape = builders.weight("shape", np.array([1, 1, rows, 32]))
        weights += [shape, builders.weight("filter", drawn(1, 1, 3, 3))]
        steps.append(builders.node("Reshape", ["h", "shape"], ["image"]))
        steps.append(builders.node("Conv", ["image", "filter"], ["z"]))
        results.append("z")
    product = builders.node("MatMul", ["x", "w"], ["h"])
    return builders.model(
        [product, *steps], [builders.value("x", [rows, 32])], results, weights=weights
    )


@pytest.mark.parametrize(
    ("proto", "count"),
    [
        (product_and_tanh(64), 0),
        (product_and_tanh(129), 1),
        (product_and_tanh(64, further=20), 1),
        (product_and_tanh(64, filters=True), 1),
    ],
    ids=["small", "many pairs", "many steps", "beside a convolution"],
)
def test_small_programs_leave_weights_to_numpy(
    proto: ModelProto, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, packed = loaded.pack, list[Any]()
    monkeypatch.setattr(loaded, "pack", lambda *own: packed.append(own) or pack(*own))
    x = drawn(proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value, 32)
    model = sardonyx.load(proto, backend="jax", compile="background")
    model.compile({"x": x})
    weight = numpy_helper.to_array(proto.graph.initializer[0])
    for w in (weight, 2 * weight):
        model.params["w"] = w
        reference = sardonyx.load(proto, backend="numpy")
        reference.params["w"] = w
        expected = reference.run(None, {"x": x})
        for found, other in zip(model.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(found, other, atol=1e-4)
    matrices = [own for own in packed if own[2].ndim == 2]
    assert bool(matrices) == bool(count)
    assert model.stats().written_out == 1 - count


def test_a_constant_of_another_size_leaves_the_weights_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the positions of a text, whose rows of a table are gathered ahead of the calls."""
    pack, packed = loaded.pack, list[Any]()
    monkeypatch.setattr(loaded, "pack", lambda *own: packed.append(own) or pack(*own))
    table, weights = drawn(600, 256), [drawn(192, 256), drawn(256, 256)]
    model = sardonyx.load(with_positions(table, *weights), backend="jax", buckets=None)
    for size in (400, 401, 500, 428):
        x = drawn(size, 192)
        expected = x @ weights[0] @ weights[1] + table[:size]
        np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-3)
    assert len(packed) == 2
    model.params["second"] = np.zeros((256, 256), np.float32)
    np.testing.assert_array_equal(model(x), table[:428])


def with_positions(table: np.ndarray, first: np.ndarray, second: np.ndarray) -> ModelProto:
    constants = {"start": np.int64(0), "step": np.int64(1), "axis": np.int64(0)}
    nodes = [
        *(
            builders.node("Constant", [], [name], value=numpy_helper.from_array(np.array(number)))
            for name, number in constants.items()
        ),
        builders.node("Shape", ["x"], ["shape"]),
        builders.node("Gather", ["shape", "axis"], ["count"]),
        builders.node("Range", ["start", "count", "step"], ["positions"]),
        builders.node("Gather", ["table", "positions"], ["rows"]),
        builders.node("MatMul", ["x", "first"], ["between"]),
        builders.node("MatMul", ["between", "second"], ["product"]),
        builders.node("Add", ["product", "rows"], ["y"]),
    ]
    arrays = {"table": table, "first": first, "second": second}
    weights = [builders.weight(name, array) for name, array in arrays.items()]
    return builders.model(nodes, [builders.value("x", ["n", 192])], ["y"], weights=weights)


def test_only_weights_of_its_own_shape_and_dtype_are_packed() -> None:
    product = matrix_product((40, 64), (64, 48))
    for weight in [drawn(48, 64), drawn(64, 48).astype(np.float64)]:
        with pytest.raises(ValueError, match="to be packed"):
            product.form.pack(weight)

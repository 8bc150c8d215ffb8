"""The namespace of operators: what it lists, how calls are read, and what calls cost."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.functions import eager
from sardonyx.functions.eager import Models

O = sardonyx.opset(20)  # noqa: E741
X = np.float32([[1, 2, 3], [4, 5, 6]])


def test_dir_lists_the_operators_of_the_opset() -> None:
    names = set(dir(O))
    assert {"Softmax", "Gelu", "Loop", "ml", "microsoft"} <= names
    assert "Attention" not in names
    assert "Upsample" not in names
    assert "Attention" in dir(sardonyx.opset(23))
    assert "Upsample" in dir(sardonyx.opset(9))
    assert "TreeEnsembleClassifier" in dir(O.ml)
    assert "TreeEnsemble" not in dir(O.ml)
    assert "SkipLayerNormalization" in dir(O.microsoft)
    assert sardonyx.opset(20, ml=5).ml.TreeEnsemble.__name__ == "TreeEnsemble"


@pytest.mark.parametrize("opset", [7, 13, 20, onnx.defs.onnx_opset_version()])
def test_every_operator_has_a_signature_and_a_text(opset: int) -> None:
    namespace = sardonyx.opset(opset)
    for each in (namespace, namespace.ml, namespace.training, namespace.microsoft):
        for name in dir(each):
            function = getattr(each, name)
            if callable(function):
                assert f"{name}{inspect.signature(function)}" in repr(function)
                assert function.__doc__.startswith(f"{name}(")
                assert name in function._repr_html_()


def test_signatures_have_the_defaults_of_the_opset() -> None:
    assert str(inspect.signature(O.Softmax)) == "(input, *, axis: int = -1)"
    assert inspect.signature(sardonyx.opset(11).Softmax).parameters["axis"].default == 1
    assert inspect.signature(O.Clip).parameters["min"].default is None
    assert inspect.signature(O.Cast).parameters["to"].default is inspect.Parameter.empty
    assert str(inspect.signature(O.Concat)) == "(*inputs, axis: int)"
    assert inspect.signature(O.LeakyRelu).parameters["alpha"].default == 0.01


def test_the_text_is_the_standards() -> None:
    text = pydoc.render_doc(O.Gemm)
    assert "General Matrix multiplication" in text
    for part in ("Inputs", "transB (int)", "Results", "T: "):
        assert part in O.Gemm.__doc__


def test_texts_in_notebooks_are_escaped() -> None:
    assert "<opset 20 of ai.onnx: " in repr(O)
    assert "Softmax" in O._repr_html_()
    assert "<script" not in O._repr_html_()


def test_inputs_by_name_attributes_and_numbers() -> None:
    np.testing.assert_array_equal(O.Clip(X, max=4.0), X.clip(max=4))
    np.testing.assert_array_equal(O.Clip(X, None, 2), X.clip(max=2))
    np.testing.assert_array_equal(O.Clip(max=np.float32(3), input=X), X.clip(max=3))
    np.testing.assert_array_equal(O.Gemm(X, X, transB=1), X @ X.T)
    np.testing.assert_array_equal(O.Gather(X, [2, 0], axis=1), X[:, [2, 0]])
    np.testing.assert_array_equal(O.Max(X, 3, [2, 9, 1]), np.maximum(X, [3, 9, 3]))
    np.testing.assert_array_equal(O.Concat(X, X, axis=0), np.concatenate([X, X]))
    np.testing.assert_array_equal(O.Concat(inputs=[X, X], axis=0), np.concatenate([X, X]))
    np.testing.assert_array_equal(O.Range(0, 6, 2), [0, 2, 4])
    assert O.Cast(X, to=np.int8).dtype == np.int8
    assert O.StringConcat("a", np.array(["b", "c"])).tolist() == ["ab", "ac"]


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint64, np.float16, np.float64, ml_dtypes.bfloat16, np.int32]
)
def test_a_number_takes_the_dtype_of_the_array(dtype: Any) -> None:
    x = np.array([1, 2], dtype)
    assert O.Add(x, 1).dtype == dtype
    assert O.Add(2, x).dtype == dtype
    assert jnp.asarray(O.Add(jnp.asarray(x), 1)).dtype == jnp.asarray(x).dtype


def test_results_are_named_and_counted() -> None:
    values, indices = O.TopK(X, [1])
    np.testing.assert_array_equal(values, X[:, 2:])
    assert O.TopK(X, [1])["Indices"].dtype == indices.dtype
    assert len(O.Split(X, num_outputs=3, axis=1)) == 3
    assert len(O.Split(X, [1, 2], axis=1)) == 2
    assert len(sardonyx.opset(13).Split(X, np.array([1, 2]), axis=1)) == 2
    assert isinstance(O.Dropout(X), np.ndarray)
    assert [each.dtype for each in O.Dropout(X, outputs=2)] == [np.float32, np.bool_]
    assert O.Dropout(X, outputs=["mask"]).dtype == np.bool_
    counts = O.Unique(np.float32([1, 1, 2]), outputs=["Y", "counts"])
    assert counts.keys() == ("Y", "counts")
    np.testing.assert_array_equal(counts["counts"], [2, 1])
    assert len(O.LSTM(np.ones((2, 1, 3), np.float32), np.ones((1, 16, 3), np.float32),
                      np.ones((1, 16, 4), np.float32), hidden_size=4)) == 3  # fmt: skip


def test_sequences_and_maps() -> None:
    sequence = O.SequenceConstruct(X, X)
    np.testing.assert_array_equal(O.SequenceAt(sequence, 1), X)
    assert O.SequenceLength([X, X, X]) == 3
    assert O.SequenceLength(O.SequenceInsert(O.SequenceEmpty(), X)) == 1
    assert O.ml.DictVectorizer({"a": 1.0}, string_vocabulary=["b", "a"]).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (O.Softmax, r"needs the input 'input'.*Softmax\(input, \*, axis: int = -1\)"),
        (lambda: O.Softmax(X, X), "takes at most 1 inputs"),
        (lambda: O.Softmax(X, axes=1), "has no input or attribute 'axes'"),
        (lambda: O.Softmax(X, input=X), "twice"),
        (lambda: O.Cast(X), "needs the attribute 'to'"),
        (lambda: O.Concat(axis=0), "needs the input 'inputs'"),
        (lambda: O.Concat(inputs=X, axis=0), "takes a list"),
        (lambda: O.Relu(X, outputs=2), "1 to 1 results, not 2"),
        (lambda: O.Relu(X, outputs=["Z"]), "has the results Y"),
        (lambda: sardonyx.opset(11).Split(X), "pass outputs="),
    ],
)
def test_arguments_that_do_not_fit_are_a_type_error(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text) as error:
        call()
    assert isinstance(error.value, sardonyx.InvalidInput)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: O.Add(np.int32([1]), 1.5), "without loss"),
        (lambda: O.Add(np.uint8([1]), 300), "300"),
        (lambda: O.Softmax(X, axis="a"), "axis"),
        (lambda: O.Softmax(X, axis=1.5), "axis"),
        (lambda: O.Add(X, object()), "object"),
        (lambda: O.Add(X, [[1], [1, 2]]), "array"),
        (lambda: O.MatMul(X, X), "MatMul"),
    ],
)
def test_values_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    with pytest.raises(sardonyx.SardonyxError, match=text):
        call()


def test_unknown_operators_say_what_comes_close() -> None:
    with pytest.raises(AttributeError, match="exists since opset 23"):
        _ = O.Attention
    with pytest.raises(AttributeError, match="Did you mean Softmax"):
        _ = O.Sotfmax
    with pytest.raises(AttributeError, match="deprecated"):
        _ = O.Upsample
    assert not hasattr(O, "nothing_like_it")
    assert not hasattr(O, "_ipython_display_")
    with pytest.raises(sardonyx.UnsupportedModel):
        sardonyx.opset(999)
    with pytest.raises(sardonyx.InvalidInput):
        sardonyx.opset(20, vision=1)


def test_namespaces_and_functions_can_be_copied_and_pickled() -> None:
    again = pickle.loads(pickle.dumps(O))
    assert repr(again) == repr(O)
    softmax = pickle.loads(pickle.dumps(copy.deepcopy(O).Softmax))
    np.testing.assert_array_equal(softmax(X), O.Softmax(X))


def test_jax_transforms_them() -> None:
    x = jnp.asarray(X)

    def loss(x: Any) -> Any:
        return O.ReduceSum(O.Mul(O.Softmax(O.Reshape(x, [3, 2])), 2), keepdims=0)

    np.testing.assert_allclose(jax.jit(loss)(x), 6, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(x), np.zeros((2, 3)), atol=1e-6)
    batched = jax.vmap(lambda row: O.Add(row, 1))(x)
    np.testing.assert_array_equal(batched, X + 1)
    values, _ = jax.jit(lambda x: O.TopK(x, [2]))(x)
    np.testing.assert_array_equal(values, [[3, 2], [6, 5]])
    assert jax.jit(lambda x: O.Split(x, num_outputs=3, axis=1))(x)[0].shape == (2, 1)


def test_results_are_arrays_of_the_callers_library() -> None:
    assert isinstance(O.Add(jnp.asarray(X), X), jax.Array)
    assert isinstance(O.Add(X, X), np.ndarray)
    assert isinstance(O.SequenceAt([jnp.asarray(X)], 0), jax.Array)


def test_models_are_kept_and_bounded() -> None:
    O.Elu(X, alpha=1.25)
    before = len(eager.MODELS)
    for _ in range(3):
        O.Elu(X, alpha=1.25)
    assert len(eager.MODELS) == before
    models: Any = Models(most=2)
    for key in "abc":
        models.keep(key, key)
    assert len(models) == 2
    assert models.get("a") is None


def test_keys_tell_alike_values_apart() -> None:
    assert O.Constant(value_float=0.0).tobytes() != O.Constant(value_float=-0.0).tobytes()
    assert O.Constant(value=np.float32([1])).dtype == np.float32
    assert O.Constant(value=np.int32([1])).dtype == np.int32
    assert np.isnan(O.Constant(value_float=float("nan")))
    large = np.zeros(2**17, np.uint8)
    before = len(eager.MODELS)
    assert O.Constant(value=large).shape == large.shape
    assert len(eager.MODELS) == before


def test_threads_share_models() -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(O.Add, X, float(i)) for i in range(64)]
        for i, run in enumerate(runs):
            np.testing.assert_array_equal(run.result(), X + i)


def test_views_scalars_and_empty_arrays() -> None:
    np.testing.assert_array_equal(O.Add(X.T[::-1], 1), X.T[::-1] + 1)
    assert O.Add(np.float32(1), np.float32(2)) == 3
    assert O.Relu(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_a_repeated_call_costs_no_milliseconds() -> None:
    for x in (X, jnp.asarray(X)):
        for _ in range(3):
            O.Relu(x)
        start = time.process_time()
        for _ in range(200):
            O.Relu(x)
        assert (time.process_time() - start) / 200 < 0.001


def test_arrays_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X)
    found = O.Add(O.Reshape(x, [3, 2]), 1)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), X.reshape(3, 2) + 1)

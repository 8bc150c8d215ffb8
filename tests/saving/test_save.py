"""Models as ONNX files: what is written is what was loaded, with the weights of now."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import sardonyx
from sardonyx.errors import InvalidInput
from tests.support.official_nodes import node_cases

MODELS = Path(__file__).parents[1] / "models"


def graph_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the data of initializers."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:
        name, dims, kind = tensor.name, list(tensor.dims), tensor.data_type
        tensor.Clear()
        tensor.name, tensor.data_type = name, kind
        tensor.dims[:] = dims
    return bare


@pytest.mark.parametrize("path", sorted(MODELS.rglob("*.onnx")), ids=lambda p: p.stem)
@pytest.mark.parametrize("external", [False, True])
def test_a_saved_model_is_the_loaded_one(path: Path, external: bool, tmp_path: Path) -> None:
    model = sardonyx.load(path, backend="numpy")
    saved = tmp_path / "saved.onnx"
    sardonyx.save(model, saved, external=external)
    assert graph_of(onnx.load(saved)) == graph_of(onnx.load(path))
    again = sardonyx.load(saved, backend="numpy")
    for name in model.params:
        assert again.params.host(name).tobytes() == model.params.host(name).tobytes()
    onnx.checker.check_model(saved)
    data = MODELS / f"{path.stem}.npz"
    if data.exists():
        arrays = np.load(data)
        feeds = {i.name: arrays[i.name] for i in model.inputs if i.name in arrays}
        if len(feeds) == len(model.inputs):
            for a, b in zip(model.run(None, feeds), again.run(None, feeds), strict=True):
                np.testing.assert_array_equal(a, b)


def test_models_of_the_official_suite_are_the_same_after_it(tmp_path: Path) -> None:
    for case in node_cases()[::5]:
        model = sardonyx.load(case.model, backend="numpy")
        sardonyx.save(model, tmp_path / "case.onnx")
        assert graph_of(onnx.load(tmp_path / "case.onnx")) == graph_of(case.model)


def everything() -> onnx.ModelProto:
    """A model with all that a file can say beside its graph."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "own": 1, "odd": 3],
        producer_name: "me", doc_string: "a text", metadata_props: ["k": "v"]>
        g (float[n] x) => (float[n] y) <float[2] w = {1.0, 2.0}, int64[1] one = {1}>
        { h = own.Twice(x) p = Mul(h, w) y = Squeeze_(p) }
        <domain: "own", opset_import: ["": 20]> Twice (a) => (b) { b = Add(a, a) }
    """.replace("Squeeze_(p)", "Identity(p)"))  # fmt: skip
    node = model.graph.node[0]
    node.name, node.doc_string = "the node", "doubles"
    node.metadata_props.add(key="layer", value="0")
    model.graph.doc_string = "of the graph"
    model.graph.initializer[0].doc_string = "a weight"
    model.graph.value_info.add(name="h").type.CopyFrom(model.graph.input[0].type)
    model.graph.quantization_annotation.add(tensor_name="w")
    return model


@pytest.mark.parametrize("form", ["proto", "bytes", "path"])
def test_nothing_that_a_file_says_is_lost(form: str, tmp_path: Path) -> None:
    proto, path = everything(), tmp_path / "m.onnx"
    onnx.save(proto, path)
    source: Any = {"proto": proto, "bytes": proto.SerializeToString(), "path": path}[form]
    model = sardonyx.load(source, backend="numpy")
    sardonyx.save(model, tmp_path / "saved.onnx")
    saved = onnx.load(tmp_path / "saved.onnx")
    assert graph_of(saved) == graph_of(proto)
    assert saved.graph.initializer[0].doc_string == "a weight"
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), [1, 2])


def test_weights_of_now_are_written(tmp_path: Path) -> None:
    model = sardonyx.load(everything(), backend="numpy")
    model.params["w"] = np.float32([5, 7])
    path = tmp_path / "m.onnx"
    sardonyx.save(model, path)
    x = np.float32([1, 2])
    np.testing.assert_array_equal(sardonyx.load(path)(x), [10, 28])
    np.testing.assert_array_equal(onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
                                  [10, 28])  # fmt: skip
    sardonyx.save(pickle.loads(pickle.dumps(model)), path)
    np.testing.assert_array_equal(sardonyx.load(path)(x), [10, 28])


def test_params_of_to_jax_are_written(tmp_path: Path) -> None:
    model = sardonyx.load(everything(), backend="jax")
    _, params = sardonyx.to_jax(model)
    trained = {name: array + 1 for name, array in params.items()}
    sardonyx.save(model, tmp_path / "m.onnx", params=trained)
    saved = sardonyx.load(tmp_path / "m.onnx", backend="numpy")
    np.testing.assert_array_equal(saved.params["w"], [2, 3])
    for wrong in ({"v": 1}, {"w": np.zeros(2)}, {"w": np.zeros(3, np.float32)}):
        with pytest.raises(InvalidInput):
            sardonyx.save(model, tmp_path / "m.onnx", params=wrong)


@pytest.mark.parametrize("external", [False, True])
def test_a_model_is_saved_over_the_files_that_it_maps(external: bool, tmp_path: Path) -> None:
    w = np.arange(2**16, dtype=np.float32)
    path = tmp_path / "m.onnx"
    first = sardonyx.record(lambda x: x * w, {"x": ("float32", [1])}, backend="numpy")
    sardonyx.save(first, path, external=external)
    assert (path.stat().st_size < 2**16) is external
    x = np.ones(1, np.float32)
    for scale in (2, 4):
        model = sardonyx.load(path, backend="numpy")
        model.params["w"] = model.params["w"] * 2
        sardonyx.save(model, path, external=external)
        np.testing.assert_array_equal(model(x), w * scale)
        np.testing.assert_array_equal(sardonyx.load(path, backend="numpy")(x), w * scale)
    expected = {"m.onnx", "m.onnx.data"} if external else {"m.onnx"}
    assert {each.name for each in tmp_path.iterdir()} == expected
    onnx.checker.check_model(path)
    (theirs,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_array_equal(theirs, w * 4)


ODD = [
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
    ml_dtypes.int4,
    ml_dtypes.uint2,
    ml_dtypes.float4_e2m1fn,
    ml_dtypes.float6_e2m3fn,
    np.complex128,
    np.bool_,
    np.uint16,
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ODD)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2**15 + 3,), (3, 2**15)])
@pytest.mark.parametrize("external", [False, True])
def test_weights_of_all_dtypes_and_sizes(
    dtype: Any, shape: Any, external: bool, tmp_path: Path
) -> None:
    w = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    tensor = numpy_helper.from_array(np.ascontiguousarray(w).reshape(shape), "w")
    kind = helper.make_tensor_value_info("w", tensor.data_type, shape)
    model = helper.make_model(helper.make_graph([], "g", [], [kind], [tensor]))
    loaded = sardonyx.load(model, backend="numpy")
    sardonyx.save(loaded, tmp_path / "m.onnx", external=external)
    again = sardonyx.load(tmp_path / "m.onnx", backend="numpy")
    found = again.params.host("w")
    assert (found.dtype, found.shape, found.tobytes()) == (w.dtype, w.shape, w.tobytes())


def test_strings_and_sparse_weights(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.float32([3, 4]), "s")
    indices = numpy_helper.from_array(np.int64([1, 3]))
    sparse = helper.make_sparse_tensor(values, indices, [5])
    words = helper.make_tensor("t", TensorProto.STRING, [2], [b"a", "ü".encode()])
    outputs = [helper.make_tensor_value_info("s", TensorProto.FLOAT, [5]),
               helper.make_tensor_value_info("t", TensorProto.STRING, [2])]  # fmt: skip
    graph = helper.make_graph([], "g", [], outputs, [words], sparse_initializer=[sparse])
    model = sardonyx.load(helper.make_model(graph), backend="numpy")
    sardonyx.save(model, tmp_path / "m.onnx")
    again = sardonyx.load(tmp_path / "m.onnx", backend="numpy")
    np.testing.assert_array_equal(again.params["s"], [0, 3, 0, 4, 0])
    assert again.params["t"].tolist() == ["a", "ü"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    model = sardonyx.load(everything(), backend="numpy")
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(InvalidInput, match="cannot be written"):
        sardonyx.save(model, target)
    with pytest.raises(InvalidInput, match="cannot be written"):
        sardonyx.save(model, tmp_path / "nowhere" / "m.onnx")
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(InvalidInput, match="pass a model"):
        sardonyx.save(everything(), tmp_path / "m.onnx")


def test_the_callers_proto_can_change_after_the_load(tmp_path: Path) -> None:
    proto = everything()
    model = sardonyx.load(proto, backend="numpy")
    expected = graph_of(proto)
    proto.graph.node[0].name = "another"
    proto.graph.initializer[0].float_data[:] = [9, 9]
    sardonyx.save(model, tmp_path / "m.onnx")
    saved = onnx.load(tmp_path / "m.onnx")
    assert graph_of(saved) == expected
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), [1, 2])

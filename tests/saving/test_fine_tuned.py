"""Trained params written into models of every form: onnxruntime runs the file with their values."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import sardonyx
from sardonyx.errors import InvalidInput
from sardonyx.saving import api

HEAD = '<ir_version: 10, opset_import: ["": 17{domains}]> g (float[2,400] x) => (float[2,400] y) '
W = np.random.default_rng(1).normal(size=400).astype(np.float32)
X = np.random.default_rng(0).normal(size=(2, 400)).astype(np.float32)


def parsed(body: str, domains: str = "") -> onnx.ModelProto:
    model = parser.parse_model(HEAD.replace("{domains}", domains) + body)
    model.graph.initializer.append(numpy_helper.from_array(W * 2, "w"))
    return model


def plain(folder: Path) -> onnx.ModelProto:
    return parsed("{ y = Mul(x, w) }")


def in_one_file(folder: Path) -> onnx.ModelProto:
    model = parsed("{ t = Mul(x, w) y = Add(t, v) }")
    model.graph.initializer.append(numpy_helper.from_array(W, "v"))
    for tensor in model.graph.initializer:
        outside(tensor, folder, "weights.bin")
    return model


def in_several_files(folder: Path) -> onnx.ModelProto:
    model = parsed("{ t = Mul(x, w) y = Add(t, v) }")
    model.graph.initializer.append(numpy_helper.from_array(W, "v"))
    for tensor in model.graph.initializer:
        outside(tensor, folder, f"{tensor.name}.bin")
    return model


def in_a_constant(folder: Path) -> onnx.ModelProto:
    model = parsed("{ c = Constant<value = float[1] {1}>() t = Mul(x, w) y = Add(t, c) }")
    tensor = model.graph.node[0].attribute[0].t
    tensor.CopyFrom(numpy_helper.from_array(W, "c"))
    outside(tensor, folder, "constant.bin")
    return model


def in_a_subgraph(folder: Path) -> onnx.ModelProto:
    model = parsed("""{ b = Constant<value = bool {1}>() y = If (b) <
        then_branch = one () => (float[2,400] o) { t = Add(x, v) o = Mul(t, w) },
        else_branch = two () => (float[2,400] p) { p = Relu(x) }> }""")
    inner = model.graph.node[1].attribute[0].g
    inner.initializer.append(numpy_helper.from_array(W, "v"))
    outside(inner.initializer[0], folder, "inner.bin")
    return model


def in_a_function(folder: Path) -> onnx.ModelProto:
    return parsed(
        """{ y = my.f(x, w) } <domain: "my", opset_import: ["": 17]> f (a, b) => (c)
        { k = Constant<value = float {4}>() t = Mul(a, b) c = Add(t, k) }""",
        ', "my": 1',
    )


def sparse(folder: Path) -> onnx.ModelProto:
    model = parsed("{ y = Mul(x, w) }")
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    places = numpy_helper.from_array(np.asarray([0, 5], np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [400]))
    del model.graph.initializer[:]
    return model


def quantized(folder: Path) -> onnx.ModelProto:
    return parsed("""<float s = {0.1}, int8 z = {0}>{ a = QuantizeLinear(w, s, z)
        b = DequantizeLinear(a, s, z) y = Mul(x, b) }""")


def outside(tensor: TensorProto, folder: Path, name: str) -> None:
    """Move the data of a tensor to the end of a file."""
    content = numpy_helper.to_array(tensor).tobytes()
    with open(folder / name, "ab") as file:
        place = {"location": name, "offset": file.tell(), "length": len(content)}
        file.write(content)
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))


FORMS = (plain, in_one_file, in_several_files, in_a_constant, in_a_subgraph, in_a_function, sparse,
         quantized)  # fmt: skip


def in_onnxruntime(path: Path, **inputs: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("external", [False, True, None])
@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_any_form_is_trained_saved_and_run(
    form: Callable[[Path], onnx.ModelProto], external: bool | None, tmp_path: Path
) -> None:
    onnx.save(form(tmp_path), tmp_path / "m.onnx")
    model = sardonyx.load(tmp_path / "m.onnx", backend="jax")
    fn, params = sardonyx.to_jax(model)
    before = np.asarray(model(X))
    slopes = jax.grad(lambda params: jnp.sum(fn(params, X) ** 2))(params)
    tuned = {name: array - 0.01 * slopes[name] for name, array in params.items()}
    tuned["w"] = tuned["w"] + 1
    expected = fn(tuned, X)
    for path in (tmp_path / "out" / "tuned.onnx", tmp_path / "m.onnx"):
        path.parent.mkdir(exist_ok=True)
        sardonyx.save(model, path, params=tuned, external=external)
        onnx.checker.check_model(path)
        np.testing.assert_allclose(in_onnxruntime(path, x=X), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(sardonyx.load(path)(X), expected, rtol=1e-5, atol=1e-5)
    # The model in memory is still the one that was loaded, although its files are others now.
    np.testing.assert_array_equal(np.asarray(model(X)), before)


def test_params_in_a_narrower_type_get_that_of_the_model(tmp_path: Path) -> None:
    model = sardonyx.load(plain(tmp_path), backend="jax")
    for dtype in ("bfloat16", "float16"):
        _, params = sardonyx.to_jax(model, dtype=dtype)
        sardonyx.save(model, tmp_path / "m.onnx", params=params)
        saved = sardonyx.load(tmp_path / "m.onnx").params["w"]
        assert saved.dtype == np.float32
        np.testing.assert_array_equal(saved, np.asarray(params["w"], np.float32))


def test_params_of_a_float64_model_in_32_bits_are_written(tmp_path: Path) -> None:
    model = sardonyx.load("tests/models/sklearn_linear_float64.onnx")
    _, params = sardonyx.to_jax(model)
    assert params["coef"].dtype == np.float32
    sardonyx.save(model, tmp_path / "m.onnx", params=params)
    assert sardonyx.load(tmp_path / "m.onnx").params["coef"].dtype == np.float64


def test_bfloat16_weights_stay_bfloat16(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 22]> g (float[2,3] x) => (float[2,3] y) '
    proto = parser.parse_model(text + "{ h = Cast<to=16>(x) p = Mul(h, w) y = Cast<to=1>(p) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(3, ml_dtypes.bfloat16), "w"))
    model = sardonyx.load(proto)
    sardonyx.save(model, tmp_path / "m.onnx", params={"w": jnp.full(3, 2, jnp.bfloat16)})
    again = sardonyx.load(tmp_path / "m.onnx", backend="numpy")
    assert again.params["w"].dtype == ml_dtypes.bfloat16
    assert again(np.ones((2, 3), np.float32)).tolist() == [[2, 2, 2]] * 2
    with pytest.raises(InvalidInput, match=r"is float32\[3\], but the model has bfloat16\[3\]"):
        sardonyx.save(model, tmp_path / "m.onnx", params={"w": jnp.ones(3)})


@pytest.mark.slow
def test_merged_overlays_and_params_of_a_mesh_are_written(tmp_path: Path) -> None:
    model = sardonyx.load("examples/encoder.onnx", backend="jax")
    fn, params = sardonyx.to_jax(model)
    adapters = sardonyx.lora_init(params, rank=2, key=0)
    adapters = jax.tree.map(lambda array: array + 0.1, adapters)
    merged = sardonyx.apply_overlays(params, adapters)
    divided = sardonyx.shard(model, jax.make_mesh((1,), ("data",))).params
    x = np.ones((1, 8, 48), np.float32)
    for each in (merged, divided):
        sardonyx.save(model, tmp_path / "m.onnx", params=each)
        expected = fn(params | dict(each), x)
        np.testing.assert_allclose(in_onnxruntime(tmp_path / "m.onnx", x=x), expected, atol=1e-5)


def test_weights_beyond_the_limit_of_one_file_go_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = np.arange(2**16, dtype=np.float32)
    monkeypatch.setattr(api, "LARGEST_INSIDE", w.nbytes)
    model = sardonyx.record(lambda x: x * w, {"x": ("float32", [1])}, backend="numpy")
    sardonyx.save(model, tmp_path / "m.onnx", params={"w": w + 1})
    assert (tmp_path / "m.onnx.data").stat().st_size == w.nbytes
    x = np.ones(1, np.float32)
    np.testing.assert_array_equal(in_onnxruntime(tmp_path / "m.onnx", x=x), w + 1)


@pytest.mark.parametrize("params", [3, "w", [("w", W)], {"w"}, W])
def test_params_that_are_no_dict_are_refused(params: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="pass a dict from names of initializers to arrays"):
        sardonyx.save(sardonyx.load(plain(tmp_path)), tmp_path / "m.onnx", params=params)


@pytest.mark.parametrize("path", [3, None, "", "a\0b", b"m.onnx"])
def test_what_is_no_path_is_refused(path: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="A model is saved to the path of a file, not"):
        sardonyx.save(sardonyx.load(plain(tmp_path)), path)


@pytest.mark.slow
def test_the_example_ends_in_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "back_to_onnx.py"
    monkeypatch.setattr("sys.argv", [str(example), str(tmp_path / "trained.onnx")])
    runpy.run_path(str(example), run_name="__main__")
    before, after, difference = capsys.readouterr().out.splitlines()
    assert int(before.split(":")[1].split("%")[0]) < 70
    assert int(after.split(":")[1].split("%")[0]) > 85
    assert float(difference.rpartition(" ")[2]) < 1e-4

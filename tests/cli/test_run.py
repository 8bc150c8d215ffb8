"""`sardonyx run`: files, images and random inputs on one backend or several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.cli.main import main
from tests.cli.models import ENCODER, STORED, saved

X = np.arange(6, dtype=np.float32).reshape(3, 2)
K = np.arange(3).reshape(3, 1)
IMAGE = "g (float[1, 3, 4, 6] x) => (float[1, 3, 4, 6] y) { y = Identity (x) }"


def outputs_of(arguments: list[str], folder: Path) -> Mapping[str, Any]:
    """Run a command that writes its outputs, and return them."""
    path = folder / "outputs.npz"
    assert main(["run", *arguments, "--output", str(path), "--quiet"]) == 0
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def require_sums(outputs: Mapping[str, Any]) -> None:
    np.testing.assert_allclose(outputs["y"], np.exp(X + np.float32([1, 2])), rtol=1e-6)
    np.testing.assert_array_equal(outputs["l"], K + K)


@pytest.mark.parametrize("backend", ["jax", "numpy", "onnxruntime"])
def test_inputs_from_files(backend: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    np.save(tmp_path / "x=1.npy", X)
    np.savez(tmp_path / "both.npz", x=X, k=K)
    np.savez(tmp_path / "ordered.npz", X, K)
    on = ["--backend", backend]
    (tmp_path / "k.pb").write_bytes(numpy_helper.from_array(K).SerializeToString())
    parts = ["--input", f"x={tmp_path}/x=1.npy", "-i", f"k={tmp_path}/k.pb"]
    require_sums(outputs_of([path, *parts, *on], tmp_path))
    require_sums(outputs_of([path, "--input", f"{tmp_path}/both.npz", *on], tmp_path))
    require_sums(outputs_of([path, "--input", f"{tmp_path}/ordered.npz", *on], tmp_path))


def test_one_input_needs_no_name(tmp_path: Path) -> None:
    with np.load(STORED) as stored:
        x, y = stored["0/in/x"], stored["0/out/y"]
    np.save(tmp_path / "any.npy", x)
    found = outputs_of([ENCODER, "--input", f"{tmp_path}/any.npy", "--backend", "numpy"], tmp_path)
    np.testing.assert_allclose(found["y"], y, atol=1e-5)


def test_random_inputs_are_those_of_the_seed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    command = [path, "--random", "--backend", "numpy", "--shape", "x=3,2"]
    first = outputs_of(command, tmp_path)
    assert first["y"].shape == (3, 2)
    assert first["l"].shape == (3, 1), "the inputs share the dimension n"
    assert set(first["l"].ravel()) <= {0, 2}
    again = outputs_of(command, tmp_path)
    np.testing.assert_array_equal(first["y"], again["y"])
    other = outputs_of([*command, "--seed", "7", "--integers-below", "1000"], tmp_path)
    assert not np.array_equal(first["y"], other["y"])
    assert other["l"].max() > 2


def test_drawn_beside_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path)
    np.save(tmp_path / "x.npy", X)
    command = [path, "--input", f"x={tmp_path}/x.npy", "--random", "--backend", "numpy"]
    np.testing.assert_allclose(outputs_of(command, tmp_path)["y"], np.exp(X + np.float32([1, 2])))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind",
    ["float16", "bfloat16", "double", "int8", "uint8", "bool", "string", "int4", "float8e4m3fn"],
)
def test_random_inputs_of_each_type(kind: str, tmp_path: Path) -> None:
    path = saved(
        tmp_path, f"g ({kind}[2, 3] x, {kind} s) => ({kind}[2, 3] y) {{ y = Identity (x) }}"
    )
    found = outputs_of([path, "--random", "--backend", "numpy"], tmp_path)
    assert found["y"].shape == (2, 3)


def test_types_that_numpy_has_no_name_for_come_back(tmp_path: Path) -> None:
    path = saved(tmp_path, "g (bfloat16[3] x) => (bfloat16[3] y) { y = Neg (x) }")
    x = np.float32([1, 2, 3]).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", x=x)
    found = outputs_of([path, "--input", f"{tmp_path}/x.npz", "--backend", "numpy"], tmp_path)
    np.testing.assert_array_equal(found["y"].view(ml_dtypes.bfloat16), -x)


def write_test_data(folder: Path, y: np.ndarray[Any, Any]) -> Path:
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    arrays = {"input_0": X, "input_1": K, "output_0": y, "output_1": K + K}
    for name, array in arrays.items():
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return data


def test_data_of_onnx_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path)
    y = np.exp(X + np.float32([1, 2]))
    command = ["run", path, "--backend", "numpy", "--input"]
    assert main([*command, str(write_test_data(tmp_path, y))]) == 0
    assert "numpy and test data" in capsys.readouterr().out
    data = str(write_test_data(tmp_path, y * np.float32(1.001)))
    assert main([*command, data]) == 1
    assert "differs" in capsys.readouterr().out
    assert main([*command, data, "--tolerance", "0.01"]) == 0


def test_sequences_and_optionals(tmp_path: Path) -> None:
    """Of a folder of test data; an optional input may be absent."""
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n"])
    kinds = [helper.make_sequence_type_proto(tensor), helper.make_optional_type_proto(tensor)]
    inputs = [helper.make_value_info(name, kind) for name, kind in zip("so", kinds, strict=True)]
    outputs = [
        helper.make_value_info("y", tensor),
        helper.make_tensor_value_info("h", onnx.TensorProto.BOOL, []),
    ]
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        helper.make_node("OptionalHasElement", ["o"], ["h"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    path = str(tmp_path / "m.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    data = tmp_path / "data"
    data.mkdir()
    parts = [np.float32([1]), np.float32([2, 3])]
    (data / "input_0.pb").write_bytes(numpy_helper.from_list(parts).SerializeToString())
    command = [path, "--input", str(data), "--backend", "numpy"]
    found = outputs_of(command, tmp_path)
    np.testing.assert_array_equal(found["y"], [1, 2, 3])
    assert not found["h"]
    optional = numpy_helper.from_optional(np.float32([5]), "o")
    (data / "input_1.pb").write_bytes(optional.SerializeToString())
    assert outputs_of(command, tmp_path)["h"]


def gradient_image(folder: Path, name: str = "image.png", size: tuple[int, int] = (6, 4)) -> Path:
    image = pytest.importorskip("PIL.Image", reason="no Pillow; pip install 'sardonyx[images]'")
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[..., 0] = 255
    pixels[..., 1] = np.arange(size[0])
    path = folder / name
    image.fromarray(pixels).save(path)
    return path


def test_an_image_of_the_right_size(tmp_path: Path) -> None:
    path, image = saved(tmp_path, IMAGE), gradient_image(tmp_path)
    on = ["--backend", "numpy", "--input", f"x={image}"]
    y = outputs_of([path, *on], tmp_path)["y"]
    np.testing.assert_array_equal(y[0, 0], np.ones((4, 6)))
    np.testing.assert_allclose(y[0, 1, 0], np.arange(6) / 255, rtol=1e-6)
    y = outputs_of([path, *on, "--pixels", "-1..1"], tmp_path)["y"]
    assert (y.min(), y.max()) == (-1, 1)
    y = outputs_of([path, *on, "--pixels", "0..255"], tmp_path)["y"]
    assert y.max() == 255
    y = outputs_of([path, *on, "--pixels", "imagenet"], tmp_path)["y"]
    np.testing.assert_allclose(y[0, 0, 0, 0], (1 - 0.485) / 0.229, rtol=1e-6)
    np.testing.assert_allclose(y[0, 2, 0, 0], -0.406 / 0.225, rtol=1e-6)
    y = outputs_of([path, *on, "--mean", "1,0,0", "--std", "2"], tmp_path)["y"]
    np.testing.assert_allclose(y[0, 0], 0)


def test_images_of_other_sizes_and_layouts(tmp_path: Path) -> None:
    image = gradient_image(tmp_path, "large.jpg", (60, 20))
    last = "g (uint8[1, h, w, 3] x) => (uint8[1, h, w, 3] y) { y = Identity (x) }"
    path = saved(tmp_path, last)
    on = ["--backend", "numpy", "--input", str(image)]
    assert outputs_of([path, *on], tmp_path)["y"].shape == (1, 20, 60, 3)
    for fit in ("crop", "pad", "stretch"):
        command = [path, *on, "--fit", fit, "--shape", "x=1,8,8,3"]
        assert outputs_of(command, tmp_path)["y"].shape == (1, 8, 8, 3)
    path = saved(tmp_path, "g (float[4, 4] x) => (float[4, 4] y) { y = Identity (x) }")
    assert outputs_of([path, *on], tmp_path)["y"].shape == (4, 4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ("float[n, c, h, w]", [], "--layout nchw or nhwc"),
        ("float[4]", [], "is no image of 2 to 4 axes"),
        ("string[1, 3, 4, 6]", [], "takes no numbers"),
        ("float[8, 3, 4, 6]", [], "takes 8 images at once"),
        ("float[1, 5, 4, 6]", ["--layout", "nchw"], "5 channels"),
        ("uint8[1, 3, 4, 6]", ["--mean", "0.5"], "pixels of 0 to 255"),
        ("float[1, 3, 4, 6]", ["--mean", "0.5,0.5"], "2 numbers for them"),
    ],
)
def test_images_that_do_not_fit(
    graph: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved(tmp_path, f"g ({graph} x) => ({graph} y) {{ y = Identity (x) }}")
    image = gradient_image(tmp_path)
    assert main(["run", path, "--backend", "numpy", "--input", f"x={image}", *options]) == 1
    assert message in capsys.readouterr().err


def test_backends_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on = [f"--backend={name}" for name in ("jax", "numpy", "onnxruntime")]
    command = ["run", ENCODER, "--random", "--shape", "x=2,5,48", *on]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "jax and numpy" in told
    assert told.count("agrees") == 2
    assert main([*command, "--json", "--tolerance", "1e-12"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [run["backend"] for run in found["runs"]] == ["jax", "numpy", "onnxruntime"]
    assert not found["agrees"]
    (row,) = found["runs"][0]["outputs"]
    assert (row["name"], row["dtype"], row["shape"]) == ("y", "float32", [2, 5, 48])
    assert row["min"] < row["mean"] < row["max"]
    assert len(row["first"]) == 3


def test_a_model_that_only_onnxruntime_runs(tmp_path: Path) -> None:
    """Its inputs are known without a backend; ours refuse the string of this attribute."""
    text = "g (float[2] x) => (float[2] y) { y = Identity (x) }"
    found = outputs_of([saved(tmp_path, text), "--random", "--backend", "onnxruntime"], tmp_path)
    assert found["y"].shape == (2,)


def test_random_operators_draw_the_same_on_each_backend(tmp_path: Path) -> None:
    path = saved(tmp_path, "g () => (float[3] y) { y = RandomNormal <shape = [3]> () }")
    drawn = [
        outputs_of([path, "--backend", name, "--seed", seed], tmp_path)["y"]
        for name, seed in (("numpy", "1"), ("jax", "1"), ("numpy", "2"))
    ]
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-5)
    assert not np.allclose(drawn[0], drawn[2])


def test_nan_and_emptiness_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(
        tmp_path,
        """g (float[n] x) => (float[n] y, float[0] e, string[1] t) {
          y = Sqrt (x)
          e = Constant <value = float[0] {}> ()
          t = Constant <value = string[1] {"[red]"}> ()
        }""",
    )
    np.save(tmp_path / "x.npy", np.float32([-1, 4, np.inf]))
    command = ["run", path, "--backend", "numpy", "--input", f"{tmp_path}/x.npy"]
    assert main(command) == 0
    told = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line}
    assert rows["y"][1:6] == ["float32[3]", "2", "inf", "inf", "1"]
    assert rows["e"][1:] == ["float32[0]", "0"]
    assert rows["t"][-1] == "[red]"
    assert main([*command, "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["runs"][0]["outputs"]
    assert outputs[0]["first"] == ["nan", 2.0, "inf"]


def test_models_without_inputs_and_with_overridable_weights(tmp_path: Path) -> None:
    path = saved(tmp_path, "g () => (float[1] y) { y = Constant <value = float[1] {3.0}> () }")
    np.testing.assert_array_equal(outputs_of([path, "--backend", "numpy"], tmp_path)["y"], [3])
    text = """g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {2.0}> { y = Mul (x, w) }"""
    path = saved(tmp_path, text)
    np.save(tmp_path / "x.npy", np.float32([3]))
    on = ["--backend", "numpy", "--input", f"x={tmp_path}/x.npy"]
    np.testing.assert_array_equal(outputs_of([path, *on], tmp_path)["y"], [6])
    more = ["--input", f"w={tmp_path}/x.npy"]
    np.testing.assert_array_equal(outputs_of([path, *on, *more], tmp_path)["y"], [9])


@pytest.mark.slow
def test_exported_programs_run(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers", reason="no flatbuffers; pip install 'sardonyx[export]'")
    artefact = sardonyx.export(ENCODER, {"x": ("batch", 4, 48)}, ["cpu"])
    path = str(artefact.save(tmp_path / "e.sardonyx"))
    found = outputs_of([path, "--random", "--shape", "x=2,4,48"], tmp_path)
    assert found["y"].shape == (2, 4, 48)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass it as in --input x=x.npy, or draw it with --random"),
        (["--random"], "pass them as in --shape x=1,2"),
        (["--random", "--shape", "z=1"], "no input 'z'; it takes x, k"),
        (["--random", "--shape", "x=9999999999,2"], "too large for this machine"),
        (["--random", "--shape", "x=3,5"], "'x' must have size 2"),
        (["--input", "z=x.npy"], "no input 'z'"),
        (["--input", "x=no.npy"], "There is no file 'no.npy'"),
        (["--input", "x="], "There is no file ''"),
        (["--input", "x.npy", "--random"], "several inputs (x, k)"),
        (["--input", "x=bad.npy"], "can be read from 'bad.npy'"),
        (["--input", "x=objects.npy"], "it holds Python objects"),
        (["--input", "x=bad.npz"], "can be read from 'bad.npz'"),
        (["--input", "x=bad.pb"], "can be read from 'bad.pb'"),
        (["--input", "x=bad.png"], "No image can be read from 'bad.png'"),
        (["--input", "x=."], "is a folder"),
        (["--input", "."], "has no input_0.pb"),
        (["--input", "other.npz"], "an array 'z'"),
        (["--input", "x=x.npy", "--input", "x=x.npy"], "'x' is passed twice"),
        (["--random", "--shape", "x=3,2", "-o", "no/such/folder"], "cannot be written to"),
        (["--random", "--shape", "x=3,2", "--device", "cpu:7", "--backend", "jax"], "cpu:7"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("bad.npy", "bad.npz", "bad.pb", "bad.png"):
        Path(name).write_bytes(b"\x93NUMPY nothing of the kind \xff")
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.save("x.npy", X)
    np.savez("other.npz", z=X)
    backend = [] if "--backend" in arguments else ["--backend", "numpy"]
    assert main(["run", path, *arguments, *backend]) == 1
    told = capsys.readouterr()
    assert not told.out
    (line,) = told.err.splitlines()
    assert line.startswith("sardonyx: ")
    assert message in line


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "abacus"],
        ["--seed", "-1"],
        ["--seed", "many"],
        ["--mean", "a,b"],
        ["--std", "0"],
        ["--pixels", "0..7"],
        ["--tolerance", "-1"],
        ["--precision", "vague"],
        ["--shape", "x=1", "--shape", "x=2"],
        ["--shape", "x"],
        ["--no-such-option"],
        ["another.onnx"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", ENCODER, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("See 'sardonyx run --help'.")

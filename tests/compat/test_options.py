"""Options of sessions and calls: the same names and defaults, and an effect or a refusal."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import sardonyx
import sardonyx.compat
import sardonyx.types
from sardonyx.backends import processors

from sardonyx.compat.capi.onnxruntime_pybind11_state import Fail, ModelLoadCanceled, NotImplemented  # noqa: A004  # fmt: skip  # isort: skip
from sardonyx.compat import environment
from sardonyx.compat.options import SessionOptions
from tests.compat.pairs import CPU, FEEDS, MODULES, TWO, X, both_modules, parsed, same, session
from tests.support.raises import refused

SCALED = parsed("g (float[N] x) => (float[N] y) { y = Mul(x,w) }")
SCALED.graph.initializer.append(numpy_helper.from_array(np.full(1, 2, np.float32), "w"))
ONE = np.ones(2, np.float32)


def public(value: Any) -> set[str]:
    return {name for name in dir(value) if name[0] != "_"}


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_all_names_and_defaults_are_there(kind: str) -> None:
    theirs, ours = (getattr(ort, kind)() for ort in MODULES)
    assert public(theirs) - public(ours) == set()
    for name in public(theirs):
        expected = getattr(theirs, name)
        if not callable(expected):
            found = getattr(ours, name)
            assert str(found) == str(expected), name
            assert type(found) is type(expected) or int(found) == int(expected)


@pytest.mark.parametrize(
    "kind",
    ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtAllocatorType", "OrtMemType"],
)
def test_enumerations_are_the_same(kind: str) -> None:
    def body(ort: ModuleType) -> Any:
        members = getattr(ort, kind).__members__.items()
        return [(name, int(each), str(each), f"{each}", each.value) for name, each in members]

    assert isinstance(same(body), list)


def test_all_names_of_the_module_are_there() -> None:
    about_plugins = {
        "OrtCompileApiFlags", "OrtDeviceMemoryType", "OrtEpAssignedNode", "OrtEpAssignedSubgraph",
        "OrtEpContextData", "OrtEpContextDataBuffer", "OrtEpDevice",
        "OrtExecutionProviderDevicePolicy", "OrtExternalInitializerInfo", "OrtHardwareDevice",
        "OrtHardwareDeviceType", "OrtMemoryInfoDeviceType", "OrtSyncStream", "OrtSparseFormat",
    }  # fmt: skip
    missing = public(onnxruntime) - public(sardonyx.compat) - {"import_capi_exception"}
    names = {n for n in missing if not isinstance(getattr(onnxruntime, n), ModuleType)}
    assert names <= about_plugins


@pytest.mark.parametrize("kind", ["InferenceSession", "OrtValue", "IOBinding", "OrtDevice"])
def test_all_names_of_a_class_are_there(kind: str) -> None:
    theirs, ours = (getattr(ort, kind) for ort in MODULES)
    assert public(theirs) - public(ours) == set()


WRONG = [
    ("intra_op_num_threads", "2"),
    ("intra_op_num_threads", 2.0),
    ("intra_op_num_threads", 2**40),
    ("enable_profiling", "x"),
    ("graph_optimization_level", 99),
    ("execution_mode", 1),
    ("logid", 5),
    ("profile_file_prefix", None),
]
RIGHT = [
    ("intra_op_num_threads", True),
    ("intra_op_num_threads", np.int64(3)),
    ("log_severity_level", 99),
    ("enable_profiling", 1),
    ("enable_mem_pattern", None),
    ("logid", "q"),
]


def assigned(ort: ModuleType, name: str, value: Any) -> Any:
    options = ort.SessionOptions()
    setattr(options, name, value)
    return getattr(options, name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "value"), [*WRONG, *RIGHT])
def test_an_attribute_is_checked_when_it_is_set(name: str, value: Any) -> None:
    outcome = same(lambda ort: assigned(ort, name, value))
    assert (outcome == "TypeError") == ((name, value) in WRONG)


def test_an_attribute_that_nobody_has() -> None:
    assert same(lambda ort: assigned(ort, "nonsense", 1)) == "AttributeError"


def test_entries() -> None:
    def body(ort: ModuleType) -> Any:
        options, of_a_call = ort.SessionOptions(), ort.RunOptions()
        options.add_session_config_entry("a", "b")
        options.add_session_config_entry("a", "c")
        of_a_call.add_run_config_entry("d", "e")
        return options.get_session_config_entry("a"), of_a_call.get_run_config_entry("d")

    assert same(body) == ("c", "e")
    for key, value in (("", "b"), ("k" * 2000, "b"), (1, "b"), ("a", 1)):
        same(lambda ort, k=key, v=value: ort.SessionOptions().add_session_config_entry(k, v))
    assert same(lambda ort: ort.SessionOptions().get_session_config_entry("q")) == "RuntimeError"
    assert same(lambda ort: ort.RunOptions().get_run_config_entry("q")) == "RuntimeError"


def shapes(ort: ModuleType, model: onnx.ModelProto, name: str, size: Any, way: str) -> Any:
    options = ort.SessionOptions()
    getattr(options, f"add_free_dimension_override_by_{way}")(name, size)
    loaded = session(ort, model, sess_options=options)
    args = (*loaded.get_inputs(), *loaded.get_outputs())
    return [arg.shape for arg in args], loaded.run(None, FEEDS)


def test_free_dimensions_get_sizes() -> None:
    for size in (2, 3, 0, "3", 3.0):
        same(lambda ort, size=size: shapes(ort, TWO, "N", size, "name"))
    assert same(lambda ort: shapes(ort, TWO, "N", 3, "name")) == "InvalidArgument"
    same(lambda ort: shapes(ort, TWO, "Q", 3, "name"))
    denoted = onnx.ModelProto.FromString(TWO.SerializeToString())
    denoted.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    found, _ = same(lambda ort: shapes(ort, denoted, "DATA_BATCH", 2, "denotation"))
    assert found == [[2, 4], ["N", 4], [2, 4], [2, 4]]
    assert same(lambda ort: shapes(ort, denoted, "DATA_BATCH", 3, "denotation")) == "InvalidArgument"  # fmt: skip  # noqa: E501


def test_an_initializer_is_replaced() -> None:
    def body(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        new = ort.OrtValue.ortvalue_from_numpy(np.full(1, 7, np.float32))
        options.add_initializer("w", new)
        options.add_initializer("not of this model", new)
        return session(ort, SCALED, sess_options=options).run(None, {"x": ONE})

    np.testing.assert_array_equal(same(body)[0], [7, 7])
    assert same(lambda ort: ort.SessionOptions().add_initializer("w", ONE)) == "RuntimeError"


def test_an_initializer_is_replaced_by_another_type() -> None:
    """Onnxruntime then reads the wrong bytes."""
    for wrong in (np.ones(2, np.float32), np.ones(1)):
        options = SessionOptions()
        options.add_initializer("w", sardonyx.compat.OrtValue.ortvalue_from_numpy(wrong))
        with refused(Fail, "'w'", "alike"):
            session(sardonyx.compat, SCALED, sess_options=options)


def test_external_initializers(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    proto = onnx.ModelProto.FromString(SCALED.SerializeToString())
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    (tmp_path / "w.bin").unlink()
    content = path.read_bytes()

    def run(ort: ModuleType, model: bytes, name: str, array: Any) -> Any:
        options = ort.SessionOptions()
        options.add_external_initializers([name], [ort.OrtValue.ortvalue_from_numpy(array)])
        return ort.InferenceSession(model, options, providers=CPU).run(None, {"x": ONE})

    seven = np.full(1, 7, np.float32)
    np.testing.assert_array_equal(same(lambda ort: run(ort, content, "w", seven))[0], [7, 7])
    assert same(lambda ort: run(ort, content, "q", seven)) == "Fail"
    assert same(lambda ort: run(ort, content, "w", ONE)) == "Fail"
    assert same(lambda ort: run(ort, content, "w", seven.astype(np.float64))) == "Fail"
    inline = SCALED.SerializeToString()
    assert same(lambda ort: run(ort, inline, "w", seven)) == "Fail"

    def in_memory(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        data = seven.tobytes()
        options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
        return ort.InferenceSession(content, options, providers=CPU).run(None, {"x": ONE})

    np.testing.assert_array_equal(same(in_memory)[0], [7, 7])


def test_the_level_of_optimization_decides_on_rewrites() -> None:
    options = SessionOptions()
    assert options.load_options() == {}
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert options.load_options() == {"rewrites": False}
    options.use_deterministic_compute = True
    assert options.load_options() == {"rewrites": False, "compile": "now"}
    loaded = session(sardonyx.compat, sess_options=options)
    assert not loaded._model._source.rewrites
    np.testing.assert_array_equal(loaded.run(["y"], FEEDS)[0], X + X)


def test_options_of_onnxruntime_itself_are_understood() -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 3
    kept = session(sardonyx.compat, sess_options=options).get_session_options()
    assert kept.graph_optimization_level == 0
    assert kept.intra_op_num_threads == 3


@both_modules
def test_a_session_has_options_of_its_own(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    loaded = session(ort, sess_options=options)
    options.logid = "later"
    kept = loaded.get_session_options()
    assert kept.logid == ""
    assert kept is loaded.get_session_options()


def test_what_is_refused_says_what_to_use() -> None:
    options = SessionOptions()
    options.optimized_model_filepath = "model.onnx"
    with refused(NotImplemented, "optimized_model_filepath", "sardonyx.save"):
        session(sardonyx.compat, sess_options=options)
    with refused(NotImplemented, "lib.so", "ops="):
        SessionOptions().register_custom_ops_library("lib.so")
    for key, value in (("session.load_model_format", "ORT"), ("ep.context_enable", "1")):
        options = SessionOptions()
        options.add_session_config_entry(key, value)
        with refused(NotImplemented):
            session(sardonyx.compat, sess_options=options)
    for use in (
        lambda: SessionOptions().set_provider_selection_policy(0),
        lambda: SessionOptions().add_provider_for_devices([], {}),
        lambda: sardonyx.compat.RunOptions().add_active_adapter(None),
        lambda: sardonyx.compat.LoraAdapter().Load("file"),
        lambda: sardonyx.compat.AdapterFormat.read_adapter("file"),
        sardonyx.compat.SparseTensor,
        lambda: sardonyx.compat.OrtValue.ort_value_from_sparse_tensor(None),
        sardonyx.compat.ModelCompiler,
        lambda: session(sardonyx.compat).set_ep_dynamic_options({}),
        lambda: sardonyx.compat.register_execution_provider_library("name", "lib.so"),
    ):
        with refused(NotImplemented, "not supported"):
            use()


def test_a_creation_is_canceled() -> None:
    options = SessionOptions()
    options.set_load_cancellation_flag(True)
    with refused(ModelLoadCanceled, "set_load_cancellation_flag"):
        session(sardonyx.compat, sess_options=options)


def test_options_are_pickled() -> None:
    options = SessionOptions()
    options.logid = "q"
    options.add_session_config_entry("a", "b")
    again = pickle.loads(pickle.dumps(options))
    assert (again.logid, again.get_session_config_entry("a")) == ("q", "b")


def test_a_call_that_is_to_end() -> None:
    def body(ort: ModuleType) -> Any:
        options, loaded = ort.RunOptions(), session(ort)
        options.terminate = True
        return loaded.run(None, FEEDS, options)

    assert same(body) == "Fail"


@pytest.mark.parametrize("provider", ["NumpyExecutionProvider", "JaxExecutionProvider"])
def test_a_call_ends_while_it_runs(provider: str) -> None:
    """It stops before the next step or iteration, and the session stays as good as new."""
    text = "g (float[N] x) => (float[N] y) { y = mine.Slow(x) }"

    started, calls, options = threading.Event(), [], sardonyx.compat.RunOptions()

    @sardonyx.op(domain="mine")
    def Slow(xp: sardonyx.types.Backend, x: sardonyx.types.Array) -> sardonyx.types.Array:
        calls.append(x.shape)
        started.set()
        time.sleep(0.05)
        return x + 1

    steps = 40
    body = " ".join(f"h{i + 1} = mine.Slow(h{i})" for i in range(steps))
    proto = parsed(text.replace("y = mine.Slow(x)", f"h0 = Identity(x) {body} y = Neg(h{steps})"))
    proto.opset_import.add(domain="mine", version=1)
    loaded = session(sardonyx.compat, proto, providers=[provider], ops=[Slow], jit=False)

    def stop() -> None:
        started.wait(20)
        options.terminate = True

    thread = threading.Thread(target=stop)
    thread.start()
    with refused(Fail, "terminate"):
        loaded.run(None, {"x": ONE}, options)
    assert 0 < len(calls) < steps
    thread.join()
    options.terminate = False
    np.testing.assert_array_equal(loaded.run(None, {"x": ONE}, options)[0], -(ONE + steps))


@pytest.fixture
def unseeded() -> Iterator[None]:
    yield
    environment._seed.value = None


@pytest.mark.usefixtures("unseeded")
def test_seeds() -> None:
    noise = parsed("g (float[N] x) => (float[N] y) { y = RandomNormalLike(x) }")

    def draws() -> list[Any]:
        sardonyx.compat.set_seed(5)
        loaded = session(sardonyx.compat, noise)
        return [loaded.run(None, {"x": ONE})[0].tolist() for _ in range(2)]

    first, again = draws(), draws()
    assert first == again
    assert first[0] != first[1]
    sardonyx.compat.set_seed(6)
    assert session(sardonyx.compat, noise).run(None, {"x": ONE})[0].tolist() != first[0]
    assert same(lambda ort: ort.set_seed("q")) == "TypeError"


def test_functions_of_the_module() -> None:
    for severity in (0, 4, 9, "q"):
        same(lambda ort, s=severity: ort.set_default_logger_severity(s))
    onnxruntime.set_default_logger_severity(2)
    same(lambda ort: ort.set_default_logger_verbosity(0))
    same(lambda ort: (ort.disable_telemetry_events(), ort.enable_telemetry_events()))
    same(lambda ort: type(ort.get_build_info()))
    same(lambda ort: ort.get_version_string().split(".")[:2])
    same(lambda ort: ort.__version__.split(".")[:2])
    assert sardonyx.compat.get_device() in (onnxruntime.get_device(), "GPU", "TPU")


@pytest.mark.skipif(processors.available() < 2, reason="one processor needs no limit")
@pytest.mark.parametrize("provider", ["JaxExecutionProvider", "NumpyExecutionProvider"])
def test_one_thread_is_one_thread(provider: str) -> None:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    limited = session(sardonyx.compat, sess_options=options, providers=[provider])
    assert limited._model._backend is not limited._backend
    assert limited.run(["y"], FEEDS)[0].shape == X.shape


def test_more_threads_than_processors_are_no_limit() -> None:
    options = SessionOptions()
    options.intra_op_num_threads = processors.available()
    unlimited = session(sardonyx.compat, sess_options=options)
    assert unlimited._model._backend is unlimited._backend
    assert unlimited.run(["y"], FEEDS)[0].shape == X.shape

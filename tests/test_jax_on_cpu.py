"""On a CPU JAX is imported when something is compiled, and calls are right before and after."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.on_cpu import JaxOnCpu
from sardonyx.backends.own_draws import own_draws
from tests.support.onnx_builders import model, node, value, weight
from tests.test_changing_sizes import DECODER
from tests.test_first_calls import MODELS, drawn

pytestmark = only_on_cpus = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="only for machines where JAX has nothing but CPUs"
)


def in_a_new_process(script: str, **environment: str) -> str:
    """Run a script in a process that has imported nothing, where JAX can only find a CPU."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


ENCODER = str(Path("examples/encoder.onnx").absolute())
LOADED = f"""
import sys
import numpy as np
import sardonyx
from sardonyx.graph.programs import compiler, interpretation

# A first run of more than half a second would start the compiler.
interpretation.PATIENCE = 100.0
# Beside a slow moment, the functions of NumPy would look good enough to stay.
compiler.MOST_BESIDE_KERNELS = 0.0
model = sardonyx.load({ENCODER!r})
x = np.random.default_rng(0).standard_normal((2, 8, 48)).astype(np.float32)
"""


@pytest.mark.parametrize("call", ["model(x)", "model.run(None, {'x': x})", "model.trace(x)"])
def test_a_first_call_imports_no_jax(call: str) -> None:
    in_a_new_process(f"{LOADED}{call}\nassert model.backend == 'jax' and 'jax' not in sys.modules")


def test_what_is_written_out_never_imports_jax() -> None:
    proto = model([node("Add", ["x", "x"], ["y"])], [value("x", ["n"])], ["y"])
    script = f"""
import sys
import numpy as np
import sardonyx

model = sardonyx.load({proto.SerializeToString()!r})
for n in range(50):
    y = model(np.full(n % 9, n, np.float32))
    assert y.tolist() == [2 * n] * (n % 9), y
while model.stats().written_out < 1:
    model(np.ones(4, np.float32))
assert "jax" not in sys.modules
"""
    in_a_new_process(script)


@pytest.mark.slow
def test_jax_is_imported_in_the_background_and_takes_over() -> None:
    script = f"""{LOADED}
first = model(x)
while not model.stats().compiles:
    np.testing.assert_allclose(model(x), first, rtol=1e-4, atol=1e-5)
assert "jax" in sys.modules
last = model(x)
np.testing.assert_allclose(last, first, rtol=1e-4, atol=1e-5)
assert not first.flags.writeable and not last.flags.writeable
"""
    in_a_new_process(script)


@pytest.mark.slow
def test_an_import_draws_no_random_numbers_of_the_caller() -> None:
    script = f"""{LOADED}
np.random.seed(7)
expected = np.random.rand(1000)
np.random.seed(7)
model(x), model(x)
drawn = []
while not model.stats().compiles:
    drawn += [np.random.rand()] * (len(drawn) < 1000)
assert len(drawn) > 1
assert drawn == expected[:len(drawn)].tolist()
"""
    in_a_new_process(script)


def test_own_draws_belong_to_one_thread() -> None:
    np.random.seed(3)
    expected = np.random.rand(2).tolist()
    np.random.seed(3)
    drawn: list[float] = []
    with own_draws():
        np.random.rand(100)
        thread = threading.Thread(target=lambda: drawn.append(np.random.rand()))
        thread.start()
        thread.join()
    drawn.append(np.random.rand())
    assert drawn == expected


def test_a_broken_jax_is_named_by_the_call_that_needs_it(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('jaxlib is too old')")
    script = f"""{LOADED}
from sardonyx.errors import BackendUnavailable
expected = model(x)
try:
    model.compile({{"x": x}})
except BackendUnavailable as error:
    assert "jaxlib is too old" in str(error) and "pip install" in str(error), error
else:
    raise AssertionError
"""
    in_a_new_process(script, PYTHONPATH=path_with(tmp_path))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("choices", ["", ", backend='jax'"])
def test_a_platform_that_is_not_here_is_named(choices: str) -> None:
    script = f"""
import sardonyx
from sardonyx.errors import BackendUnavailable
try:
    sardonyx.load({ENCODER!r}{choices})
except BackendUnavailable as error:
    assert "JAX_PLATFORMS" in str(error), error
else:
    raise AssertionError
"""
    in_a_new_process(script, JAX_PLATFORMS="rocm")


@pytest.mark.parametrize(
    ("environment", "is_certain"),
    [
        ({"JAX_PLATFORMS": "cpu"}, True),
        ({"JAX_PLATFORMS": "cuda,cpu"}, False),
        ({"JAX_PLATFORMS": "tpu"}, False),
        ({"JAX_PLATFORM_NAME": "cpu"}, True),
        ({"TPU_LIBRARY_PATH": "libtpu.so"}, False),
    ],
)
def test_other_platforms_are_noticed(environment: dict[str, str], is_certain: bool) -> None:
    assert has_only_cpus(**{"JAX_PLATFORMS": "", **environment}) == is_certain


def has_only_cpus(**environment: str) -> bool:
    script = "from sardonyx.backends.jax import presence; print(presence.has_only_cpus())"
    return in_a_new_process(script, **environment).strip() == "True"


def test_an_installed_plugin_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "jax_plugins").mkdir()
    assert not has_only_cpus(PYTHONPATH=path_with(tmp_path), JAX_PLATFORMS="")


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{Path(sardonyx.__file__).parents[1]}"


def test_its_constants_are_those_of_jax() -> None:
    """The graph asks them before JAX is imported."""
    deferred, real = JaxOnCpu(), JaxBackend()
    names = {name for name in dir(real) if not name.startswith("_")} - {
        "settings",
        "device",
        "for_ops",
    }
    compared = {name for name in names if not callable(getattr(real, name))}
    assert {"fuses", "embeds_up_to", "missing_types", "packs_matrices"} <= compared
    for name in sorted(compared):
        assert getattr(deferred, name) == getattr(real, name), name


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.sampled(3)
def test_models_give_the_same_before_and_after_the_compile(path: Path) -> None:
    loaded = sardonyx.load(path, backend=JaxOnCpu(), compile="background")
    inputs = drawn(loaded)
    expected = sardonyx.load(path, backend="numpy").run(None, inputs)
    for is_compiled in (False, False, True, True):
        if is_compiled:
            loaded.compile(inputs)
        results = loaded.run(None, inputs)
        for result, wanted in zip(results, expected, strict=True):
            assert type(result) is np.ndarray
            assert not result.flags.writeable
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5)
            else:
                np.testing.assert_array_equal(result, wanted)


def test_a_program_has_64_bits_though_its_call_began_without_jax() -> None:
    backend, executables = JaxOnCpu(), []

    def compile_meanwhile() -> None:
        with backend.scope():
            spec = Spec((2,), np.dtype(np.int64))
            executables.append(backend.compile(lambda x: [x * 2], [spec]))

    with jax.enable_x64(False), backend.scope():
        thread = threading.Thread(target=compile_meanwhile)
        thread.start()
        thread.join()
        (result,) = executables[0].run(np.array([2**40, -1]))
        assert result.tolist() == [2**41, -2]
    with jax.enable_x64(False):
        with backend.scope():
            assert backend.put(np.array([2**40])).tolist() == [2**40]
        assert jax.numpy.asarray(1).dtype == np.int32


def test_its_cache_is_that_of_the_library(tmp_path: Path) -> None:
    """Neither the names of entries nor the identity tell which of the two wrote them."""
    deferred, real = JaxOnCpu().with_cache(tmp_path), JaxBackend().with_cache(tmp_path)
    assert deferred.identity == real.identity
    assert JaxOnCpu(precision="high").identity == JaxBackend().with_precision("high").identity
    for folder in (deferred.folder, real.folder):
        assert folder is not None
        folder.write("name", folder.read("name") or b"content")
        assert folder.read("name") == b"content"
    assert deferred.library.identity == real.identity
    restored = pickle.loads(pickle.dumps(deferred))
    assert restored.folder.path == tmp_path
    high = deferred.with_precision("high")
    assert high.folder is not None
    assert high.folder.path == tmp_path


@pytest.mark.slow
def test_a_stored_program_is_loaded_while_calls_run(tmp_path: Path) -> None:
    """The first call of the second process waits for neither JAX nor a program or a trace."""
    script = f"""
import sys, time, numpy as np, sardonyx
model = sardonyx.load({str(ENCODER)!r}, cache={str(tmp_path)!r})
x = np.ones((2, 8, 48), np.float32)
had_jax, first = "jax" in sys.modules, model(x)
end = time.monotonic() + 60
while model.stats().compiles == 0 and time.monotonic() < end:
    last = model(x)
last = model(x)
np.testing.assert_allclose(first, last, rtol=1e-4, atol=1e-5)
stats = model.stats()
print(had_jax, stats.traces, stats.interpreted > 0, stats.compiles)
"""
    printed = [in_a_new_process(script).split() for _ in range(2)]
    assert printed == [["False", "1", "True", "1"], ["False", "0", "True", "1"]]


def test_arrays_of_jax_come_back_as_such() -> None:
    loaded = sardonyx.load(ENCODER, backend=JaxOnCpu(), compile="background")
    x = np.random.default_rng(0).standard_normal((2, 8, 48)).astype(np.float32)
    expected = loaded(x)
    for _ in range(3):
        result = loaded(jax.numpy.asarray(x))
        assert isinstance(result, jax.Array)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        loaded.compile({"x": jax.numpy.asarray(x)})


def test_params_are_arrays_of_jax_and_can_be_replaced() -> None:
    nodes = [node("Mul", ["x", "w"], ["scaled"]), node("Add", ["scaled", "x"], ["y"])]
    weights = [weight("w", np.full(3, 5))]
    proto = model(nodes, [value("x", [3], onnx.TensorProto.INT64)], ["y"], weights)
    loaded = sardonyx.load(proto, backend=JaxOnCpu(), compile="background")
    x = np.array([1, 2, 3])
    np.testing.assert_array_equal(loaded(x), 6 * x)
    assert isinstance(loaded.params["w"], jax.Array)
    assert loaded.params["w"].dtype == np.int64
    with jax.enable_x64(True):
        of_jax = jax.numpy.full(3, 3)
    for replacement in (np.full(3, 2), of_jax):
        loaded.params["w"] = replacement
        for _ in range(2):
            np.testing.assert_array_equal(loaded(x), x * np.asarray(replacement) + x)
            loaded.compile({"x": x})


@pytest.mark.slow
def test_it_works_inside_of_jit_and_grad() -> None:
    loaded = sardonyx.load(ENCODER, backend=JaxOnCpu(), compile="background")
    x = np.random.default_rng(0).standard_normal((2, 8, 48)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(loaded)(x), loaded(x), rtol=1e-4, atol=1e-5)
    slope: Any = jax.grad(lambda x: loaded(x).sum())(x)
    assert np.isfinite(slope).all()
    assert slope.shape == x.shape


def test_a_pickled_backend_is_another_that_imports_nothing() -> None:
    backend = pickle.loads(pickle.dumps(JaxOnCpu(precision="high")))
    assert backend.precision == "high"
    assert backend._library is None


# The decoder takes tokens in place of their rows.
OF_TOKENS = DECODER.replace("float[batch, 1, 8] x", "int64[batch, 1] token").replace(
    "k = Tanh (x)", "x = Gather (table, token) k = Tanh (x)"
)


@pytest.mark.slow
def test_buckets_are_proved_in_the_backends_own_scope() -> None:
    """The proof is the first to ask for JAX, and would take int64 for int32 without its scope."""
    proto = onnx.parser.parse_model(OF_TOKENS)
    table = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    begin = f"""
import time
import numpy as np
import sardonyx
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.derived import Derivation

# Otherwise such calls would need no program.
Derivation.write_out = lambda self: None
learned_calls.SECONDS = learned_calls.SECONDS_PER_STEP = 0.0
model = sardonyx.load({proto.SerializeToString()!r})
token, past = np.zeros((300, 1), np.int64), [np.zeros((300, 5, 8), np.float32)] * 2
learned = model._plain._padded_calls._learned
"""
    growing = """
for _ in range(30):
    _, *past = model(token, *past)
assert model.stats().traces < 30
"""
    changing = """
end = time.monotonic() + 200
while not any(each.compiled for each in learned.values()) and time.monotonic() < end:
    for size in (50, 90, 70, 60, 80):
        model(token, *[np.zeros((300, size, 8), np.float32)] * 2)
"""
    for calls in (growing, changing):
        in_a_new_process(f"""{begin}{calls}
refusals = [each.refusal for each in learned.values()]
assert refusals and not any(refusals), refusals
assert model.stats().compiles
""")

"""The interface: names, options, types and pages that people build on."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
import sardonyx.types
from sardonyx.errors import InvalidInput, LimitExceeded, MissingFile, SardonyxError
from tests.api_page import page
from tests.support.onnx_builders import function, model, node, value, weight
from tests.support.raises import refused

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
LINEAR = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 4])], ["y"], [weight("w", W)])
NOISE = model(
    [node("RandomNormalLike", ["x"], ["noise"]), node("Add", ["x", "noise"], ["y"])],
    [value("x", [3, 4])],
    ["y"],
)


@sardonyx.op(domain="mine")
def Same(xp: sardonyx.types.Backend, x: sardonyx.types.Array) -> sardonyx.types.Array:
    return x


PRECISIONS = (
    "highest",
    "float32",
    "high",
    "tensorfloat32",
    "bfloat16_3x",
    "bfloat16",
    "default",
)


def exported(proto: onnx.ModelProto = LINEAR, **options: Any) -> sardonyx.types.ExportedModel:
    found: Any = sardonyx.load(sardonyx.export(proto, platforms=["cpu"]).to_bytes(), **options)
    return found


def sharded(proto: onnx.ModelProto = LINEAR) -> sardonyx.types.ShardedModel:
    return sardonyx.shard(proto, jax.make_mesh((1,), ("data",), devices=jax.devices()[:1]), "data")


# -- errors ---------------------------------------------------------------------------------------


def test_a_missing_file_is_a_missing_file_to_everybody(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    for read in (sardonyx.load, sardonyx.to_jax, sardonyx.export, sardonyx.load_params):
        with refused(MissingFile, str(path)):
            read(path)
        with pytest.raises(FileNotFoundError) as caught:
            read(path)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.errno) == (str(caught.value), caught.value.errno)
    assert issubclass(MissingFile, sardonyx.InvalidModel)


def test_a_wrong_argument_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no precision 'low'"):
        sardonyx.load(LINEAR, precision="low")
    assert issubclass(InvalidInput, SardonyxError)


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"precision": "high"},
        {"buckets": {"n": [1, 8]}},
        {"cache": "folder"},
        {"ops": [Same]},
        {"jit": False},
        {"strict": False},
        {"max_signatures": 3},
        {"checked": True},
        {"rewrites": False},
        {"limits": sardonyx.Limits(inlined_nodes=5)},
        {"backend": "numpy"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_archive_follows_an_option_or_refuses_it(option: dict[str, Any]) -> None:
    content = sardonyx.export(LINEAR, platforms=["cpu"]).to_bytes()
    with refused(InvalidInput, next(iter(option)), "leave"):
        sardonyx.load(content, **option)


def test_an_archive_takes_options_that_say_nothing_new() -> None:
    found = exported(backend="jax", device="cpu", buckets={}, ops=[], retain_freed_memory=False)
    np.testing.assert_allclose(found(X), X @ W, rtol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_all_entrances_have_the_same_precisions(precision: str) -> None:
    expected = np.asarray(sardonyx.load(LINEAR, backend="jax", precision=precision)(X))
    is_rounded = not np.allclose(expected, X @ W, rtol=1e-5)
    assert is_rounded == (precision == "bfloat16")
    fn, params = sardonyx.to_jax(LINEAR, precision=precision)
    artefact = sardonyx.export(LINEAR, platforms=["cpu"], precision=precision)
    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    for run in (
        lambda x: fn(params, x),
        sardonyx.load(artefact.to_bytes()),
        sardonyx.shard(LINEAR, mesh, "data", precision=precision),
        sardonyx.shard(sardonyx.load(LINEAR, backend="jax", precision=precision), mesh, "data"),
    ):
        np.testing.assert_allclose(np.asarray(run(X)), expected, rtol=1e-5)


@pytest.mark.parametrize("entrance", [sardonyx.to_jax, sardonyx.export, sardonyx.shard])
def test_no_entrance_knows_another_precision(entrance: Any) -> None:
    with refused(InvalidInput, "There is no precision 'exact'", *PRECISIONS):
        entrance(LINEAR, precision="exact")


def test_functions_of_a_rounded_model_have_derivatives() -> None:
    fn, params = sardonyx.to_jax(LINEAR, precision="bfloat16")
    slopes = jax.grad(lambda p: fn(p, X).sum())(params)
    np.testing.assert_allclose(slopes["w"], np.tile(X.sum(0)[:, None], 2), rtol=2e-2, atol=2e-2)


# -- bind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [sardonyx.load, exported, sharded])
def test_a_model_with_a_key_draws_alike(load: Any) -> None:
    noisy = load(NOISE)
    drawn, again, other = noisy.bind(key=7)(X), noisy.bind(key=7)(X), noisy.bind(key=8)(X)
    np.testing.assert_array_equal(drawn, again)
    assert not np.array_equal(drawn, other)
    assert not np.array_equal(noisy(X), noisy(X))
    np.testing.assert_array_equal(noisy.bind(key=7).run(None, {"x": X})[0], drawn)
    traced = jax.jit(lambda key: noisy.bind(key=key)(X))(jax.random.key(1))
    np.testing.assert_allclose(traced, noisy.bind(key=jax.random.key(1))(X), rtol=1e-5)


def test_one_bind_takes_a_key_and_inputs_to_donate() -> None:
    noisy = sardonyx.load(NOISE, backend="jax")
    step = noisy.bind(key=7, donate="x")
    x = jnp.asarray(X)
    np.testing.assert_array_equal(step(x), noisy.bind(key=7)(X))
    assert x.is_deleted()
    assert repr(step).startswith("<bound <sardonyx model on jax")
    assert "donates x" in repr(step)
    with refused(InvalidInput, "no input 'donate'"):
        noisy(X, donate="x")


def test_what_is_bound_can_be_bound_again() -> None:
    noisy = sardonyx.load(NOISE, backend="jax")
    in_steps = noisy.bind(key=7).bind(donate="x").bind()
    x = jnp.asarray(X)
    np.testing.assert_array_equal(in_steps(x), noisy.bind(key=7)(X))
    assert x.is_deleted()
    np.testing.assert_array_equal(in_steps.bind(key=8)(jnp.asarray(X)), noisy.bind(key=8)(X))
    with refused(InvalidInput, "'past'"):
        in_steps.bind(donate="past")


@pytest.mark.parametrize("load", [exported, sharded])
def test_compiled_models_donate_nothing(load: Any) -> None:
    with refused(InvalidInput, "donate", "load the ONNX model"):
        load().bind(donate="x")


# -- exported and sharded models ------------------------------------------------------------------

PUBLIC = {name for name in dir(sardonyx.load(LINEAR, backend="numpy")) if name[0] != "_"}
ABSENT = {
    "exported": {"opsets", "is_strict", "profile", "trace", "view"},
    "sharded": {"memory", "profile", "trace", "view"},
}


@pytest.mark.parametrize("load", [exported, sharded])
def test_they_have_what_a_model_has_or_say_what_to_use(load: Any) -> None:
    found, plain = load(), sardonyx.load(LINEAR, backend="jax")
    absent = ABSENT[load.__name__]
    for name in PUBLIC - absent:
        assert hasattr(found, name), name
    for name in absent:
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}': .* .*"):
            getattr(found, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        found.nonsense  # noqa: B018
    assert found.backend == "jax"
    assert [info.name for info in (*found.inputs, *found.outputs)] == ["x", "y"]
    assert found.optional_inputs == ()
    assert found.metadata == plain.metadata != {}
    np.testing.assert_array_equal(found.params["w"], W)
    np.testing.assert_allclose(found.run(["y"], {"x": X})[0], X @ W, rtol=1e-5)


@pytest.mark.parametrize("load", [exported, sharded])
def test_their_stats_count_calls_and_compiles(load: Any) -> None:
    found = load(model(LINEAR.graph.node, [value("x", [3, 4])], ["y"], [weight("w", W)]))
    found.compile({"x": (3, 4)})
    assert (found.stats().calls, found.stats().compiles) == (0, 1)
    for _ in range(3):
        found(X)
    stats = found.stats()
    assert (stats.calls, stats.hits, stats.compiles, stats.signatures) == (3, 3, 1, 1)
    assert stats.compile_seconds > 0
    assert stats.bytes_held >= W.nbytes
    found.release()
    np.testing.assert_allclose(found(X), X @ W, rtol=1e-5)
    assert (found.stats().compiles, found.stats().hits) == (2, 3)


def test_the_memory_of_an_exported_model() -> None:
    memory = exported().memory(x=(3, 4))
    assert (memory.weights, memory.outputs) == (W.nbytes, 24)
    assert memory.peak >= memory.weights + memory.inputs + memory.outputs


# -- names ----------------------------------------------------------------------------------------


def test_types_that_need_jax_are_imported_when_they_are_asked_for() -> None:
    code = (
        "import sys, sardonyx, sardonyx.types as types; assert 'jax' not in sys.modules; "
        "assert types.ExportedModel.__name__ == 'ExportedModel'; assert 'jax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in sardonyx.types.__all__:
        assert hasattr(sardonyx.types, name)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        sardonyx.types.Nonsense  # noqa: B018


def test_what_people_get_is_of_the_types_that_they_can_name() -> None:
    loaded, types = sardonyx.load(LINEAR, backend="jax"), sardonyx.types
    fn, _ = sardonyx.to_jax(LINEAR)
    pairs = [
        (loaded.inputs[0], types.ValueInfo),
        (loaded.params, types.Params),
        (loaded.stats(), types.Stats),
        (loaded.memory(X), types.Memory),
        (loaded.bind(key=1), types.BoundModel),
        (fn, types.PureFunction),
        (exported(), types.ExportedModel),
        (sharded(), types.ShardedModel),
        (sharded().report, types.Report),
        (sardonyx.export(LINEAR), types.Artefact),
    ]
    for found, kind in pairs:
        assert type(found) is kind


# -- limits ---------------------------------------------------------------------------------------


def nested(depth: int) -> onnx.ModelProto:
    """A model whose functions call each other so deep, twice each."""
    bodies = [[node("Neg", ["a"], ["b"])]] + [
        [
            node(f"f{i}", ["a"], ["t"], domain="mine"),
            node(f"f{i}", ["t"], ["b"], domain="mine"),
        ]
        for i in range(depth - 1)
    ]
    functions = [function(f"f{i}", body, ["a"], ["b"]) for i, body in enumerate(bodies)]
    last = node(f"f{depth - 1}", ["x"], ["y"], domain="mine")
    return model([last], ["x"], ["y"], functions=functions, mine=1)


@pytest.mark.parametrize(
    ("name", "enough", "too_small"), [("function_depth", 4, 3), ("inlined_nodes", 8, 7)]
)
def test_the_limits_are_arguments(name: str, enough: int, too_small: int) -> None:
    proto = nested(4)
    loaded = sardonyx.load(proto, backend="numpy", limits=sardonyx.Limits(**{name: enough}))
    np.testing.assert_array_equal(copy.deepcopy(loaded)(X), X)
    with refused(LimitExceeded, f"limits=sardonyx.Limits({name}=...)"):
        sardonyx.load(proto, backend="numpy", limits=sardonyx.Limits(**{name: too_small}))


def test_limits_hold_for_a_model_that_a_cache_knows(tmp_path: Path) -> None:
    sardonyx.load(nested(4), backend="jax", cache=tmp_path)(X)
    with refused(LimitExceeded, "nodes"):
        few = sardonyx.Limits(inlined_nodes=7)
        sardonyx.load(nested(4), backend="jax", cache=tmp_path, limits=few)


@pytest.mark.parametrize("name", ["function_depth", "inlined_nodes", "traced_nodes", "value_bytes"])
def test_a_limit_is_a_whole_number(name: str) -> None:
    for wrong in (0, -1, 1.5, "4", True):
        with refused(InvalidInput, name):
            sardonyx.Limits(**{name: wrong})  # type: ignore[arg-type]
    with refused(InvalidInput, "pass a sardonyx.Limits"):
        sardonyx.load(LINEAR, limits=5)  # type: ignore[arg-type]


# -- pages ----------------------------------------------------------------------------------------


def test_the_page_of_public_names_is_current() -> None:
    written = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert page() == written, "write it anew: python -m tests.api_page > docs/api.md"


def test_the_page_leaves_no_public_name_out() -> None:
    for name in (*sardonyx.__all__, *sardonyx.types.__all__):
        assert name[0] == "_" or f"| `{name}` |" in page(), name
    for name in PUBLIC:
        assert f"| `{name}` |" in page(), name

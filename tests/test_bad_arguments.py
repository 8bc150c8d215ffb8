"""What people pass besides arrays, and gets refused with a sentence that says what to pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import BackendUnavailable, InvalidInput, LimitExceeded, SardonyxError
from sardonyx.types import Array
from tests.support.onnx_builders import INT64, model, node, value, weight
from tests.support.raises import refused

X = np.ones((2, 3), np.float32)
ADD = model([node("Add", ["x", "w"], ["y"])], [value("x", ["n", 3])], ["y"], [weight("w", X[0])])
FREE = model([node("Neg", ["x"], ["y"])], ["x"], ["y"])

OPTIONS: list[tuple[dict[str, Any], type[SardonyxError], str]] = [
    *(
        ({"max_signatures": bad}, InvalidInput, "at least one signature")
        for bad in ("a", None, 1.5, [3], 0, True, float("nan"))
    ),
    *(({"ops": bad}, InvalidInput, "pass a list of operators") for bad in (5, None, 1.5)),
    ({"ops": "ab"}, InvalidInput, "sardonyx.op"),
    *(
        ({"backend": bad}, BackendUnavailable, "There is no backend")
        for bad in (5, [], {}, b"jax", "", "JAX", ...)
    ),
    *(
        ({"device": bad}, BackendUnavailable, "device")
        for bad in (
            *(5, "cuda:x", "", ":", [], {}, b"cpu", 1.5, X, jnp.ones(1)),
            *("cpu:" + "9" * 5000, "cpu:-1"),
        )
    ),
    *(({"precision": bad}, InvalidInput, "precision") for bad in (None, 5, "low", [], {})),
    *(
        ({option: bad}, InvalidInput, f"'{option}' is {bad!r}: pass True or False.")
        for option in ("strict", "jit", "retain_freed_memory", "rewrites")
        for bad in ("no", 0, None, 5, [])
        if (option, bad) != ("strict", None)
    ),
    *(
        ({"memory_fraction": bad}, InvalidInput, "above 0 and at most 1")
        for bad in ("a", 2.0, 0, -1, float("nan"), True, [], X)
    ),
    *(
        ({"buckets": bad}, InvalidInput, "buckets")
        for bad in (
            *(5, "n", [("n", [2])], {5: [1]}, {None: [1]}, {"nope": [1]}, {"n": 5}, {"n": None}),
            *({"n": []}, {"n": "powers"}, {"n": [1.5]}, {"n": ["a"]}, {"n": [-1]}, {"n": [3, 2]}),
            *({"n": [True, 2]}, {"n": [2, 2]}, {"n": {2, 4}}, {"n": X}, {"n": [float("nan")]}),
            *({"n": [2**62]}, {"n": [2**70]}, {"n": range(1, 10**20)}, {"n": range(1, 10**9)}),
        )
    ),
]


@pytest.mark.parametrize(("options", "kind", "words"), OPTIONS, ids=lambda v: ascii(v)[:40])
def test_options_of_load(options: dict[str, Any], kind: type[SardonyxError], words: str) -> None:
    with refused(kind, words):
        sardonyx.load(ADD, **options)


def test_large_buckets_are_refused_by_what_they_would_take() -> None:
    wide = model([node("Neg", ["x"], ["y"])], [value("x", ["n", 2**20])], ["y"])
    loaded = sardonyx.load(wide, backend="jax", buckets={"n": [2**31 - 1]})
    with pytest.raises(SardonyxError, match=r"bytes|allocate"):
        loaded(np.ones((2, 2**20), np.float32))
    two = model([node("Neg", ["x"], ["y"])], [value("x", list("nmkl"))], ["y"])
    sizes = {name: [2**31 - 1] for name in "nmkl"}
    with pytest.raises(SardonyxError, match="bucket"):
        sardonyx.load(two, backend="jax", buckets=sizes)(np.ones((2, 2, 2, 2), np.float32))


RUNS: list[tuple[Any, Any, str]] = [
    ("y", {"x": X}, "pass a list"),
    (5, {"x": X}, "pass a list of names"),
    ([5], {"x": X}, "no output 5"),
    ([[]], {"x": X}, r"no output []"),
    ([None], {"x": X}, "no output None"),
    (["z"], {"x": X}, "no output 'z'"),
    (None, None, "pass a dict"),
    (None, [X], "pass a dict"),
    (None, {5: X}, "no input '5'"),
    (None, {("x",): X}, "no input"),
    (None, {}, "also needs x"),
]


@pytest.mark.parametrize(("names", "feeds", "words"), RUNS, ids=lambda v: ascii(v)[:30])
def test_run(names: Any, feeds: Any, words: str, xp: Backend) -> None:
    with refused(InvalidInput, words):
        sardonyx.load(ADD, backend=xp).run(names, feeds)


def test_run_takes_names_in_any_iterable(xp: Backend) -> None:
    loaded = sardonyx.load(ADD, backend=xp)
    for names in (iter(["y"]), ("y",), {"y": 1}, ["y", "y"]):
        assert loaded.run(names, {"x": X})[0].tolist() == [[2, 2, 2], [2, 2, 2]]  # type: ignore[arg-type]
    assert loaded.run([], {"x": X}) == []


def test_trace_without_inputs(xp: Backend) -> None:
    loaded = sardonyx.load(ADD, backend=xp)
    with refused(InvalidInput, "also needs x"):
        loaded.trace()
    with refused(InvalidInput, "no input 'z'"):
        loaded.trace(X, z=X)


HUGE = [(2**62, 2**62), (2**62,), (1,) * 65, (2**70,), (0, 2**62, 2**62)]


@pytest.mark.parametrize("shape", HUGE, ids=lambda v: ascii(v)[:20])
def test_huge_shapes(shape: tuple[int, ...], xp: Backend) -> None:
    loaded = sardonyx.load(FREE, backend=xp)
    for ask in (lambda: loaded.compile({"x": shape}), lambda: loaded.memory(shape)):
        with refused(LimitExceeded, "'x'", "Pass a smaller shape"):
            ask()


def test_bad_signatures(xp: Backend) -> None:
    loaded = sardonyx.load(FREE, backend=xp)
    for bad in (5, [], "x", None):
        with refused(InvalidInput, "pass a dict from names"):
            loaded.compile(bad)  # type: ignore[arg-type]
    for shape in ((-1,), (2, -3)):
        with refused(InvalidInput, "cannot have the shape"):
            loaded.compile({"x": shape})
    for bad in ({"nope": (1,)}, {5: (1,)}):
        with refused(InvalidInput, "no input"):
            loaded.compile(bad)  # type: ignore[dict-item]
    with refused(InvalidInput, "takes 1 inputs"):
        loaded.memory((1,), (2,))
    with refused(InvalidInput, "pass it once"):
        loaded.memory((1,), x=(2,))
    with refused(InvalidInput, "no input 'nope'"):
        loaded.memory((1,), nope=(2,))
    with refused(InvalidInput, "also needs x"):
        loaded.memory()


# -- results on their way out ---------------------------------------------------------------------


class OnCuda:
    """Memory of a CUDA device, which has no other name here."""

    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (256, False), "version": 3}  # noqa: RUF012


def test_memory_of_a_cuda_device_where_no_backend_reads_it() -> None:
    proto = model([node("Neg", ["x"], ["y"])], ["x"], ["y"])
    for name in ("jax", "numpy"):
        with refused(InvalidInput, "'x'", "OnCuda", "CUDA device"):
            sardonyx.load(proto, backend=name, device="cpu")(OnCuda())


def reshaped() -> Any:
    return model([node("Reshape", ["x", "s"], ["y"])], ["x", value("s", None, INT64)], ["y"])


def test_more_axes_than_numpy_has() -> None:
    loaded = sardonyx.load(reshaped(), backend="jax")
    one, axes = np.ones(1, np.float32), np.ones(65, np.int64)
    for _ in range(2):
        with refused(LimitExceeded, "65 axes", "64"):
            loaded(one, axes)
        with refused(LimitExceeded, "65 axes", "64"):
            loaded.run(None, {"x": one, "s": axes})
    with refused(LimitExceeded, "65 axes", "64"):
        loaded(jnp.asarray(one), axes)


def test_a_result_that_is_not_there() -> None:
    """JAX may only find out that there is no memory once a result is asked for."""

    @sardonyx.op(domain="mine")
    def Late(xp: Backend, x: Array) -> Array:
        made = jnp.asarray(x) + 1
        if not xp.is_abstract(made):
            made.delete()
        return made

    proto = model([node("Late", ["x"], ["y"], domain="mine")], ["x"], ["y"], mine=1)
    loaded = sardonyx.load(proto, backend="jax", jit=False, ops=[Late])
    for ask in (lambda: loaded(X), lambda: loaded.run(None, {"x": X})):
        with refused(InvalidInput, "deleted"):
            ask()


# -- the other functions --------------------------------------------------------------------------

RUN_OPS: list[tuple[str, dict[str, Any], str]] = [
    ("opset", {"opset": "a"}, "An opset is"),
    ("opset", {"opset": 1.5}, "An opset is"),
    ("opset", {"opset": 0}, "An opset is"),
    ("domain", {"domain": 5}, "'domain' is 5"),
    ("outputs", {"outputs": "a"}, "outputs"),
    ("outputs", {"outputs": -1}, "outputs"),
    ("outputs", {"outputs": 10**9}, "outputs"),
    ("strict", {"strict": "no"}, "pass True or False"),
    ("float", {"alpha": "a"}, "'alpha'"),
    ("object", {"alpha": object()}, "'alpha'"),
    ("type", {"alpha": np.dtype("M8[s]")}, "'alpha'"),
]


@pytest.mark.parametrize(("_", "options", "words"), RUN_OPS, ids=lambda v: ascii(v)[:30])
def test_options_of_run_op(_: str, options: dict[str, Any], words: str) -> None:
    with refused(InvalidInput, words):
        sardonyx.run_op("Elu", X, **options)


def test_an_operator_without_a_name() -> None:
    with refused(InvalidInput, "'op_type' is 5"):
        sardonyx.run_op(5, X)  # type: ignore[arg-type]
    with refused(InvalidInput, "'value'"):
        sardonyx.run_op("Constant", value=[[1], [1, 2]])


@pytest.mark.parametrize(
    "options",
    [
        {"training": "no"},
        {"straight_through": 5},
        {"precision": 5},
        {"precision": []},
        {"ops": 5},
    ],
    ids=str,
)
def test_options_of_to_jax(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        sardonyx.to_jax(ADD, **options)


@pytest.mark.parametrize("bad", [None, "abc", [[1], [1, 2]], {}, ...], ids=str)
def test_params_of_a_pure_function(bad: Any) -> None:
    fn, params = sardonyx.to_jax(ADD)
    with refused(InvalidInput, "'w' must be float32[3]"):
        fn({**params, "w": bad}, X)


def test_options_of_shard_and_export() -> None:
    mesh = jax.make_mesh((1,), ("data",))
    for options in ({"strict": "no"}, {"configuration": 5}):
        with pytest.raises(InvalidInput, match="pass"):
            sardonyx.shard(ADD, mesh, **options)  # type: ignore[arg-type]
    for options in ({"strict": "no"}, {"platforms": 5}, {"platforms": None}, {"platforms": []}):
        with pytest.raises(InvalidInput, match="pass"):
            sardonyx.export(ADD, **options)  # type: ignore[arg-type]


def test_an_exported_model_runs_by_name_as_others_do() -> None:
    artefact = sardonyx.export(ADD, {"x": (2, 3)}, platforms=["cpu"])
    loaded = sardonyx.load(artefact.to_bytes())
    for names, feeds in (("y", {"x": X}), (5, {"x": X}), (None, [X]), (["z"], {"x": X})):
        with pytest.raises(InvalidInput):
            loaded.run(names, feeds)  # type: ignore[arg-type]
    assert loaded.run(iter(["y"]), {"x": X})[0].shape == (2, 3)  # type: ignore[arg-type]

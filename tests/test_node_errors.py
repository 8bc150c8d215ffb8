"""Whose fault an error is: an op's, the package's, or somebody else's, and at which node."""

from __future__ import annotations

import asyncio
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends import find
from sardonyx.errors import InternalError, InvalidInput, InvalidModel, LimitExceeded, SardonyxError
from sardonyx.graph.errors.node_errors import raise_from_call
from sardonyx.ops import OPS
from sardonyx.types import Array, Backend, Host, Unsized
from tests.support.onnx_builders import BOOL, INT64, function, graph, model, node, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WAYS: list[dict[str, Any]] = [
    {"backend": "numpy"},
    {"backend": "jax"},
    {"backend": "jax", "jit": False},
]


def way_id(way: dict[str, Any]) -> str:
    return way["backend"] + ("" if way.get("jit", True) else "-steps")


each_way = pytest.mark.parametrize("way", WAYS, ids=way_id)


class OddError(Exception):
    """Of a library that nobody has heard of, with what it needs to be made."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code)
        self.code, self.why = code, why


@dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818
    """To which no note can be added."""

    code: int = 3


class RefusalError(SardonyxError):
    """A member of the family that a user has added, which is made of two numbers."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two} do not go together")
        self.pair = one, two


PASSING: list[BaseException] = [
    AttributeError("'NoneType' object has no attribute 'shape'"),
    KeyError("size"),
    IndexError("list index out of range"),
    TypeError("bad operand"),
    AssertionError("never"),
    NotImplementedError("one day"),
    RuntimeError("stopped"),
    RecursionError("too deep"),
    MemoryError("no more"),
    ZeroDivisionError("division by zero"),
    OverflowError("too large to convert"),
    FloatingPointError("invalid value"),
    OSError(2, "No such file or directory"),
    TimeoutError("too late"),
    ImportError("No module named 'scipy'"),
    StopIteration("no more"),
    DeprecationWarning("old"),
    OddError(7, why="it slipped"),
    Exception("plain"),
    KeyboardInterrupt("stop"),
    SystemExit(3),
    GeneratorExit(),
    asyncio.CancelledError("cancelled"),
]


def failing(raises: Callable[[], object]) -> Any:
    """An operator of a user's own that runs this."""

    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Array) -> Array:
        raises()
        return x * 2

    return Fails


def throwing(error: BaseException, cause: BaseException | None = None) -> Callable[[], object]:
    def throw() -> object:
        raise error from cause

    return throw


FAILS = node("Fails", ["h"], ["y"], domain="mine", name="last")
MODEL = model([node("Neg", ["x"], ["h"]), FAILS], ["x"], ["y"], mine=1)
PLACE = "Node 'last' (mine::Fails, opset 1; inputs h: float32[2, 3])"


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


@each_way
@pytest.mark.parametrize("error", PASSING, ids=lambda e: type(e).__name__)
def test_errors_of_a_users_own_operator_pass_as_they_are(
    way: dict[str, Any], error: BaseException
) -> None:
    kind, arguments = type(error), error.args
    fresh = kind(7, why="it slipped") if isinstance(error, OddError) else kind(*arguments)
    cause = LookupError("the reason")
    loaded = sardonyx.load(MODEL, ops=[failing(throwing(fresh, cause))], **way)
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        loaded(X)
    assert caught.value is fresh
    assert fresh.args == arguments
    assert fresh.__cause__ is cause
    if isinstance(fresh, Exception):
        assert PLACE in notes(fresh)


def test_an_error_that_takes_no_notes_passes_too() -> None:
    """On NumPy, since JAX itself writes to the errors that it lets pass."""
    error = Frozen()
    loaded = sardonyx.load(MODEL, backend="numpy", ops=[failing(throwing(error))])
    for _ in range(2):
        with pytest.raises(Frozen) as caught:
            loaded(X)
        assert caught.value is error


@each_way
@pytest.mark.parametrize("kind", [ValueError, UnicodeError, np.linalg.LinAlgError])
def test_a_value_error_of_a_users_own_operator_refuses_its_inputs(
    way: dict[str, Any], kind: type[Exception]
) -> None:
    loaded = sardonyx.load(MODEL, ops=[failing(throwing(kind("x is never right")))], **way)
    with pytest.raises(InvalidInput, match=re.escape(f"{PLACE} cannot run")) as caught:
        loaded(X)
    assert "x is never right" in str(caught.value)
    assert type(caught.value.__cause__) is kind


@each_way
def test_an_error_of_the_family_gets_its_place_once(way: dict[str, Any]) -> None:
    loaded = sardonyx.load(MODEL, ops=[failing(throwing(LimitExceeded("too long")))], **way)
    with pytest.raises(LimitExceeded, match=re.escape(f"{PLACE}: too long.")):
        loaded(X)
    refusal = RefusalError(1, 2)
    loaded = sardonyx.load(MODEL, ops=[failing(throwing(refusal))], **way)
    with pytest.raises(RefusalError) as caught:
        loaded(X)
    assert caught.value is refusal
    assert PLACE in notes(refusal)


@each_way
def test_the_second_call_says_as_much_as_the_first(way: dict[str, Any]) -> None:
    """An op that fails when it is called again: while a program is replayed, or compiled."""
    states = {"calls": 0, "allowed": 10**9}

    def late() -> None:
        states["calls"] += 1
        if states["calls"] > states["allowed"]:
            raise AttributeError("gone")

    loaded = sardonyx.load(MODEL, ops=[failing(late)], **way)
    loaded(X)
    states["allowed"] = states["calls"]
    for given in (X, X[:1]):
        if way == {"backend": "jax"} and given is X:
            continue  # It is compiled: the op is not called any more.
        with pytest.raises(AttributeError) as caught:
            loaded(given)
        shape = f"float32{list(given.shape)}"
        assert f"Node 'last' (mine::Fails, opset 1; inputs h: {shape})" in notes(caught.value)
        assert notes(caught.value).count("Node") == 1


@each_way
@pytest.mark.parametrize("place", ["function", "If", "Loop", "while", "Scan"])
def test_the_innermost_node_is_named(way: dict[str, Any], place: str) -> None:
    inner = node("Fails", ["h"], ["b"], domain="mine", name="inner")
    proto, arguments = around(inner, place)
    loaded = sardonyx.load(proto, ops=[failing(throwing(KeyError("k")))], **way)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            loaded(*arguments)
        assert "Node 'inner' (mine::Fails, opset 1; inputs h: float32[" in notes(caught.value)
        assert "outer" not in notes(caught.value)


def around(inner: onnx.NodeProto, place: str) -> tuple[onnx.ModelProto, list[Any]]:
    """A model in which this node stands in another's body."""
    if place == "function":
        body = function("Outer", [inner], ["h"], ["b"])
        outer = node("Outer", ["x"], ["y"], domain="mine", name="outer")
        return model([outer], ["x"], ["y"], functions=[body], mine=1), [X]
    if place == "If":
        branch = graph([node("Neg", ["x"], ["h"]), inner], [], ["b"])
        other = graph([node("Neg", ["x"], ["b"])], [], ["b"])
        outer = node("If", ["c"], ["y"], name="outer", then_branch=branch, else_branch=other)
        return model([outer], ["x", value("c", None, BOOL)], ["y"], mine=1), [X, np.array(True)]
    if place == "Scan":
        body = graph([node("Add", ["s", "r"], ["h"]), inner], ["s", "r"], ["b"])
        body.output.add().CopyFrom(value("h"))
        outer = node("Scan", ["x0", "x"], ["y", "z"], name="outer", body=body, num_scan_inputs=1)
        return model([outer], ["x0", "x"], ["y", "z"], mine=1), [X[0], X]
    goes = [node("Identity", ["c"], ["d"])]
    if place == "while":
        goes = [node("ReduceSum", ["h"], ["t"], keepdims=0), node("Less", ["t", "t"], ["d"])]
    body = graph(
        [*goes, inner], [value("i", [], INT64), value("c", [], BOOL), value("h", [2, 3])], []
    )
    body.output.add().CopyFrom(value("d", [], BOOL))
    body.output.add().CopyFrom(value("b", [2, 3]))
    outer = node("Loop", ["n", "", "x"], ["y"], name="outer", body=body)
    return (
        model([outer], [value("n", [], INT64), value("x", [2, 3])], ["y"], mine=1),
        [np.array(40), X],
    )


@each_way
def test_an_operator_that_the_host_runs(way: dict[str, Any]) -> None:
    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Array) -> Unsized:
        raise KeyError("k")

    loaded = sardonyx.load(MODEL, ops=[Fails], **way)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            loaded(X)
        assert PLACE in notes(caught.value)


@each_way
def test_an_operator_that_runs_while_tracing(way: dict[str, Any]) -> None:
    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Host) -> Host:
        raise KeyError("k")

    loaded = sardonyx.load(MODEL, ops=[Fails], **way)
    with pytest.raises(KeyError) as caught:
        loaded(X)
    assert "Node 'last' (mine::Fails, opset 1" in notes(caught.value)
    with pytest.raises(KeyError):
        sardonyx.load(MODEL, ops=[failing(throwing(KeyError("k")))], **way).trace(X)


@pytest.mark.parametrize("jit", [True, False])
def test_a_callback_that_fails(jit: bool) -> None:
    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Array) -> Array:
        def call(x: Any) -> Any:
            raise KeyError("no such key in the callback")

        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(call, like, x)

    loaded = sardonyx.load(MODEL, backend="jax", jit=jit, ops=[Fails])
    for given in (X, jnp.asarray(X)):
        with pytest.raises(jax.errors.JaxRuntimeError, match="no such key") as caught:
            jax.block_until_ready(loaded(given))
        assert ("jit=False" if jit else PLACE) in notes(caught.value)


# -- what JAX was asked to look for ---------------------------------------------------------------


@contextmanager
def looking_for_nans() -> Iterator[None]:
    with jax.debug_nans(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("jit", [True, False])
def test_a_nan_is_found_at_its_node(jit: bool) -> None:
    nodes = [node("Neg", ["x"], ["h"]), node("Log", ["h"], ["l"], name="logs")]
    proto = model([*nodes, node("Exp", ["l"], ["y"])], ["x"], ["y"])
    loaded = sardonyx.load(proto, backend="jax", jit=jit)
    with looking_for_nans():
        for _ in range(2):
            with pytest.raises(FloatingPointError, match="nan") as caught:
                loaded(X + 1)
            assert "Node 'logs' (Log" in notes(caught.value)
            assert np.isfinite(loaded(-X - 1)).all()


def test_a_nan_of_a_model_that_donates() -> None:
    loaded = sardonyx.load(model([node("Log", ["x"], ["y"])], ["x"], ["y"]), backend="jax")
    loaded.bind(donate="x")(jnp.asarray(X + 1))
    with looking_for_nans(), pytest.raises(FloatingPointError):
        loaded.bind(donate="x")(jnp.asarray(-X - 1))


# -- what is nobody's fault here ------------------------------------------------------------------


class TooLate(Exception):  # noqa: N818
    """What a handler of signals raises, wherever the program is."""


@each_way
def test_a_signal_in_the_midst_of_an_op(way: dict[str, Any], monkeypatch: Any) -> None:
    def late(*_: object) -> None:
        raise TooLate("time is up")

    before = signal.signal(signal.SIGUSR1, late)
    try:
        neg = OPS["", "Neg"].at(18).function
        monkeypatch.setattr(neg, "__code__", _signals.__code__)
        loaded = sardonyx.load(model([node("Neg", ["x"], ["y"], name="n")], ["x"], ["y"]), **way)
        with pytest.raises(TooLate, match="time is up") as caught:
            loaded(X)
        assert "Node 'n' (Neg, opset 18; inputs x: float32[2, 3])" in notes(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)


def _signals(xp: Any, X: Any) -> Any:
    import signal  # noqa: PLC0415  (it stands in the place of another function)

    signal.raise_signal(signal.SIGUSR1)
    return X


SLIPS = ["AttributeError", "KeyError", "AssertionError", "NameError", "NotImplementedError"]


@each_way
@pytest.mark.parametrize("kind", [*SLIPS, "RuntimeError", "StopIteration"])
def test_a_fault_of_the_package_asks_for_a_report(
    way: dict[str, Any], kind: str, monkeypatch: Any
) -> None:
    neg = OPS["", "Neg"].at(18).function
    monkeypatch.setattr(neg, "__code__", _slips.__code__)
    monkeypatch.setitem(neg.__globals__, "_slip", vars(__import__("builtins"))[kind]("a slip"))
    loaded = sardonyx.load(model([node("Neg", ["x"], ["y"], name="n")], ["x"], ["y"]), **way)
    told = (
        rf"Node 'n' \(Neg, opset 18; inputs x: float32\[2, 3\]\).*{kind}.*slip.*sardonyx 0.*report"
    )
    with pytest.raises(InternalError, match=told) as caught:
        loaded(X)
    assert type(caught.value.__cause__).__name__ == kind
    assert not isinstance(caught.value, InvalidInput)


def _slips(xp: Any, X: Any) -> Any:
    raise _slip  # type: ignore[name-defined]  # noqa: F821


@each_way
@pytest.mark.parametrize("kind", ["RuntimeWarning", "FloatingPointError", "OSError", "Exception"])
def test_others_of_the_packages_own_ops_pass(
    way: dict[str, Any], kind: str, monkeypatch: Any
) -> None:
    neg = OPS["", "Neg"].at(18).function
    error = vars(__import__("builtins"))[kind]("somebody else")
    monkeypatch.setattr(neg, "__code__", _slips.__code__)
    monkeypatch.setitem(neg.__globals__, "_slip", error)
    loaded = sardonyx.load(model([node("Neg", ["x"], ["y"], name="n")], ["x"], ["y"]), **way)
    with pytest.raises(Exception, match="somebody else") as caught:
        loaded(X)
    assert caught.value is error
    assert "Node 'n' (Neg, opset 18" in notes(error)


@each_way
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TypeError("no"), InvalidInput),
        (IndexError("no"), InvalidInput),
        (ZeroDivisionError("no"), InvalidInput),
        (MemoryError("no"), LimitExceeded),
        (RecursionError("no"), LimitExceeded),
    ],
)
def test_what_describes_the_inputs_is_theirs(
    way: dict[str, Any], error: Exception, told: type[SardonyxError], monkeypatch: Any
) -> None:
    neg = OPS["", "Neg"].at(18).function
    monkeypatch.setattr(neg, "__code__", _slips.__code__)
    monkeypatch.setitem(neg.__globals__, "_slip", error)
    loaded = sardonyx.load(model([node("Neg", ["x"], ["y"], name="n")], ["x"], ["y"]), **way)
    with pytest.raises(told, match="Node 'n'"):
        loaded(X)


def test_a_standard_operator_of_ones_own_that_only_depends_on_attributes() -> None:
    @sardonyx.op
    def Constant(xp: Backend, *, value: Host | None = None) -> Host:
        raise KeyError("k")

    nodes = [
        node("Constant", [], ["c"], name="c", value=onnx.numpy_helper.from_array(X)),
        node("Add", ["x", "c"], ["y"]),
    ]
    with pytest.raises(KeyError) as caught:
        sardonyx.load(model(nodes, ["x"], ["y"]), ops=[Constant])
    assert "Node 'c' (Constant" in notes(caught.value)


def test_an_operator_without_inputs_blames_the_model() -> None:
    nodes = [node("RandomNormal", [], ["r"], shape=[-1]), node("Add", ["x", "r"], ["y"])]
    with pytest.raises(InvalidModel, match="has no inputs"):
        sardonyx.load(model(nodes, ["x"], ["y"]), backend="numpy")(X)


def test_arrays_of_a_call_that_found_no_memory_are_freed_before_it_is_traced_again() -> None:
    """Also if errors lead back to themselves, as those of a library may."""
    held: list[ref[Any]] = []

    def fail() -> None:
        array = X.copy()
        held.append(ref(array))
        raise MemoryError("no")

    def retrace() -> None:
        assert [each() for each in held] == [None]
        raise LimitExceeded("Node 'n' finds no memory.")

    other = ValueError("no")
    try:
        fail()
    except MemoryError as error:
        error.__context__, other.__context__ = other, error
        with pytest.raises(LimitExceeded, match="Node 'n'"):
            raise_from_call(error, find("numpy").for_ops, retrace)

"""What a model calls its values is shown without its control characters, and not in full length."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from sardonyx.errors import SardonyxError
from sardonyx.printable import LONGEST_MESSAGE, LONGEST_NAME, printable
from sardonyx.types import Array, Backend
from tests.support.onnx_builders import graph, model, node, value, weight

X = np.ones((2, 3), np.float32)
# A clear screen, a colour of eight bits, a bell, a text from right to left, breaks of all kinds.
HOSTILE = "y\x1b[2J\x9b31m\x07\x7f\u202e\u2066\u200b\ufeff\u2028\u2029\r\n\tend"
LONG = "long" * 500_000
SPACED = "a b'" * 500_000
NAMES = pytest.mark.parametrize("name", [HOSTILE, LONG, SPACED], ids=["hostile", "long", "spaced"])


def require_clean(text: str, *, lines: bool = False, most: int = 3 * LONGEST_MESSAGE) -> None:
    """Nothing moves the cursor, and nothing goes on for ever."""
    left = text.replace("\n", "") if lines else text
    assert not [c for c in left if not c.isprintable()], ascii(text[:300])
    assert len(text) <= most
    assert text.isascii() or LONG not in text


@pytest.mark.parametrize(
    "text",
    ["größe", "名前", "имя", "اسم", "naïve café", "emb\u00e9d", "🙂", "C:\\models\\x", "a'b"],
)
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert printable(text) == text
    assert str(SardonyxError(f"No input '{text}'.")) == f"No input '{text}'."


def test_every_character_that_cannot_be_seen_is_escaped() -> None:
    hidden = [*range(32), *range(127, 160), 0x200B, 0x200D, 0x2028, 0x2029, *range(0x202A, 0x202F)]
    hidden += [*range(0x2066, 0x206A), 0xFEFF, 0xD800, 0xDFFF, 0xE0001, 0x61C]
    for code in hidden:
        shown = printable(f"a{chr(code)}b")
        assert shown.startswith("a\\"), hex(code)
        assert shown.isprintable()
        shown.encode("ascii")


@pytest.mark.parametrize("text", [HOSTILE, LONG, SPACED, LONG + HOSTILE, "\x1b" * 10**6])
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    once = printable(text)
    require_clean(once, most=LONGEST_MESSAGE)
    assert printable(once) == once


def test_both_ends_of_a_message_are_kept() -> None:
    message = str(SardonyxError(f"The input '{LONG}' is wrong: pass an array."))
    assert message.startswith("The input 'longlong")
    assert message.endswith("' is wrong: pass an array.")
    assert len(message) < LONGEST_NAME + 100
    message = str(SardonyxError(f"The input '{'some words ' * 10**5}' is wrong: pass an array."))
    assert len(message) < LONGEST_NAME + 100
    message = str(SardonyxError("The model needs " + "one, " * 10**5 + "and a way out."))
    assert len(message) == LONGEST_MESSAGE
    assert message.endswith("and a way out.")


def broken(name: str) -> list[Callable[[str], Any]]:
    """Calls that are refused, with messages that quote the name."""
    add = model([node("Add", ["x", "w"], [name], name=name)], ["x"], [name], [weight("w", X)])
    unknown = model([node(name, ["x"], ["y"], name=name, domain="odd")], ["x"], ["y"], odd=1)
    taking = model([node("Neg", [name], ["y"])], [value(name, [name, 3])], ["y"])
    missing = model([node("Neg", [name], ["y"])], ["x"], ["y"])
    attribute = model([node("Softmax", ["x"], ["y"], **{name: 3})], ["x"], ["y"])
    equation = model([node("Einsum", ["x"], ["y"], equation=name, name="e")], ["x"], ["y"])
    branches = model(
        [
            node("ReduceSum", ["x"], ["s"], keepdims=0),
            node("Cast", ["s"], ["c"], to=onnx.TensorProto.BOOL),
            node(
                "If",
                ["c"],
                ["y"],
                name=name,
                then_branch=graph([node("MatMul", ["x", "x"], [name], name=name)], [], [name]),
                else_branch=graph([node("Neg", ["x"], ["n"])], [], ["n"]),
            ),
        ],
        ["x"],
        ["y"],
    )

    def call(proto: onnx.ModelProto, *inputs: Any, **named: Any) -> Callable[[str], Any]:
        return lambda backend: sardonyx.load(proto, backend=backend)(*inputs, **named)

    return [
        call(add, X[:, :2]),
        call(add),
        call(add, **{name + "s": X}),
        call(taking),
        call(taking, X.astype(int)),
        call(taking, X[0]),
        call(taking, X[:, :2]),
        call(unknown, X),
        call(missing, X),
        call(attribute, X),
        call(equation, X),
        call(branches, X),
        lambda backend: sardonyx.load(add, backend=backend).run([name + "s"], {"x": X}),
        lambda backend: sardonyx.load(add, backend=name),
        lambda backend: sardonyx.load(add, device=name),
        lambda backend: sardonyx.load(f"/{name}"),
        lambda backend: sardonyx.load(taking, buckets={name: [name]}, backend=backend),
        lambda backend: sardonyx.run_op("Einsum", X, equation=name, backend=backend),
        lambda backend: sardonyx.run_op(name, X),
    ]


@pytest.mark.sampled(5)
@NAMES
@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("number", range(len(broken("n"))))
def test_messages(name: str, backend: str, number: int) -> None:
    with pytest.raises(SardonyxError) as caught:
        broken(name)[number](backend)
    require_clean(str(caught.value), most=LONGEST_MESSAGE)
    # Nor do those that it came from: they are shown with it.
    error: BaseException | None = caught.value
    while error is not None:
        for line in traceback.TracebackException.from_exception(error).format_exception_only():
            require_clean(line, lines=True)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@NAMES
def test_a_note_names_the_node(name: str) -> None:
    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Array) -> Array:
        raise KeyError

    proto = model([node("Fails", ["x"], [name], name=name, domain="mine")], ["x"], [name], mine=1)
    with pytest.raises(KeyError) as caught:
        sardonyx.load(proto, ops=[Fails])(X)
    require_clean(caught.value.__notes__[-1])


@NAMES
def test_results_are_still_found_by_their_names(name: str, xp: Any) -> None:
    nodes = [node("Neg", ["x"], [name]), node("Exp", ["x"], ["_fields"])]
    loaded = sardonyx.load(model(nodes, ["x"], [name, "_fields"]), backend=xp)
    out = loaded(X)
    np.testing.assert_array_equal(np.asarray(out[name]), -X)
    assert out.keys() == (name, "_fields")
    assert list(loaded.run([name], {"x": X})[0].shape) == [2, 3]
    require_clean(repr(out), lines=True)
    with pytest.raises(KeyError) as caught:
        out["nothing"]
    require_clean(str(caught.value))
    if xp.name == "jax":
        doubled = jax.tree.map(lambda a: a * 2, out)
        np.testing.assert_array_equal(doubled[name], -2 * X)
        np.testing.assert_array_equal(jax.jit(loaded)(X)[name], -X)


@NAMES
def test_listings(name: str, xp: Any, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], [name + "1"]),
        node("Identity", ["x"], [name + "2"]),
        node("MatMul", [name + "2", name + "w"], [name], name=name),
    ]
    proto = model(
        nodes,
        [value("x", [name, 3])],
        [value(name, [name, 3])],
        [weight(name + "w", np.ones((3, 3), np.float32))],
    )
    proto.graph.name = name
    proto.producer_name = name
    loaded = sardonyx.load(proto, backend=xp)
    for shown in (loaded, loaded.inputs, loaded.outputs, *loaded.inputs, loaded.params):
        require_clean(repr(shown), lines=True)
        require_clean(str(shown), lines=True)
    program = loaded.trace(X)
    require_clean(str(program), lines=True)
    assert len(str(program).splitlines()) < 20
    with pytest.raises(KeyError) as caught:
        program.kind(name + "!")
    require_clean(str(caught.value))
    for text in (str(loaded.stats()), str(loaded.memory(X))):
        require_clean(text, lines=True)


@NAMES
def test_what_is_made_of_a_model(name: str) -> None:
    proto = model(
        [node("MatMul", ["x", name], ["y"], name=name)],
        ["x"],
        ["y"],
        [weight(name, np.ones((3, 3), np.float32))],
    )
    fn, _ = sardonyx.to_jax(proto)
    require_clean(repr(fn))
    mesh = jax.make_mesh((1,), ("data",))
    sharded = sardonyx.shard(proto, mesh)
    require_clean(repr(sharded))
    require_clean(str(sharded.report), lines=True)


@NAMES
def test_the_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = model([node("Neg", ["x"], [name], name=name)], [value("x", [name, 3])], [name])
    proto.producer_name = name
    proto.graph.doc_string = name
    onnx.helper.set_model_props(proto, {name: name})
    onnx.save(proto, tmp_path / "m.onnx")
    assert main(["show", str(tmp_path / "m.onnx"), "--backend", "numpy"]) == 0
    require_clean(capsys.readouterr().out, lines=True)
    proto.graph.node[0].op_type = name
    onnx.save(proto, tmp_path / "m.onnx")
    assert main(["show", str(tmp_path / "m.onnx")]) == 1
    told = capsys.readouterr()
    require_clean(told.out, lines=True)
    assert len(told.err.splitlines()) == 1
    require_clean(told.err, lines=True)

"""Saying where something went wrong: node, operator, opset, dtypes and shapes.

Errors that `blame` translates say it in their message; those that pass as they are, in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from sardonyx import errors
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import TooLarge
from sardonyx.backends.operations.library import HoldsNoStrings
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded, SardonyxError
from sardonyx.graph.errors.translation import own_opset, reason, translated
from sardonyx.graph.ir import Node
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.values.kinds import Device, Static, Value
from sardonyx.ops.definition import NeedsHost
from sardonyx.printable import LONGEST_NAME, printable, shortened

# How many inputs a message tells.
MOST_SHOWN = 8

_SIGNALS = (NeedsHost, HoldsNoStrings, TooLarge)
# The mark of an error that names its node.
_PLACED = "placed"


# -- where ----------------------------------------------------------------------------------------


def where(node: Node, opset: int | None, inputs: Sequence[Value | Spec]) -> str:
    """A node as messages name it, with what it was given."""
    pairs = list(zip(node.inputs, inputs, strict=False))
    given = ", ".join(
        f"{shortened(name, LONGEST_NAME) or '(none)'}: {described(value)}"
        for name, value in pairs[:MOST_SHOWN]
    )
    if len(pairs) > MOST_SHOWN:
        given += f" and {len(pairs) - MOST_SHOWN} more"
    version = "" if opset is None else f", opset {opset}"
    operator = shortened(node.operator, LONGEST_NAME)
    return f"{_label(node, capital=True)} ({operator}{version}; inputs {given or 'none'})"


def _label(node: Node, *, capital: bool = False) -> str:
    label = shortened(node.label, LONGEST_NAME)
    return f"{label[0].upper()}{label[1:]}" if capital else label


def described(value: Value | Spec) -> str:
    """A value's dtype and shape."""
    if isinstance(value, (Static, Device, Spec)):
        return f"{short_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "absent" if value is None else "a map"


# -- at a node, in a step, in a call --------------------------------------------------------------


def raise_at_node(
    error: Exception, node: Node, opset: int, inputs: Sequence[Value], backend: Backend
) -> NoReturn:
    """Raise an op's error, or a library's, with the node in it. Call it while handling the error.

    The innermost node counts: an error that names one passes.
    """
    if isinstance(error, _SIGNALS) or _is_placed(error):
        raise error
    place = where(node, opset, inputs)
    if isinstance(error, SardonyxError):
        _raise_placed(error, place, node)
    if isinstance(error, RecursionError) and own_opset(error) is None:
        raise _placed(LimitExceeded(f"{place} is nested too deep.")) from None
    fault = translated(error, f"{place} cannot run on these inputs", backend)
    if fault is error:
        raise _noted(error, place)
    if not inputs and isinstance(fault, InvalidInput):
        fault = InvalidModel(
            f"{place} cannot run: {reason(error, backend)}. It depends on nothing, so the model "
            "itself is wrong: export it again."
        )
    raise _placed(fault) from _plain(error)


def fault_at_node(
    error: Exception, node: Node, opset: int, inputs: Sequence[Value], backend: Backend
) -> Exception:
    """The error that `raise_at_node` would raise."""
    try:
        raise_at_node(error, node, opset, inputs, backend)
    except Exception as fault:
        return fault


def _raise_placed(error: SardonyxError, place: str, node: Node) -> NoReturn:
    text = str(error)
    if printable(_label(node)).lower() in text.lower():
        raise _placed(error)
    if type(error).__module__ != errors.__name__:  # Somebody's own, made of who knows what.
        raise _noted(error, place)
    raise _placed(type(error)(f"{place}: {text.rstrip('.')}.")) from None


def note_step(error: Exception, node: Node, arrays: Sequence[Any], xp: Backend) -> None:
    """Name the node in an error that a step of a program raises, if it is to pass as it is.

    To find the node of all others, `raise_from_call` has the call traced once more.
    """
    if _is_placed(error) or isinstance(error, _SIGNALS):
        return
    if translated(error, "", xp) is error:
        _noted(error, where(node, own_opset(error), [xp.spec(array) for array in arrays]))


def raise_from_call(error: Exception, backend: Backend, retrace: Callable[[], object]) -> NoReturn:
    """Raise what stopped a call, with its node in it. Call it while handling the error.

    Where no node is named yet, `retrace` traces the call once more, which meets the same fault.
    """
    if isinstance(error, SardonyxError) or _is_placed(error):
        raise error
    try:
        retrace()
    except SardonyxError:
        raise
    except Exception as again:
        notes = getattr(again, "__notes__", ()) if _is_placed(again) else ()
    else:
        notes = ()
    if not notes:
        raise_told(error, "The call could not run", backend)
    for note in notes:
        _add_note(error, note)
    raise error


def raise_told(error: Exception, what: str, backend: Backend) -> NoReturn:
    """Raise a library's error in our words, where no node is known. Call it while handling it."""
    fault = translated(error, what, backend)
    if fault is error:
        if not _is_placed(error):
            _add_note(error, f"{what}. To have the node named, load the model with jit=False.")
        raise error
    raise fault from _plain(error)


# -- marks and notes ------------------------------------------------------------------------------


def _is_placed(error: Exception) -> bool:
    return bool(error.__dict__.get(_PLACED))


def _placed(error: Exception) -> Exception:
    error.__dict__[_PLACED] = True
    return error


def _noted(error: Exception, place: str) -> Exception:
    _add_note(error, printable(f"{place} raised this in a call of sardonyx."))
    return _placed(error)


def _add_note(error: Exception, note: str) -> None:
    with suppress(Exception):  # A frozen class of errors takes none.
        error.add_note(note)


def _plain(error: Exception) -> Exception:
    """The error, to be shown as a cause: what it quotes of a model without control characters."""
    if type(error).__module__ == "builtins":
        error.args = tuple(printable(a) if isinstance(a, str) else a for a in error.args)
    return error

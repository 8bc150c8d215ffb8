"""The place of an error: node, operator, opset, dtypes and shapes.

Errors that `translation` translates have the place in their message; all others in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from traceback import clear_frames
from typing import Any, NoReturn

from sardonyx import errors
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import TooLarge
from sardonyx.backends.operations.array_library import HoldsNoStrings
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded, SardonyxError
from sardonyx.graph.errors.translation import reason, translated, user_op_opset
from sardonyx.graph.ir import Node
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.values.kinds import Device, Static, Value
from sardonyx.ops.definition import NeedsHost
from sardonyx.printable import LONGEST_NAME, printable, shortened

# Maximum number of inputs in one message.
MOST_SHOWN = 8

_SIGNALS = (NeedsHost, HoldsNoStrings, TooLarge)
# The attribute that marks an error which already names its node.
_LOCATED = "sardonyx_located"


# -- where ----------------------------------------------------------------------------------------


def where(node: Node, opset: int | None, inputs: Sequence[Value | Spec]) -> str:
    """Return a node's title for messages, with its operator, opset and inputs."""
    pairs = list(zip(node.inputs, inputs, strict=False))
    shown = ", ".join(
        f"{shortened(name, LONGEST_NAME) or '(none)'}: {described(value)}"
        for name, value in pairs[:MOST_SHOWN]
    )
    if len(pairs) > MOST_SHOWN:
        shown += f" and {len(pairs) - MOST_SHOWN} more"
    version = "" if opset is None else f", opset {opset}"
    label, operator = _label(node), shortened(node.operator, LONGEST_NAME)
    return f"{label[0].upper()}{label[1:]} ({operator}{version}; inputs {shown or 'none'})"


def _label(node: Node) -> str:
    return shortened(node.label, LONGEST_NAME)


def described(value: Value | Spec) -> str:
    """Return a value's dtype and shape for messages."""
    if isinstance(value, (Static, Device, Spec)):
        return f"{short_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "absent" if value is None else "a map"


# -- at a node, in a step, in a call --------------------------------------------------------------


def raise_at_node(
    error: Exception, node: Node, opset: int, inputs: Sequence[Value], backend: Backend
) -> NoReturn:
    """Raise an op's or a library's error with its node. Call it in an except block.

    An error that already names a node, the innermost one, passes unchanged.
    """
    if isinstance(error, _SIGNALS) or _is_located(error):
        raise error
    place = where(node, opset, inputs)
    if isinstance(error, SardonyxError):
        _raise_located(error, place, node)
    if isinstance(error, RecursionError) and user_op_opset(error) is None:
        raise _located(LimitExceeded(f"{place} is nested too deep: flatten it.")) from None
    translation = translated(error, f"{place} cannot run on these inputs", backend)
    if translation is error:
        raise _noted(error, place)
    if not inputs and isinstance(translation, InvalidInput):
        translation = InvalidModel(
            f"{place} cannot run: {reason(error, backend)}. The node has no inputs, so the model "
            "itself is invalid: export it again."
        )
    raise _located(translation) from _printable(error)


def fault_at_node(
    error: Exception, node: Node, opset: int, inputs: Sequence[Value], backend: Backend
) -> Exception:
    """Return the error that `raise_at_node` would raise."""
    try:
        raise_at_node(error, node, opset, inputs, backend)
    except Exception as raised:
        return raised


def _raise_located(error: SardonyxError, place: str, node: Node) -> NoReturn:
    text = str(error)
    if printable(_label(node)).lower() in text.lower():
        raise _located(error)
    if type(error).__module__ != errors.__name__:  # A user's subclass, whose arguments are unknown.
        raise _noted(error, place)
    raise _located(type(error)(f"{place}: {text.rstrip('.')}.")) from None


def note_step(error: Exception, node: Node, arrays: Sequence[Any], xp: Backend) -> None:
    """Add the node as a note to an error of a program's step, if the error is not translated.

    For translated errors, `raise_from_call` traces the call again to find the node.
    """
    if _is_located(error) or isinstance(error, _SIGNALS):
        return
    if translated(error, "", xp) is error:
        _noted(error, where(node, user_op_opset(error), [xp.spec(array) for array in arrays]))


def raise_from_call(error: Exception, backend: Backend, retrace: Callable[[], object]) -> NoReturn:
    """Raise a call's error with its node. Call it in an except block.

    If the error names no node yet, `retrace` traces the call again, to raise the same error there.
    """
    if isinstance(error, SardonyxError) or _is_located(error):
        raise error
    if isinstance(translated(error, "", backend), LimitExceeded):
        _free(error)
    try:
        retrace()
    except SardonyxError:
        raise
    except Exception as again:
        notes = getattr(again, "__notes__", ()) if _is_located(again) else ()
    else:
        notes = ()
    if not notes:
        raise_translated(error, "The call could not run", backend)
    for note in notes:
        _add_note(error, note)
    raise error


def _free(error: BaseException | None) -> None:
    """Let go of what an error's frames hold: on a device without memory nothing can be traced."""
    freed = set[int]()
    while error is not None and id(error) not in freed:
        freed.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__context__


def raise_translated(error: Exception, summary: str, backend: Backend) -> NoReturn:
    """Raise a library's error, translated, where the node is unknown. Call it in an except block.

    `summary` is the beginning of the message.
    """
    translation = translated(error, summary, backend)
    if translation is error:
        if not _is_located(error):
            _add_note(error, f"{summary}. To see the node, load the model with jit=False.")
        raise error
    raise translation from _printable(error)


# -- marks and notes ------------------------------------------------------------------------------


def _is_located(error: Exception) -> bool:
    return bool(error.__dict__.get(_LOCATED))


def _located(error: Exception) -> Exception:
    """Mark an error that names its node."""
    error.__dict__[_LOCATED] = True
    return error


def _noted(error: Exception, place: str) -> Exception:
    _add_note(error, printable(f"{place} raised this in a call of sardonyx."))
    if isinstance(error, FloatingPointError) and str(error).startswith("invalid value ("):
        # JAX found a NaN or an infinity, and its message has no place.
        error.args = (printable(f"{place}: {error}"),)
    return _located(error)


def _add_note(error: Exception, note: str) -> None:
    with suppress(Exception):  # An exception class can be frozen, and then accepts no notes.
        error.add_note(note)


def _printable(error: Exception) -> Exception:
    """Return the error for use as a cause, with the control characters in its text escaped."""
    if type(error).__module__ == "builtins":
        error.args = tuple(printable(a) if isinstance(a, str) else a for a in error.args)
    return error

"""The arguments of a call as the inputs, attributes and results of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.functions.signatures import signature_text
from sardonyx.graph.standard.operators import Signature, Slot
from sardonyx.recording.active import BoundCall
from sardonyx.recording.operators import Operator

# Attributes and inputs that say how many results a call has, where their number is free.
_COUNTING = ("num_outputs", "split")
MOST_RESULTS = 2**16


class BadCallError(InvalidInput, TypeError):
    """The arguments of a call do not fit the operator's signature."""


def bind(
    operator: Operator,
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    outputs: int | Sequence[str] | None = None,
) -> BoundCall:
    """Sort the arguments of a call into inputs, attributes and results."""
    schema = operator.schema
    placed = list(inputs)
    _, most = schema.input_counts
    if len(placed) > most:
        raise _misfit(operator, f"takes at most {most} inputs, but got {len(placed)}")
    attributes: dict[str, Any] = {}
    for name, value in named.items():
        if name in schema.attributes:
            if value is not None:
                attributes[name] = value
        else:
            _place(operator, placed, name, value)
    while placed and placed[-1] is None:
        placed.pop()
    _require(operator, placed, attributes)
    results = _results(operator, placed, attributes, outputs)
    return BoundCall(operator, placed, attributes, results)


def _require(operator: Operator, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Refuse a call that lacks an input or an attribute."""
    schema = operator.schema
    least, _ = schema.input_counts
    for i, slot in enumerate(schema.inputs[:least]):
        if i >= len(inputs) or (inputs[i] is None and not slot.optional and not slot.variadic):
            raise _misfit(operator, f"needs the input '{slot.name}'")
    if len(inputs) < least:
        raise _misfit(operator, f"needs at least {least} inputs, but got {len(inputs)}")
    for name in schema.required:
        if name not in attributes:
            raise _misfit(operator, f"needs the attribute '{name}'")


def _place(operator: Operator, placed: list[Any], name: str, value: Any) -> None:
    """Put an input that was passed by name into its place."""
    slots = operator.schema.inputs
    index = next((i for i, slot in enumerate(slots) if slot.name == name), None)
    if index is None:
        raise _misfit(operator, f"has no input or attribute '{name}'")
    if index < len(placed) and placed[index] is not None:
        raise _misfit(operator, f"got the input '{name}' twice")
    placed.extend([None] * (index + 1 - len(placed)))
    if slots[index].variadic:
        if not isinstance(value, (list, tuple)):
            raise _misfit(operator, f"takes a list of arrays for '{name}'")
        placed[index:] = value
    else:
        placed[index] = value


def _results(
    operator: Operator,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    outputs: int | Sequence[str] | None,
) -> tuple[str, ...] | None:
    slots = operator.schema.outputs
    if outputs is None:
        if not (slots and slots[-1].variadic):
            return _default_results(operator)
        if any(callable(value) for value in attributes.values()):
            return None
        outputs = _counted(operator.schema, inputs, attributes)
        if outputs is None:
            raise _misfit(operator, "has any number of results: pass outputs=, their number,")
    if isinstance(outputs, int) and not isinstance(outputs, bool):
        _, most = operator.schema.output_counts
        if not 1 <= outputs <= min(most, MOST_RESULTS):
            raise _misfit(operator, f"has 1 to {min(most, MOST_RESULTS):,} results, not {outputs}")
        return numbered(slots, outputs)
    return _named_results(operator, outputs)


def _default_results(operator: Operator) -> tuple[str, ...]:
    """All results that are not optional; all of them, if the standard has only optional ones."""
    slots = operator.schema.outputs
    required = tuple(slot.name for slot in slots if not slot.optional)
    if required or not slots:
        return required
    chosen = slots if operator.standard is not None else slots[:1]
    return tuple(slot.name for slot in chosen)


def _named_results(operator: Operator, names: Any) -> tuple[str, ...]:
    slots = [slot.name for slot in operator.schema.outputs]
    is_names = isinstance(names, (list, tuple)) and names and set(names) <= set(slots)
    if not is_names:
        raise _misfit(operator, f"has the results {', '.join(slots)}, not {names!r:.100}")
    last = max(slots.index(name) for name in names)
    return tuple(name if name in names else "" for name in slots[: last + 1])


def numbered(slots: Sequence[Slot], count: int) -> tuple[str, ...]:
    """Return the names of the first results; those of a variadic one have numbers."""
    fixed = [slot.name for slot in slots if not slot.variadic][:count]
    more = (f"{slots[-1].name}{i}" for i in range(count - len(fixed)))
    return (*fixed, *more)


def _counted(schema: Signature, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> int | None:
    by_name = {slot.name: value for slot, value in zip(schema.inputs, inputs, strict=False)}
    for name in _COUNTING:
        value = attributes.get(name, by_name.get(name))
        if isinstance(value, int):
            return value
        if isinstance(value, (list, tuple)):
            return len(value)
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) == 1 and isinstance(shape[0], int):
            return int(shape[0])
    return None


def _misfit(operator: Operator, reason: str) -> BadCallError:
    return BadCallError(f"{operator.title} {reason}: its signature is {signature_text(operator)}.")

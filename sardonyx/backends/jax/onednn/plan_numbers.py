"""Plans as numbers, which depend on sizes, and as all else, which does not."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.jax.onednn.plans import Form, Plan, Planned

Numbers: TypeAlias = np.ndarray[Any, Any]


class TakenApart(NamedTuple):
    """A plan: what is to be done, the forms of all arrays, and where results begin."""

    structure: Hashable
    numbers: Numbers
    # Which numbers are bytes of memory or lengths of axes: nothing is planned for empty arrays.
    lengths: Numbers


def taken_apart(planned: Planned, plan: Plan) -> TakenApart:
    """Take a plan apart."""
    spec, forms = np.frombuffer(plan.spec, np.int64), _forms(planned, plan)
    results = [(result.written, result.form is None) for result in plan.results]
    kinds = [(len(form.shape), form.dtype) for form in forms]
    numbers, lengths = [result.at for result in plan.results], list(range(2, 2 + int(spec[1])))
    for form in forms:
        begin = len(spec) + len(numbers)
        lengths += range(begin, begin + len(form.shape))
        numbers += *form.shape, *form.strides
    return TakenApart(
        (*_structure(spec.tolist()), plan.constants, *results, *kinds),
        np.concatenate([spec, np.array(numbers, np.int64)]),
        np.array(lengths, np.int64),
    )


def put_together(sample: Planned, plan: Plan, numbers: Numbers) -> Planned:
    """Return what has the structure of a plan, and other numbers."""
    end = len(plan.spec) // numbers.itemsize
    others = iter(numbers[end:].tolist())
    places = list(islice(others, len(plan.results)))
    forms = iter([_form(each, others) for each in _forms(sample, plan)])
    inputs = list(islice(forms, len(sample.forms)))
    written = list(islice(forms, len(plan.written)))
    results = [
        each._replace(at=at, form=None if each.form is None else next(forms))
        for each, at in zip(plan.results, places, strict=True)
    ]
    of_sizes = Plan(numbers[:end].tobytes(), plan.constants, written, results)
    return Planned(sample.constants, inputs, of_sizes)


def _forms(planned: Planned, plan: Plan) -> list[Form]:
    results = [result.form for result in plan.results if result.form is not None]
    return [*planned.forms, *plan.written, *results]


def _form(form: Form, numbers: Iterator[int]) -> Form:
    axes = len(form.shape)
    return Form(tuple(islice(numbers, axes)), tuple(islice(numbers, axes)), form.dtype)


def _structure(spec: Sequence[int]) -> Iterator[Hashable]:
    """Kinds and arrays of the kernels of a sequence; see kernels/sequence.h."""
    outside, between = spec[:2]
    yield outside, between
    at = 2 + between + 1
    while at < len(spec):
        kind, length = spec[at : at + 2]
        arrays = at + 2 + length
        begin, end = arrays + 1, arrays + 1 + 2 * spec[arrays]
        yield kind, length, *spec[begin:end:2]
        at = end

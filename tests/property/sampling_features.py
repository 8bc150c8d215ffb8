"""What the entries of the table of disagreements look at in a case of resampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.dtypes import isdtype
from tests.property.case import Case
from tests.property.features import shape_of


class Resized(NamedTuple):
    """An axis that is resized."""

    length: int
    size: int
    scale: float
    start: float
    end: float


def mode_of(case: Case) -> str:
    return str(case.attributes.get("mode", "nearest"))


def positions_are(case: Case, *transformations: str) -> bool:
    return transformation_of(case) in transformations


def transformation_of(case: Case) -> str:
    usual = "half_pixel" if case.opset >= 11 else "asymmetric"
    return str(case.attributes.get("coordinate_transformation_mode", usual))


def makes_fractions_of_integers(case: Case) -> bool:
    return mode_of(case) != "nearest" and isdtype(case.inputs[0].dtype, "integral")


def crops_where_the_size_stays(case: Case) -> bool:
    return positions_are(case, "tf_crop_and_resize") and any(
        (r.start, r.end) != (0, 1) and r.length == r.size for r in resized(case)
    )


def aligns_no_whole_size(case: Case) -> bool:
    return positions_are(case, "align_corners") and any(
        abs(r.length * r.scale - r.size) > 1e-5 for r in resized(case)
    )


def keeps_a_size_that_is_scaled(case: Case) -> bool:
    return any(r.scale != 1 and r.size == r.length for r in resized(case))


def keeps_aspect_from_the_back(case: Case) -> bool:
    policy = case.attributes.get("keep_aspect_ratio_policy", "stretch")
    return policy != "stretch" and min(case.attributes.get("axes", [0])) < 0


def filters_in_vain(case: Case) -> bool:
    antialias, exclude = (
        case.attributes.get(name) == 1 for name in ("antialias", "exclude_outside")
    )
    if mode_of(case) == "nearest":
        return antialias or exclude
    return mode_of(case) == "linear" and exclude and not antialias


def is_resized_to_nothing(case: Case) -> bool:
    return len(case.inputs) > 3 and 0 in case.inputs[3].tolist()


def misses_a_tie(case: Case) -> bool:
    """Whether float32 makes a whole position, or one midway, something else."""
    if mode_of(case) != "nearest" and not positions_are(case, "tf_crop_and_resize"):
        return False
    formula = _FORMULAS[transformation_of(case)]
    for one in resized(case):
        exact, rounded = (formula(_Terms.of(one, t)) * 2 for t in (np.float64, np.float32))
        tie = np.rint(exact)
        if np.any((np.abs(exact - tie) < 1e-5) & (rounded != tie)):
            return True
    return False


def resized(case: Case) -> list[Resized]:
    """What becomes of each axis that is named, or of all."""
    shape = shape_of(case)
    axes = [axis % len(shape) for axis in case.attributes.get("axes", range(len(shape)))]
    lengths = [shape[axis] for axis in axes]
    roi, scales, sizes = _targets(case)
    if scales is None:
        scales = [size / n for size, n in zip(sizes, lengths, strict=True)]
        policy = case.attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
            sizes = [int(n * s + 0.5 + 1e-6) for n, s in zip(lengths, scales, strict=True)]
    else:
        sizes = [int(n * s + 1e-6) for n, s in zip(lengths, scales, strict=True)]
    if roi is None:
        roi = [0] * len(axes) + [1] * len(axes)
    starts, ends = roi[: len(axes)], roi[len(axes) :]
    return [Resized(*one) for one in zip(lengths, sizes, scales, starts, ends, strict=True)]


def _targets(case: Case) -> tuple[Any, Any, Any]:
    if case.opset < 9:
        return None, case.attributes["scales"], None
    given = (case.inputs[0], None, *case.inputs[1:]) if case.opset < 11 else case.inputs
    lists = [None if v is None or not v.size else v.tolist() for v in given[1:]]
    return tuple(lists + [None] * (3 - len(lists)))


Array: TypeAlias = np.ndarray[Any, Any]


class _Terms(NamedTuple):
    x: Array
    scale: Any
    length: Any
    size: Any
    start: Any
    end: Any

    @classmethod
    def of(cls, one: Resized, kind: type) -> _Terms:
        terms = (one.scale, one.length, one.size, one.start, one.end)
        return cls(np.arange(one.size, dtype=kind), *map(kind, terms))


def _crop(t: _Terms) -> Array:
    last = t.length - type(t.length)(1)
    if t.size <= 1:
        return (t.start + t.end) * last / type(t.length)(2) + 0 * t.x
    return t.start * last + t.x * (t.end - t.start) * last / (t.size - type(t.size)(1))


def _half_pixel(t: _Terms) -> Array:
    half = type(t.scale)(0.5)
    return (t.x + half) / t.scale - half


def _symmetric(t: _Terms) -> Array:
    kind = type(t.scale)
    adjustment = t.size / (t.scale * t.length)
    return t.length / kind(2) * (kind(1) - adjustment) + _half_pixel(t)


# As onnxruntime writes them.
_FORMULAS: Mapping[str, Callable[[_Terms], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda t: _half_pixel(t) if t.size > 1 else 0 * t.x,
    "asymmetric": lambda t: t.x / t.scale,
    "align_corners": lambda t: t.x * (t.length - 1) / max(t.size - 1, 1),
    "tf_crop_and_resize": _crop,
}


def is_of_negative_area(case: Case) -> bool:
    """Whether a region ends before it begins on one axis alone, and no number of samples is set."""
    regions = case.inputs[1]
    if case.attributes.get("sampling_ratio", 0) or regions is None or not regions.size:
        return False
    return bool(np.any(np.prod(regions[:, 2:] - regions[:, :2], axis=1) < 0))

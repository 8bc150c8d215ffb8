"""What the entries of the table of disagreements look at in a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import numpy_helper

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import dtype_of
from tests.property.case import Case

# -- arrays for examples --------------------------------------------------------------------------


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def halves(*values: float) -> np.ndarray:
    return np.array(values, np.float16)


def doubles(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# -- inputs and attributes ------------------------------------------------------------------------


def has(case: Case, test: Callable[[Any], Any], index: int = 0) -> bool:
    """Whether some element of an input passes a test for floats; integers never do."""
    x = case.inputs[index]
    is_float = x is not None and isdtype(x.dtype, "real floating")
    return bool(is_float and np.any(test(x.astype(np.float64))))


def largest(x: np.ndarray) -> float:
    """The largest absolute value of some numbers."""
    return float(np.max(np.abs(x.astype(np.float64)), initial=0))


def is_no_power_of_two(x: np.ndarray) -> np.ndarray:
    return np.abs(np.frexp(x)[0]) != 0.5


def shape_of(case: Case, index: int = 0) -> tuple[int, ...]:
    x = case.inputs[index]
    return () if x is None else x.shape


def dtype_in(case: Case) -> str:
    x = case.inputs[0]
    return "" if x is None else x.dtype.name


def axes_of(case: Case) -> list[int]:
    if len(case.inputs) > 1 and case.inputs[1] is not None:
        return case.inputs[1].tolist()
    return list(case.attributes.get("axes", []))


def names_an_axis_twice(case: Case) -> bool:
    rank = len(shape_of(case))
    axes = [axis % rank for axis in axes_of(case) if -rank <= axis < rank]
    return len(set(axes)) < len(axes)


def target_of(case: Case) -> np.dtype[Any]:
    """What a Cast or CastLike converts to."""
    if case.op == "CastLike":
        like = case.inputs[1]
        return np.dtype(object) if like is None else like.dtype
    return dtype_of(case.attributes["to"])


def is_beyond_its_target(case: Case) -> bool:
    """Whether a float is converted to an integer type that lacks it."""
    to = target_of(case)
    if not isdtype(to, "integral"):
        return False
    limits = ml_dtypes.iinfo(to)
    least, most = float(limits.min) - 1, float(limits.max) + 1
    return has(case, lambda x: ~((x > least) & (x < most)))


def bits_of(dtype: np.dtype[Any]) -> int:
    return int(ml_dtypes.iinfo(dtype).bits) if isdtype(dtype, "integral") else 8 * dtype.itemsize


# -- of one operator ------------------------------------------------------------------------------


def lacks_a_bound(case: Case) -> bool:
    return len(case.inputs) < 3 or any(bound is None for bound in case.inputs[1:])


def inexact_power(case: Case) -> bool:
    """Whether an integer power is beyond what float64 holds, or has no value."""
    x, y = case.inputs
    if not isdtype(x.dtype, "integral"):
        return False
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    with np.errstate(all="ignore"):
        power = np.abs(np.power(x.astype(np.float64), y.astype(np.float64)))
        most = min(2.0**53, float(np.iinfo(x.dtype).max))
        return bool(np.any(~(power <= most)) or largest(y) > 2**53 or np.any((y < 0) & (x == 0)))


def overhang(case: Case) -> list[int]:
    """By how much a pool's window is longer than each padded axis."""
    spatial, kernel = shape_of(case)[2:], case.attributes["kernel_shape"]
    dilations = case.attributes.get("dilations", [1] * len(kernel))
    pads = case.attributes.get("pads", [0] * 2 * len(kernel))
    pairs = zip(pads, pads[len(kernel) :], strict=False)
    return [
        (k - 1) * d + 1 - n - sum(pair)
        for n, k, d, pair in zip(spatial, kernel, dilations, pairs, strict=True)
    ]


def same_within_stride(case: Case) -> bool:
    """Whether SAME padding would be negative on some axis."""
    if not case.attributes.get("auto_pad", "").startswith("SAME"):
        return False
    kernel = case.attributes["kernel_shape"]
    strides = case.attributes.get("strides", [1] * len(kernel))
    sizes = zip(shape_of(case)[2:], kernel, strides, strict=True)
    return any((-(-n // s) - 1) * s + k < n for n, k, s in sizes)


def leaves_gaps(case: Case) -> bool:
    """Whether strides exceed what the kernel covers, on some axis."""
    kernel = shape_of(case, 1)[2:]
    strides, dilations, extra = (
        case.attributes.get(name, [usual] * len(kernel))
        for name, usual in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    sizes = zip(kernel, strides, dilations, extra, strict=True)
    return any((k - 1) * d + 1 + e < s for k, s, d, e in sizes)


def backwards_to_the_greatest(case: Case) -> bool:
    if case.opset < 10:
        return False
    ends, steps = case.inputs[2], case.inputs[4] if len(case.inputs) > 4 else None
    if ends is None or steps is None:
        return False
    return bool(np.any((steps < 0) & ((ends == 2**63 - 1) | (ends == 2**31 - 1))))


def last_part_is_empty(case: Case) -> bool:
    count = case.attributes.get("num_outputs", 1)
    size = shape_of(case)[case.attributes.get("axis", 0)]
    return (count - 1) * -(-size // count) >= size


def pads_of(case: Case) -> list[tuple[int, int, int]]:
    """The size of each padded axis, and what a Pad adds before and after it."""
    shape = shape_of(case)
    pads = case.inputs[1].tolist() if case.opset >= 11 else case.attributes["pads"]
    axes = case.inputs[3].tolist() if len(case.inputs) > 3 else range(len(shape))
    sizes = [shape[axis] for axis in axes]
    return list(zip(sizes, pads, pads[len(sizes) :], strict=False))


def crops_an_axis_away(case: Case) -> bool:
    return any(size + min(head, 0) + min(tail, 0) <= 0 for size, head, tail in pads_of(case))


def reflects_too_far(case: Case) -> bool:
    """Whether a Pad reflects more elements than there are, once negative pads removed some."""
    is_reflected = case.attributes.get("mode") == "reflect"
    return is_reflected and any(
        max(pads) >= size + sum(pad for pad in pads if pad < 0) for size, *pads in pads_of(case)
    )


def shares_keys(case: Case) -> bool:
    """Whether an Attention has more heads for its queries than for its keys."""
    given = case.attributes
    if "q_num_heads" in given:
        return bool(given["q_num_heads"] != given.get("kv_num_heads"))
    return shape_of(case)[1] != shape_of(case, 1)[1]


def reduces_nothing(case: Case) -> bool:
    shape, axes = shape_of(case), axes_of(case)
    reduced = [shape[a] for a in axes if -len(shape) <= a < len(shape)] if axes else shape
    return 0 in reduced


def batch_of_none(case: Case) -> bool:
    """Whether a batch axis of size 0 meets one of size 1, or none; a vector makes rows a batch."""
    whole = [shape_of(case, i) for i in range(2)]
    a, b = whole[0][: -1 if len(whole[1]) == 1 else -2], whole[1][:-2]
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return any(0 in pair and pair != (0, 0) for pair in pairs)


def is_cut_or_padded_spectrum(case: Case) -> bool:
    """Whether a one-sided spectrum has more elements than its signal asks for, or fewer."""
    if not (case.attributes.get("inverse") and case.attributes.get("onesided")):
        return False
    axis = case.attributes.get("axis", 1 if case.opset < 20 else -2)
    if len(case.inputs) > 2 and case.inputs[2] is not None:
        axis = int(case.inputs[2])
    length = case.inputs[1] if len(case.inputs) > 1 else None
    return length is not None and int(length) // 2 + 1 != shape_of(case)[axis]


def is_constant_over_axes(case: Case) -> bool:
    x = case.inputs[0]
    if x is None:
        return False
    wide = x.astype(np.float64)
    return bool(np.any(wide.var(axis=tuple(case.attributes.get("axes", (0, 2, 3)))) < 1e-6))


# -- of models of ai.onnx.ml ----------------------------------------------------------------------


def count_of_labels(case: Case) -> int:
    names = (name for name in case.attributes if name.startswith("classlabels"))
    return max((len(case.attributes[name]) for name in names), default=0)


def has_one_score_for_two_classes(case: Case) -> bool:
    if count_of_labels(case) != 2 or "prob_a" in case.attributes:
        return False
    if case.op == "LinearClassifier":
        return len(case.attributes["intercepts"]) == 1
    return case.op == "SVMClassifier" or len(set(case.attributes["class_ids"])) == 1


def is_transformed(case: Case, *kinds: str) -> bool:
    return case.attributes.get("post_transform", "NONE") in kinds


def scores_nothing(case: Case) -> bool:
    """Whether all scores of some row are 0, and a transformation asks for others."""
    if not is_transformed(case, "SOFTMAX_ZERO"):
        return False
    given = case.attributes
    weights = np.reshape(given["coefficients"], (given.get("targets", 1), -1))
    scores = case.inputs[0].astype(np.float64) @ weights.T + np.array(given.get("intercepts", 0.0))
    return bool(np.any(np.all(np.abs(scores) < 1e-6, axis=-1)))


def asks_where_nan_goes(case: Case) -> bool:
    """Whether some rows have a NaN, and not all nodes make the same comparison of order."""
    modes = case.attributes["nodes_modes"]
    if not isinstance(modes, list):
        modes = numpy_helper.to_array(modes).tolist()
    kinds = set(modes) - {"LEAF"}
    return has(case, np.isnan) and (len(kinds) > 1 or kinds <= {"BRANCH_NEQ", 5})

"""Where sardonyx and onnxruntime differ and are meant to: the one table of it.

The examples that the tests draw are held against it, each entry's own example must still show what
it says, and docs/disagreements.md lists every entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

from sardonyx.backends.base import isdtype
from sardonyx.graph.standard.types import number_of
from tests.property.case import Case
from tests.property.features import (
    axes_of,
    backwards_to_the_greatest,
    batch_of_none,
    bits_of,
    crops_an_axis_away,
    doubles,
    dtype_in,
    floats,
    has,
    inexact_power,
    ints,
    is_constant_over_axes,
    lacks_a_bound,
    largest,
    last_part_is_empty,
    leaves_gaps,
    names_an_axis_twice,
    overhang,
    reduces_nothing,
    same_within_stride,
    shape_of,
    target_of,
)

SARDONYX, ONNXRUNTIME, OPEN = "sardonyx", "onnxruntime", "open"


@dataclass(frozen=True)
class Disagreement:
    """What differs in which operators, why, and who is right: one of the two, or it is open."""

    operators: tuple[str, ...]
    what: str
    why: str
    right: str
    applies: Callable[[Case], bool]
    example: Case


def known_disagreement(case: Case) -> Disagreement | None:
    return next((d for d in DISAGREEMENTS if case.op in d.operators and d.applies(case)), None)


REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
NAN = float("nan")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# -- the table ------------------------------------------------------------------------------------

DISAGREEMENTS = (
    Disagreement(
        ("Sign",),
        "NaN in float16 and bfloat16: sardonyx returns NaN, onnxruntime 0.",
        "The standard does not say; onnxruntime itself returns NaN in float32.",
        OPEN,
        lambda case: dtype_in(case) in ("float16", "bfloat16") and has(case, np.isnan),
        Case("Sign", 13, (np.array([NAN], BFLOAT16),)),
    ),
    Disagreement(
        ("Celu",),
        "`alpha` 0: sardonyx refuses it, onnxruntime returns NaN or 0.",
        "The formula divides by `alpha`.",
        OPEN,
        lambda case: case.attributes.get("alpha") == 0,
        Case("Celu", 12, (floats(1, -1),), {"alpha": 0.0}),
    ),
    Disagreement(
        ("Shrink",),
        "float64, and integers beyond 2^24: onnxruntime computes in float32.",
        "The result has the type of the input, and its precision.",
        SARDONYX,
        lambda case: (
            dtype_in(case) == "float64"
            or (dtype_in(case) != "float16" and largest(case.inputs[0]) > 2**24)
        ),
        Case("Shrink", 9, (doubles(19.3),)),
    ),
    Disagreement(
        ("Shrink",),
        "A result beyond an integer type: on JAX it is the nearest that the type has, in "
        "onnxruntime and on NumPy its lower bits.",
        "The standard calls the conversion of such a float undefined.",
        OPEN,
        lambda case: case.on_jax and dtype_in(case).startswith(("int", "uint")),
        Case("Shrink", 9, (np.array([1], np.uint16),), {"bias": 3.0}, on_jax=True),
    ),
    Disagreement(
        ("Div",),
        "Infinity by a number near the greatest, on JAX: NaN instead of infinity.",
        "XLA multiplies by the reciprocal, which is too small for it not to be 0.",
        ONNXRUNTIME,
        lambda case: (
            case.on_jax
            and has(case, np.isinf)
            and has(case, lambda x: np.isfinite(x) & (np.abs(x) > 2.0**126), 1)
        ),
        Case(
            "Div",
            14,
            (doubles(np.inf, 1), doubles(float(np.finfo(np.float64).max))),
            on_jax=True,
        ),
    ),
    Disagreement(
        ("Mod",),
        "`fmod` of 64-bit integers beyond 2^53: onnxruntime computes in float64.",
        "The remainder of integers is an integer, and exact.",
        SARDONYX,
        lambda case: (
            case.attributes.get("fmod") == 1
            and dtype_in(case) in ("int64", "uint64")
            and max(map(largest, case.inputs)) > 2**53
        ),
        Case("Mod", 13, (ints(2**62 + 1), ints(3)), {"fmod": 1}),
    ),
    Disagreement(
        ("Pow",),
        "Integer powers that do not fit: sardonyx returns their lower bits, and 0 for 0 to a "
        "negative power; onnxruntime computes in float64 and converts what that gives.",
        "The standard does not say what an overflow gives.",
        OPEN,
        inexact_power,
        Case("Pow", 15, (ints(3), ints(39))),
    ),
    Disagreement(
        ("Pow",),
        "Floats to integers beyond 2^24: sardonyx takes the exponent in the type of the result, "
        "and may miss that it is odd; onnxruntime takes it in float64.",
        "An odd power has the sign of its base. Beyond 2^24 it is 0, infinite or of 1 and -1, and "
        "exactness there would make every square of a float dearer.",
        ONNXRUNTIME,
        lambda case: (
            dtype_in(case).startswith("float")
            and isdtype(case.inputs[1].dtype, "integral")
            and largest(case.inputs[1]) > 2**24
        ),
        Case("Pow", 15, (floats(-1), ints(2**24 + 1))),
    ),
    Disagreement(
        ("Clip",),
        "`min` greater than `max` before opset 11: onnxruntime refuses it, for sardonyx all is "
        "`max`.",
        "Only later versions say that all is `max`.",
        OPEN,
        lambda case: (
            case.opset < 11
            and case.attributes.get("min", -np.inf) > case.attributes.get("max", np.inf)
        ),
        Case("Clip", 6, (floats(1),), {"min": 2.0, "max": 1.0}),
    ),
    Disagreement(
        ("Clip",),
        "Infinities where a bound is absent (from opset 11 on): they stay in sardonyx, onnxruntime "
        "makes them the greatest finite number.",
        "The standard contradicts itself: its text has finite bounds by default, while its body "
        "for the operator and its reference implementation leave such values alone.",
        OPEN,
        lambda case: case.opset >= 11 and lacks_a_bound(case) and has(case, np.isinf),
        Case("Clip", 13, (floats(np.inf), floats(0).reshape(()), None)),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "Whole floats as strings: sardonyx writes `1.0`, onnxruntime `1`; and truth values: "
        "sardonyx writes `True`, onnxruntime `1`.",
        "The standard asks for plain notation, which both are.",
        OPEN,
        lambda case: (
            target_of(case).kind == "O"
            and (dtype_in(case) == "bool" or has(case, lambda x: x == np.rint(x)))
        ),
        Case("Cast", 13, (floats(1),), {"to": 8}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "`saturate` 0 where the target is no float8: onnxruntime refuses it.",
        "The attribute only applies to float8, and elsewhere has no effect.",
        SARDONYX,
        lambda case: (
            case.attributes.get("saturate") == 0 and not target_of(case).name.startswith("float8")
        ),
        Case("Cast", 19, (floats(1),), {"to": 7, "saturate": 0}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "`saturate` 0, finite numbers too large for float8e5m2: infinity in sardonyx, NaN in "
        "onnxruntime.",
        "The standard's table has infinity.",
        SARDONYX,
        lambda case: (
            case.attributes.get("saturate") == 0
            and target_of(case).name == "float8_e5m2"
            and largest(case.inputs[0]) > 57344
        ),
        Case("Cast", 19, (floats(65535),), {"to": 19, "saturate": 0}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "-0 of float8 as a truth value: False in sardonyx, True in onnxruntime.",
        "The standard has both zeros become False.",
        SARDONYX,
        lambda case: (
            dtype_in(case).startswith("float8")
            and target_of(case).kind == "b"
            and has(case, lambda x: (x == 0) & np.signbit(x))
        ),
        Case("Cast", 19, (np.array([-0.0], ml_dtypes.float8_e4m3fn),), {"to": 9}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "Fractions to integers of 4 or 2 bits: sardonyx cuts them off, onnxruntime rounds.",
        "The standard does not say; to wider integers both cut off.",
        OPEN,
        lambda case: bits_of(target_of(case)) < 8 and has(case, lambda x: x != np.rint(x)),
        Case("Cast", 21, (floats(3.75),), {"to": number_of(np.dtype(ml_dtypes.uint4))}),
    ),
    Disagreement(
        ("Reshape",),
        "`allowzero` with both 0 and -1: sardonyx refuses it, onnxruntime takes any size for -1 "
        "that it can.",
        "The standard calls it invalid, since -1 cannot be determined.",
        SARDONYX,
        lambda case: (
            case.attributes.get("allowzero") == 1 and {0, -1} <= set(case.inputs[1].tolist())
        ),
        Case("Reshape", 14, (np.zeros((0, 1), np.float32), ints(-1, 0)), {"allowzero": 1}),
    ),
    Disagreement(
        ("Squeeze",),
        "An axis named twice: sardonyx refuses it, onnxruntime takes it for one.",
        "The standard does not say; elsewhere it forbids it.",
        OPEN,
        names_an_axis_twice,
        Case("Squeeze", 13, (floats(1), ints(0, 0))),
    ),
    Disagreement(
        ("Split",),
        "`num_outputs` that leaves nothing for the last part: onnxruntime refuses it.",
        "The last part is smaller where the axis does not split evenly, here of size 0.",
        SARDONYX,
        last_part_is_empty,
        Case("Split", 18, (floats(1, 2, 3, 4),), {"num_outputs": 3}, outputs=3),
    ),
    Disagreement(
        ("Pad",),
        "Mode `wrap` of an input without elements, and any mode where negative pads take all of an "
        "axis: onnxruntime refuses it.",
        "Where the empty axis itself is not padded, the result is defined, and empty.",
        SARDONYX,
        lambda case: (
            case.attributes.get("mode", "constant") != "constant"
            and (0 in shape_of(case) or crops_an_axis_away(case))
        ),
        Case("Pad", 19, (np.zeros((0, 2), np.float32), ints(0, 1, 0, 0)), {"mode": "wrap"}),
    ),
    Disagreement(
        ("Constant",),
        "`sparse_value`: onnxruntime hands out a sparse tensor, or refuses it.",
        "The attribute is another way to write the elements of the output, a dense tensor.",
        SARDONYX,
        lambda case: "sparse_value" in case.attributes,
        Case(
            "Constant",
            13,
            (),
            {
                "sparse_value": helper.make_sparse_tensor(
                    numpy_helper.from_array(floats(1), "values"),
                    numpy_helper.from_array(ints(2), "places"),
                    [3],
                )
            },
        ),
    ),
    Disagreement(
        ("Dropout",),
        "The mask in inference before opset 12: ones in sardonyx, zeros in onnxruntime.",
        "The standard does not say; from 12 on both return ones, for what is kept.",
        OPEN,
        lambda case: case.opset < 12 and case.outputs == 2 and 0 not in shape_of(case),
        Case("Dropout", 10, (floats(1),), outputs=2),
    ),
    Disagreement(
        ("ReduceMax", "ReduceMin"),
        "NaN: it is the result in sardonyx; in onnxruntime that depends on where it stands.",
        "The operator behaves as NumPy's, whose result is NaN.",
        SARDONYX,
        lambda case: has(case, np.isnan),
        Case("ReduceMax", 13, (doubles(1, NAN),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Inputs without elements: onnxruntime leaves alone an axis that is counted from the back, "
        "and takes one that is not there.",
        "Axes lie in [-rank, rank - 1], and all that are named are reduced.",
        SARDONYX,
        lambda case: (
            0 in shape_of(case) and not set(axes_of(case)) <= set(range(len(shape_of(case))))
        ),
        Case("ReduceSum", 13, (np.zeros((1, 0), np.float32), ints(-1))),
    ),
    Disagreement(
        ("ReduceMax", "ReduceMin"),
        "The extreme of no truth values: onnxruntime refuses it.",
        "Reduction over an empty set yields the least or the greatest value of the type.",
        SARDONYX,
        lambda case: dtype_in(case) == "bool" and reduces_nothing(case),
        Case("ReduceMax", 20, (np.zeros((0,), bool),)),
    ),
    Disagreement(
        ("ReduceMean",),
        "The mean of nothing: NaN in sardonyx, 0 in onnxruntime.",
        "The standard calls it undefined.",
        OPEN,
        reduces_nothing,
        Case("ReduceMean", 13, (np.zeros((0,), np.float32),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Axes of a scalar: sardonyx refuses them, onnxruntime takes any.",
        "Axes lie in [-rank, rank - 1], and a scalar has none.",
        SARDONYX,
        lambda case: shape_of(case) == () and bool(axes_of(case)),
        Case("ReduceMax", 18, (floats(1).reshape(()), ints(0))),
    ),
    Disagreement(
        ("ReduceLogSumExp",),
        "Integers: sardonyx cuts off the result, onnxruntime its distance from the maximum.",
        "The standard does not say how a fraction becomes an integer.",
        OPEN,
        lambda case: not isdtype(case.inputs[0].dtype, "real floating"),
        Case("ReduceLogSumExp", 18, (ints(-7, -2),)),
    ),
    Disagreement(
        ("ArgMax", "ArgMin"),
        "The extreme of nothing: sardonyx refuses it, onnxruntime does so only of an axis that is "
        "counted from the front.",
        "There is no index to return.",
        SARDONYX,
        lambda case: 0 in shape_of(case),
        Case("ArgMax", 13, (np.zeros((2, 0), np.float32),), {"axis": -1}),
    ),
    Disagreement(
        ("LogSoftmax",),
        "NaN and infinity in float64: onnxruntime returns numbers where sardonyx returns NaN.",
        "The sum of the exponentials is NaN, as onnxruntime itself finds in float32.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64" and has(case, lambda x: ~np.isfinite(x)),
        Case("LogSoftmax", 13, (doubles(1, NAN, 2),)),
    ),
    Disagreement(
        ("Hardmax",),
        "NaN: sardonyx takes it for the maximum, as ArgMax does; onnxruntime does so or not, "
        "depending on where it stands.",
        "The standard does not say.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("Hardmax", 13, (floats(1, NAN, 2),)),
    ),
    Disagreement(
        ("Gather",),
        "Strings: of each slice onnxruntime copies the first string alone.",
        "A slice of the data is gathered whole.",
        SARDONYX,
        lambda case: case.inputs[0].dtype.kind == "O",
        Case("Gather", 13, (np.array([["a", "b"]], object), ints(0))),
    ),
    Disagreement(
        ("Slice",),
        "Backwards to INT_MAX: nothing in sardonyx, all down to the first in onnxruntime.",
        "The end is clamped to the axis, and the way to its start is named INT_MIN.",
        SARDONYX,
        backwards_to_the_greatest,
        Case("Slice", 13, (floats(1, 2, 3), ints(1), ints(2**63 - 1), None, ints(-1))),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "A window longer than the padded axis: sardonyx refuses it; onnxruntime returns an empty "
        "result, or a window where there is none.",
        "The formula gives size 0 for a window that is too long by no more than a stride. Both "
        "refuse it in Conv, and an empty result helps nobody.",
        OPEN,
        lambda case: max(overhang(case)) > 0,
        Case("MaxPool", 12, (np.ones((1, 1, 1), np.float32),), {"kernel_shape": [2]}),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "SAME padding where windows leave gaps: onnxruntime refuses it, in most versions.",
        "Padding adds elements or none, as onnxruntime itself has it in Conv.",
        SARDONYX,
        same_within_stride,
        Case(
            "MaxPool",
            12,
            (np.ones((1, 1, 9), np.float32),),
            {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_LOWER"},
        ),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "VALID with `ceil_mode`: whole windows alone in sardonyx, also a last one that is cut off "
        "in onnxruntime.",
        "The formula for VALID counts whole windows where `ceil_mode` is set, too.",
        SARDONYX,
        lambda case: (
            case.attributes.get("auto_pad") == "VALID" and case.attributes.get("ceil_mode") == 1
        ),
        Case(
            "MaxPool",
            12,
            (np.ones((1, 1, 4), np.float32),),
            {"kernel_shape": [3], "strides": [2], "auto_pad": "VALID", "ceil_mode": 1},
        ),
    ),
    Disagreement(
        ("ConvTranspose",),
        "SAME padding where the stride is longer than the dilated kernel: the result of "
        "onnxruntime is shorter.",
        "SAME means that the output has the size of the input times the stride.",
        SARDONYX,
        lambda case: case.attributes.get("auto_pad", "").startswith("SAME") and leaves_gaps(case),
        Case(
            "ConvTranspose",
            11,
            (np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)),
            {"strides": [2], "auto_pad": "SAME_UPPER"},
        ),
    ),
    Disagreement(
        ("MatMul",),
        "A batch axis of size 0 against one of size 1, or none, and a matrix of no rows by a "
        "vector: onnxruntime refuses it.",
        "It behaves like numpy.matmul, which broadcasts 1 to 0.",
        SARDONYX,
        batch_of_none,
        Case("MatMul", 13, (floats(1, 2), np.zeros((0, 2, 3), np.float32))),
    ),
    Disagreement(
        ("BatchNormalization",),
        "`training_mode` with one output: onnxruntime wants all three.",
        "The running mean and variance are optional outputs.",
        SARDONYX,
        lambda case: case.attributes.get("training_mode") == 1 and case.outputs == 1,
        Case(
            "BatchNormalization",
            15,
            (np.ones((2, 1, 2), np.float32), *(floats(1) for _ in range(4))),
            {"training_mode": 1},
        ),
    ),
    Disagreement(
        ("GroupNormalization",),
        "float64 from opset 21 on: onnxruntime computes the statistics in float32.",
        "`stash_type`, float32 by default, names the precision; sardonyx computes in no less than "
        "that of the input.",
        ONNXRUNTIME,
        lambda case: case.opset >= 21 and dtype_in(case) == "float64",
        Case(
            "GroupNormalization",
            21,
            (doubles(0.1, 0.2, 0.7).reshape(1, 1, 3), doubles(1), doubles(0)),
            {"num_groups": 1},
        ),
    ),
    Disagreement(
        ("MeanVarianceNormalization",),
        "Elements that hardly vary: 0 in sardonyx, NaN or noise in onnxruntime.",
        "The standard's formula has the mean of the squared deviations; onnxruntime takes the "
        "difference of two means, which may come out negative.",
        SARDONYX,
        is_constant_over_axes,
        Case("MeanVarianceNormalization", 13, (np.full((1, 1, 1, 3), 3.3, np.float32),)),
    ),
)

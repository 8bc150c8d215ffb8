"""Elements by themselves."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import number_of
from tests.property.case import Case
from tests.property.disagreements.entry import ONNXRUNTIME, OPEN, SARDONYX, Disagreement
from tests.property.features import (
    bits_of,
    doubles,
    dtype_in,
    floats,
    has,
    inexact_power,
    ints,
    is_beyond_its_target,
    lacks_a_bound,
    largest,
    target_of,
)

NAN = float("nan")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


ENTRIES = (
    Disagreement(
        ("Sign",),
        "NaN in float16 and bfloat16: sardonyx returns NaN, onnxruntime 0.",
        "The standard does not say. In float32, onnxruntime itself returns NaN.",
        OPEN,
        lambda case: dtype_in(case) in ("float16", "bfloat16") and has(case, np.isnan),
        Case("Sign", 13, (np.array([NAN], BFLOAT16),)),
    ),
    Disagreement(
        ("Celu",),
        "`alpha` 0: sardonyx raises an error, onnxruntime returns NaN or 0.",
        "The formula divides by `alpha`.",
        OPEN,
        lambda case: case.attributes.get("alpha") == 0,
        Case("Celu", 12, (floats(1, -1),), {"alpha": 0.0}),
    ),
    Disagreement(
        ("HardSwish",),
        "float64: onnxruntime rounds the constant 1/6 to float32.",
        "The text has alpha = 1/6, and the result has the precision of its type.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64",
        Case("HardSwish", 18, (doubles(1),)),
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
        "A result outside the range of an integer type: sardonyx on JAX and CuPy returns the "
        "nearest integer of the type; onnxruntime and sardonyx on NumPy return the lower bits.",
        "The standard calls the conversion of such a float undefined.",
        OPEN,
        lambda case: case.on_jax and dtype_in(case).startswith(("int", "uint")),
        Case("Shrink", 9, (np.array([1], np.uint16),), {"bias": 3.0}, on_jax=True),
    ),
    Disagreement(
        ("Div",),
        "Infinity divided by a number near the largest, on JAX: sardonyx returns NaN instead of "
        "infinity.",
        "XLA multiplies by the reciprocal, which is so small that it becomes 0.",
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
        "The remainder of integers is an exact integer.",
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
        "Integer powers that overflow: sardonyx returns the lower bits, and 0 for 0 to a negative "
        "power; onnxruntime computes in float64 and converts the result.",
        "The standard does not say what an overflow returns.",
        OPEN,
        inexact_power,
        Case("Pow", 15, (ints(3), ints(39))),
    ),
    Disagreement(
        ("Pow",),
        "Floats with integer exponents beyond 2^24: sardonyx converts the exponent to the type of "
        "the result, so an odd exponent may become even; onnxruntime converts it to float64.",
        "An odd power has the sign of its base. For such exponents the result is 0, infinity, 1 or "
        "-1, and an exact sign would make every square of a float slower.",
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
        "`min` greater than `max` before opset 11: onnxruntime raises an error, sardonyx returns "
        "`max` everywhere.",
        "Only later versions say that the result is `max`.",
        OPEN,
        lambda case: (
            case.opset < 11
            and case.attributes.get("min", -np.inf) > case.attributes.get("max", np.inf)
        ),
        Case("Clip", 6, (floats(1),), {"min": 2.0, "max": 1.0}),
    ),
    Disagreement(
        ("Clip",),
        "Infinities without a bound, from opset 11 on: sardonyx leaves them, onnxruntime returns "
        "the largest finite number.",
        "The standard contradicts itself. Its text has finite default bounds, but its function "
        "body and its reference implementation leave infinities alone.",
        OPEN,
        lambda case: case.opset >= 11 and lacks_a_bound(case) and has(case, np.isinf),
        Case("Clip", 13, (floats(np.inf), floats(0).reshape(()), None)),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "Whole floats as strings: sardonyx writes `1.0`, onnxruntime `1`. Booleans as strings: "
        "sardonyx writes `True`, onnxruntime `1`.",
        "The standard asks for plain notation, and both are plain.",
        OPEN,
        lambda case: (
            target_of(case).kind == "O"
            and (dtype_in(case) == "bool" or has(case, lambda x: x == np.rint(x)))
        ),
        Case("Cast", 13, (floats(1),), {"to": 8}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "`saturate` 0 for a target other than float8: onnxruntime raises an error.",
        "The attribute applies only to float8 and has no effect on other types.",
        SARDONYX,
        lambda case: (
            case.attributes.get("saturate") == 0 and not target_of(case).name.startswith("float8")
        ),
        Case("Cast", 19, (floats(1),), {"to": 7, "saturate": 0}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "`saturate` 0, finite numbers too large for float8e5m2: sardonyx returns infinity, "
        "onnxruntime NaN.",
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
        "-0 of float8 as a boolean: sardonyx returns False, onnxruntime True.",
        "In the standard, both zeros become False.",
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
        "Fractions to integers of 4 or 2 bits: sardonyx truncates, onnxruntime rounds.",
        "The standard does not say. To wider integers, both truncate.",
        OPEN,
        lambda case: bits_of(target_of(case)) < 8 and has(case, lambda x: x != np.rint(x)),
        Case("Cast", 21, (floats(3.75),), {"to": number_of(np.dtype(ml_dtypes.uint4))}),
    ),
    Disagreement(
        ("Cast", "CastLike"),
        "A float outside the range of an integer type: sardonyx on JAX and CuPy returns the "
        "nearest integer of the type, and 0 for NaN; onnxruntime, and sardonyx on NumPy, leave the "
        "result to the processor.",
        "The standard calls the conversion of such a float undefined.",
        OPEN,
        is_beyond_its_target,
        Case("Cast", 13, (floats(3e9, -3e9, np.nan),), {"to": 6}, on_jax=True),
    ),
)

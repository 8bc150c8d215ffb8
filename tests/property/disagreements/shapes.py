"""Form, and control flow."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import (
    crops_an_axis_away,
    floats,
    ints,
    last_part_is_empty,
    names_an_axis_twice,
    reflects_too_far,
    shape_of,
)

LAST_TIME = helper.make_graph(
    [
        helper.make_node("Not", ["go"], ["stop"]),
        helper.make_node("Add", ["a", "a"], ["twice"]),
        helper.make_node("Identity", ["a"], ["scan"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("i", TensorProto.INT64, ()),
        helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("a", TensorProto.FLOAT, None),
    ],
    [
        helper.make_tensor_value_info("stop", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("twice", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("scan", TensorProto.FLOAT, None),
    ],
)


ENTRIES = (
    Disagreement(
        ("Concat",),
        "An input without elements, of another rank: sardonyx refuses it, "
        "onnxruntime leaves it out.",
        "The standard wants the same shape but for the size along the axis.",
        SARDONYX,
        lambda case: (
            len({x.ndim for x in case.inputs}) > 1 and not all(x.size for x in case.inputs)
        ),
        Case(
            "Concat",
            4,
            (floats(8), floats().reshape(0, 1)),
            {"axis": -1},
        ),
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
        ("Pad",),
        "Mode `reflect` further than there are elements: onnxruntime refuses it.",
        "The standard does not forbid it; in its reference implementation, as in NumPy, the "
        "reflection is reflected again.",
        SARDONYX,
        reflects_too_far,
        Case("Pad", 18, (floats(1, 2), ints(0, 2)), {"mode": "reflect"}),
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
        ("SplitToSequence",),
        "`keepdims` 0 where `split` is given: onnxruntime heeds it.",
        "Where `split` is given, the attribute is ignored.",
        SARDONYX,
        lambda case: case.attributes.get("keepdims") == 0 and len(case.inputs) > 1,
        Case("SplitToSequence", 11, (ints(1, 2), ints(1).reshape(())), {"keepdims": 0}),
    ),
    Disagreement(
        ("Loop",),
        "Without a first condition: onnxruntime stops where the body's condition says so.",
        "In the standard's table the body's condition is then ignored.",
        SARDONYX,
        lambda case: case.inputs[1] is None and case.attributes["body"].output[0].name != "go",
        Case("Loop", 13, (ints(3).reshape(()), None, floats(1)), {"body": LAST_TIME}, outputs=2),
    ),
    Disagreement(
        ("Loop",),
        "What no iteration makes: onnxruntime stacks nothing to a vector, sardonyx to what the "
        "iterations would have the shape of.",
        "The standard does not say.",
        OPEN,
        lambda case: (
            case.outputs > len(case.inputs) - 2
            and any(x is not None and not x for x in case.inputs[:2])
        ),
        Case("Loop", 13, (ints(0).reshape(()), None, floats(1, 2)), {"body": LAST_TIME}, outputs=2),
    ),
)

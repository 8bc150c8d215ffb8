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
        "An input without elements and with another rank: sardonyx raises an error, onnxruntime "
        "ignores the input.",
        "The standard requires equal shapes except along the axis.",
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
        ("Squeeze",),
        "The same axis twice: sardonyx raises an error, onnxruntime ignores the second one.",
        "The standard does not say here. For other operators it forbids this.",
        OPEN,
        names_an_axis_twice,
        Case("Squeeze", 13, (floats(1), ints(0, 0))),
    ),
    Disagreement(
        ("Split",),
        "`num_outputs` that leaves nothing for the last part: onnxruntime raises an error.",
        "If the axis does not split evenly, the last part is smaller. Here its size is 0.",
        SARDONYX,
        last_part_is_empty,
        Case("Split", 18, (floats(1, 2, 3, 4),), {"num_outputs": 3}, outputs=3),
    ),
    Disagreement(
        ("Pad",),
        "Mode `wrap` of an input without elements, and any mode in which negative pads remove a "
        "whole axis: onnxruntime raises an error.",
        "The result is defined and empty, unless the empty axis itself is padded.",
        SARDONYX,
        lambda case: (
            case.attributes.get("mode", "constant") != "constant"
            and (0 in shape_of(case) or crops_an_axis_away(case))
        ),
        Case("Pad", 19, (np.zeros((0, 2), np.float32), ints(0, 1, 0, 0)), {"mode": "wrap"}),
    ),
    Disagreement(
        ("Pad",),
        "Mode `reflect` with more padding than elements: onnxruntime raises an error.",
        "The standard does not forbid it. Its reference implementation, like NumPy, reflects the "
        "reflection again.",
        SARDONYX,
        reflects_too_far,
        Case("Pad", 18, (floats(1, 2), ints(0, 2)), {"mode": "reflect"}),
    ),
    Disagreement(
        ("Constant",),
        "`sparse_value`: onnxruntime returns a sparse tensor, or raises an error.",
        "The attribute is only another notation for the elements of the output, which is a dense "
        "tensor.",
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
        "The mask in inference before opset 12: sardonyx returns ones, onnxruntime zeros.",
        "The standard does not say. From opset 12 on, both return ones, because all elements stay.",
        OPEN,
        lambda case: case.opset < 12 and case.outputs == 2 and 0 not in shape_of(case),
        Case("Dropout", 10, (floats(1),), outputs=2),
    ),
    Disagreement(
        ("SplitToSequence",),
        "`keepdims` 0 together with `split`: onnxruntime applies `keepdims`.",
        "If `split` is present, the standard ignores the attribute.",
        SARDONYX,
        lambda case: case.attributes.get("keepdims") == 0 and len(case.inputs) > 1,
        Case("SplitToSequence", 11, (ints(1, 2), ints(1).reshape(())), {"keepdims": 0}),
    ),
    Disagreement(
        ("Loop",),
        "Scan outputs of zero iterations: onnxruntime returns an empty vector, sardonyx an empty "
        "array with the shape that the iterations would have.",
        "The standard does not say.",
        OPEN,
        lambda case: (
            case.outputs > len(case.inputs) - 2
            and any(x is not None and not x for x in case.inputs[:2])
        ),
        Case("Loop", 13, (ints(0).reshape(()), None, floats(1, 2)), {"body": LAST_TIME}, outputs=2),
    ),
)

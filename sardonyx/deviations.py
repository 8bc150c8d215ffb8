"""What files of real exporters do beyond the standard, and models may do unless `strict=True`.

`docs/accepted.md` shows `ACCEPTED` as a table. Loading notes each deviation of a file; an op calls
`accept` when it meets one in a call.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from typing import NamedTuple


class Deviation(NamedTuple):
    """One deviation from the standard that is accepted by default."""

    name: str
    standard: str
    accepted: str
    writers: str


class Departure(NamedTuple):
    """One place where a file or a call deviates from the standard."""

    deviation: Deviation
    # The beginning of a sentence that says what is where.
    where: str

    @property
    def refusal(self) -> str:
        """Why `strict=True` refuses it."""
        return (
            f"{self.where}, a deviation from the standard ('{self.deviation.name}') that "
            "strict=True refuses: leave strict=True out, or export the model again"
        )


MISSING_IMPORT = Deviation(
    "missing import",
    "A model imports an opset of each domain that its nodes use.",
    "The newest opset of ai.onnx, ai.onnx.ml or com.microsoft stands for one that is missing.",
    "tf2onnx before 1.10",
)
REPEATED_IMPORT = Deviation(
    "repeated import",
    "A model imports one opset of each domain.",
    "The last import of a domain holds, also if one is spelled `ai.onnx` and another is empty.",
    "onnxmltools of 2018",
)
UNSORTED_NODES = Deviation(
    "unsorted nodes",
    "Each node comes after the nodes whose outputs it reads.",
    "Nodes are sorted at load.",
    "tools that insert nodes at the end, such as float16 conversion and quantizers",
)
SHADOWED_NAME = Deviation(
    "shadowed name",
    "An input or initializer of a subgraph has no name of a value around it.",
    "Inside the subgraph the name stands for the inner value.",
    "Paddle2ONNX (SLANet)",
)
NEGATIVE_DIMENSION = Deviation(
    "dimension of -1",
    "A free dimension has a name, or no value.",
    "A dimension of -1 is free.",
    "Paddle2ONNX before 1.0",
)
NAMELESS_DIMENSION = Deviation(
    "dimension named ?",
    "Dimensions of one name have one size.",
    "The name `?` stands for a free dimension, of any size each time.",
    "people who free a dimension of a file by hand, as onnxruntime's authors advise",
)
HIDDEN_INITIALIZER = Deviation(
    "initializer that is no input",
    "Below IR version 4 each initializer is also an input.",
    "It is a constant, as from IR version 4 on.",
    "optimizers that remove initializers from the inputs and keep the IR version",
)
SIGNAL_WITHOUT_PARTS = Deviation(
    "signal without parts",
    "The signal of STFT has three axes, the last of which holds one or two parts.",
    "A signal of two axes is real.",
    "torch.onnx with dynamo=True (onnxscript before 0.7.1)",
)
ZERO_BESIDE_UNKNOWN = Deviation(
    "0 beside -1",
    "The shape of a Reshape with `allowzero` has no -1 beside a 0.",
    "The -1 is computed from the sizes other than 0 of an input without elements.",
    "torch.onnx with dynamo=True, for inputs whose batch or length is 0",
)
OPERATOR_BESIDE = Deviation(
    "operator of another opset",
    "Operators of ai.onnx are those of the imported opset.",
    "Operators that onnxruntime adds to ai.onnx or has in older opsets.",
    "onnxruntime's optimizer, which fuses layer normalizations below opset 17, and converters of "
    "2018 (onnxmltools for Core ML), which write Affine, Crop, ImageScaler and Scale",
)

ACCEPTED = (
    MISSING_IMPORT,
    REPEATED_IMPORT,
    UNSORTED_NODES,
    SHADOWED_NAME,
    NEGATIVE_DIMENSION,
    NAMELESS_DIMENSION,
    HIDDEN_INITIALIZER,
    SIGNAL_WITHOUT_PARTS,
    ZERO_BESIDE_UNKNOWN,
    OPERATOR_BESIDE,
)

_to_the_letter: ContextVar[bool] = ContextVar("to_the_letter", default=False)


def to_the_letter(holds: bool) -> AbstractContextManager[object]:
    """Return a context to enter at once, in which `accept` refuses all deviations if this holds."""
    context = ExitStack()
    context.callback(_to_the_letter.reset, _to_the_letter.set(holds))
    return context


def is_to_the_letter() -> bool:
    """Return whether an op has the standard's meaning where onnxruntime's is another."""
    return _to_the_letter.get()


def accept(deviation: Deviation, where: str) -> None:
    """Accept a deviation that an op meets, unless the model follows the standard to the letter."""
    if _to_the_letter.get():
        raise ValueError(Departure(deviation, where).refusal)

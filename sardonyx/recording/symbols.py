"""`SymbolicArray`: a value of the graph that is recorded, with Python's operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Dimension
from sardonyx.graph.loading.declarations import type_text
from sardonyx.graph.standard.types import DType, number_of, short_name
from sardonyx.recording.indexing import indexed
from sardonyx.recording.types import dimensions_in, dtype_in, tensor_type


class UnknownShapeError(InvalidInput, AttributeError):
    """The rank of a symbolic array is not known."""


class SymbolicArray:
    """A value of a graph that `sardonyx.record` records: it has a dtype and a shape, but no data.

    Python's operators, indexing, `astype`, `reshape`, `transpose` and `T` record ONNX operators.
    `shape` has numbers, and a symbolic array for each size that only a call will know.

    >>> import sardonyx
    >>> def scaled(x):
    ...     print(x, x.dtype, x[0].ndim)
    ...     return x * 2 + 1
    >>> model = sardonyx.record(scaled, {"x": ("float32", ["batch", 3])})
    <symbolic x: float32[batch, 3]> float32 1
    >>> model([[1.0, 2.0, 3.0]])
    array([[3., 5., 7.]], dtype=float32)
    """

    # `==` records an operator, so these arrays cannot be keys; type checkers expect a method here.
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    def __init__(self, recorder: Any, frame: Any, kind: onnx.TypeProto, hint: str) -> None:
        self._recorder = recorder
        self._frame = frame
        self._type = kind
        self._hint = hint
        self._sizes: dict[int, SymbolicArray] = {}
        # The array, if the value is a constant.
        self._array: np.ndarray[Any, Any] | None = None

    @staticmethod
    def recorder_of(values: Iterable[Any]) -> Any:
        """Return the recorder of the first symbolic array."""
        return next(symbols_in(values))._recorder

    @property
    def dtype(self) -> DType | None:
        """The NumPy dtype; None if it is not known, and for sequences, optionals and maps."""
        return dtype_in(self._type)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The shape as far as it is known: sizes, names of free sizes, None for the others."""
        found = dimensions_in(self._type)
        if found is None:
            raise UnknownShapeError(
                f"The rank of {self} is not known: take O.Shape(x), or reshape it first."
            )
        return found

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: numbers, and symbolic arrays for sizes that only a call will know."""
        return tuple(
            size if isinstance(size, int) else self._size(axis)
            for axis, size in enumerate(self.dimensions)
        )

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.dimensions)

    def _size(self, axis: int) -> SymbolicArray:
        if axis not in self._sizes:
            shape = self._apply("Shape", self)
            size: SymbolicArray = self._apply("Gather", shape, np.asarray(axis), axis=0)
            self._sizes[axis] = size
        return self._sizes[axis]

    @property
    def T(self) -> Any:  # noqa: N802  (as NumPy calls it)
        """The array with its axes in reverse order."""
        return self._apply("Transpose", self)

    def transpose(self, *axes: Any) -> Any:
        """Return the array with its axes in this order; without one, reversed."""
        chosen = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        rank = self.ndim
        order = [axis % rank for axis in chosen] or list(range(rank))[::-1]
        return self._apply("Transpose", self, perm=order)

    def astype(self, dtype: Any) -> Any:
        """Return the array with another dtype."""
        return self._apply("Cast", self, to=number_of(np.dtype(dtype)))

    def reshape(self, *shape: Any) -> Any:
        """Return the array in another shape, whose sizes may be symbolic; one may be -1."""
        first = shape[0] if len(shape) == 1 else None
        if isinstance(first, SymbolicArray) and first.ndim == 1:
            return self._apply("Reshape", self, first)
        sizes = list(first) if isinstance(first, (tuple, list)) else list(shape)
        reshaped = self._apply("Reshape", self, sizes)
        if dimensions_in(reshaped._type) is None and self.dtype is not None:
            known = [s if isinstance(s, int) and s > 0 else None for s in sizes]
            reshaped._type = tensor_type(self.dtype, known)
        return reshaped

    def __getitem__(self, key: Any) -> Any:
        return indexed(self, key, self._apply)

    def __len__(self) -> int:
        dimensions = self.dimensions
        if not dimensions or not isinstance(dimensions[0], int):
            self._refuse("len()", "x.shape[0], which is symbolic too")
        return int(dimensions[0])

    def __iter__(self) -> Iterator[SymbolicArray]:
        return (self[i] for i in range(len(self)))

    def _apply(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return self._recorder.apply(op_type, inputs, attributes)

    # -- operators --------------------------------------------------------------------------------

    def _binary(self, op_type: str, other: Any, *, is_reversed: bool = False) -> Any:
        if not _is_operand(other):
            return NotImplemented
        return self._apply(op_type, *((other, self) if is_reversed else (self, other)))

    def __add__(self, other: Any) -> Any:
        return self._binary("Add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("Add", other, is_reversed=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("Sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("Sub", other, is_reversed=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("Mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("Mul", other, is_reversed=True)

    def __truediv__(self, other: Any) -> Any:
        self._require_floats("/", "x // y, or cast it with x.astype")
        return self._binary("Div", other)

    def __rtruediv__(self, other: Any) -> Any:
        self._require_floats("/", "y // x, or cast it with x.astype")
        return self._binary("Div", other, is_reversed=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._floor(self, other) if _is_operand(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return self._floor(other, self) if _is_operand(other) else NotImplemented

    def _floor(self, left: Any, right: Any) -> Any:
        """Return the quotient, rounded down; ONNX rounds those of integers towards zero."""
        if self._is_integer():
            rest = self._apply("Mod", left, right)
            return self._apply("Div", self._apply("Sub", left, rest), right)
        return self._apply("Floor", self._apply("Div", left, right))

    def __mod__(self, other: Any) -> Any:
        self._require_integers("%", "O.Mod(x, y, fmod=1), which has the sign of x")
        return self._binary("Mod", other)

    def __rmod__(self, other: Any) -> Any:
        self._require_integers("%", "O.Mod(y, x, fmod=1), which has the sign of y")
        return self._binary("Mod", other, is_reversed=True)

    def __pow__(self, other: Any) -> Any:
        return self._power(self, other) if _is_operand(other) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        return self._power(other, self) if _is_operand(other) else NotImplemented

    def _power(self, base: Any, exponent: Any) -> Any:
        """Return the power; a number becomes an array of the other operand's dtype."""
        if isinstance(exponent, (int, float)) and self.dtype is not None:
            exponent = np.asarray(exponent, self.dtype)
        elif isinstance(base, (int, float)) and self.dtype is not None:
            base = np.asarray(base, self.dtype)
        return self._apply("Pow", base, exponent)

    def __matmul__(self, other: Any) -> Any:
        return self._binary("MatMul", other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._binary("MatMul", other, is_reversed=True)

    def __neg__(self) -> Any:
        return self._apply("Neg", self)

    def __pos__(self) -> SymbolicArray:
        return self

    def __abs__(self) -> Any:
        return self._apply("Abs", self)

    def __invert__(self) -> Any:
        return self._apply("Not" if self._is_bool() else "BitwiseNot", self)

    def __and__(self, other: Any) -> Any:
        return self._binary("And" if self._is_bool() else "BitwiseAnd", other)

    def __or__(self, other: Any) -> Any:
        return self._binary("Or" if self._is_bool() else "BitwiseOr", other)

    def __xor__(self, other: Any) -> Any:
        return self._binary("Xor" if self._is_bool() else "BitwiseXor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lt__(self, other: Any) -> Any:
        return self._binary("Less", other)

    def __le__(self, other: Any) -> Any:
        return self._binary("LessOrEqual", other)

    def __gt__(self, other: Any) -> Any:
        return self._binary("Greater", other)

    def __ge__(self, other: Any) -> Any:
        return self._binary("GreaterOrEqual", other)

    def __eq__(self, other: Any) -> Any:
        return self._binary("Equal", other)

    def __ne__(self, other: Any) -> Any:
        equal = self._binary("Equal", other)
        return equal if equal is NotImplemented else self._apply("Not", equal)

    def _is_bool(self) -> bool:
        return self.dtype == np.bool_

    def _is_integer(self) -> bool:
        return self.dtype is not None and self.dtype.kind in "iu"

    def _require_floats(self, sign: str, instead: str) -> None:
        if self._is_integer():
            raise InvalidInput(
                f"{self} holds integers, whose quotient '{sign}' ONNX rounds towards zero: take "
                f"{instead}."
            )

    def _require_integers(self, sign: str, instead: str) -> None:
        if not self._is_integer():
            raise InvalidInput(f"'{sign}' of {self} is that of integers only: take {instead}.")

    # -- what needs data --------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Record NumPy's operators, as in `array + x`; refuse its other functions."""
        recorded = _UFUNCS.get(ufunc.__name__)
        if recorded is None or method != "__call__" or options:
            self._refuse(f"numpy.{ufunc.__name__}", self._recorder.suggestion(ufunc.__name__))
        return recorded(*(self._recorder.symbol(each) for each in inputs))

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        name = function.__name__
        self._refuse(f"numpy.{name}", self._recorder.suggestion(name))

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("An array of NumPy", "an operator of sardonyx.opset, as O.Exp(x)")

    def __bool__(self) -> bool:  # noqa: PLE0304  (it raises)
        self._refuse(
            "An `if`, `while`, `and` or `not`",
            "O.Where(c, x, y), or O.If(c, then_branch=..., else_branch=...)",
        )

    def __float__(self) -> NoReturn:
        self._refuse("float()", 'x.astype("float32")')

    def __int__(self) -> NoReturn:
        self._refuse("int()", 'x.astype("int64")')

    def __index__(self) -> int:  # noqa: PLE0305  (it raises)
        self._refuse("A Python index or range", "O.Gather(x, i), O.Range or O.Loop")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise InvalidInput(
            f"{what} needs the data of {self}, which only a call of the model has: take {instead}."
        )

    def __repr__(self) -> str:
        kind = type_text(self._type) or "unknown"
        if self.dtype is not None:
            kind = short_name(self.dtype)
        shape = dimensions_in(self._type)
        dims = "" if shape is None else str(["?" if d is None else d for d in shape])
        return f"<symbolic {self._hint}: {kind}{dims}>".replace("'", "")

    # -- what calls on symbolic arrays mean -------------------------------------------------------

    def inline_model(self, source: Any, weights: Any, arguments: Sequence[Any]) -> list[Any]:
        """Record the graph of a model that is called with symbolic arrays."""
        recorded: list[Any] = self._recorder.inline(source, weights, arguments)
        return recorded

    def record_op(self, op: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Record a call of a caller's own operator."""
        return self._recorder.call_own(op, inputs, attributes)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def _is_operand(value: Any) -> bool:
    return isinstance(value, (int, float, bool, str, list)) or hasattr(value, "shape")


def symbols_in(values: Iterable[Any]) -> Iterator[SymbolicArray]:
    """Yield the symbolic arrays among the values, and in the lists among them."""
    for value in values:
        if isinstance(value, SymbolicArray):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from symbols_in(value)


def holds_symbols(values: Sequence[Any]) -> bool:
    """Whether there is a symbolic array among the values, or in a list among them."""
    return any(
        type(value) is SymbolicArray or (isinstance(value, (list, tuple)) and holds_symbols(value))
        for value in values
    )

"""The tape that tracing writes steps on, and that it cuts into segments.

On a backend that compiles, a recorder runs the steps of a segment together when the segment ends.
On the others each step also runs at once, because that is how its results' shapes are found, unless
the recorder wants nothing to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.host_steps import library_of_host
from sardonyx.backends.operations.array_library import HoldsNoStrings
from sardonyx.backends.size_limits import hold
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node
from sardonyx.graph.tracing.cutting import cut
from sardonyx.graph.tracing.host_results import apart, uploaded
from sardonyx.graph.tracing.op_call import OpCall, observed, requested_dtypes
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import (
    Block,
    Embedded,
    Operand,
    Step,
    captures_of,
    without_dead_steps,
)
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.values.kinds import (
    Device,
    Hosted,
    Static,
    Value,
    Weight,
    digest,
    leaves,
    static,
)
from sardonyx.graph.values.mmap import content
from sardonyx.ops.definition import NeedsHost
from sardonyx.stopping import stop_if_asked

# Longer segments are cut into pieces, since their time to compile grows faster than their length.
LONGEST_SEGMENT = 1024

StepCall: TypeAlias = OpCall | BodyCall
_STRINGS = np.dtype(object)

UNKNOWN_UNDER_TRANSFORMATION = (
    "but under a transformation such as jit or vmap only its shape is known: pass it as a NumPy "
    "array, or call the model outside the transformation"
)


class Tape:
    """Writes the steps of one program, and hands each segment to the recorder when it ends."""

    def __init__(self, recorder: Recorder, inferred: Inferred) -> None:
        self.recorder = recorder
        self.backend = recorder.backend
        self.weights = recorder.weights
        self.registers = recorder.registers
        # The registers that are read outside the segments that compute them.
        self.left: set[int] = set()
        # The path of the functions and subgraphs around the node that is being traced.
        self.path = ""
        self._frame = self.registers.frame
        self._inferred = inferred
        self.calls = inferred.calls
        # Whether shapes are inferred; otherwise each step runs at once.
        self._infers = self.backend.compiled or recorder.only_infers
        self._steps: list[Step] = []
        self._on_host = False
        # Whether the program is long, so that each of its segments is cut into pieces.
        self._is_long = False
        self._open_blocks = 0
        # The type for whose lack the last step runs on the host.
        self._lacking: str | None = None
        self._computed: WeakSet[Device] = WeakSet()
        # Results of steps on the host that nothing has read yet, and these steps.
        self._deferred: WeakKeyDictionary[Device, tuple[Node, StepCall, Device]] = (
            WeakKeyDictionary()
        )
        # The first register of the open segment, and older ones that nothing reads any more.
        self._first_of_segment = 0
        self._unread: list[int] = []
        self._known: dict[int, Static] = {}
        self._placed: dict[Any, int] = {}

    # -- values and steps -------------------------------------------------------------------------

    def input(self, array: Any) -> Device:
        """Return the value of an array that the caller passes."""
        slot = self._slot(self.backend.spec(array))
        self._frame[slot.register] = array
        self.registers.inputs.add(slot.register)
        return slot

    def key(self, array: Any) -> Device:
        """Return the value of the random key; calls pass it if the program draws."""
        slot = self._slot(self.backend.spec(array))
        self._frame[slot.register] = array
        self.registers.key = slot.register
        return slot

    @property
    def is_in_block(self) -> bool:
        """Whether new steps belong to a subgraph."""
        return self._open_blocks > 0

    @property
    def has_device_steps(self) -> bool:
        """Whether the open segment has steps that run on the device."""
        return bool(self._steps) and not self._on_host

    def weight(self, name: str) -> Weight:
        """Return the value of an initializer that is an argument of the program."""
        host = self.weights.host(name)
        spec = Spec(host.shape, host.dtype)
        register = self.registers.new(spec)
        self.registers.weights[register] = name
        return Weight(register, spec, name=name, host=host)

    def emit(self, node: Node, call: StepCall, sources: Sequence[Static | Device]) -> list[Value]:
        """Write one step. A result that is the op's own argument is the argument: an alias."""
        if self._deferred:
            self._write_deferred(sources)
        if not self._runs_on_host(call, sources):
            with suppress(HoldsNoStrings):
                return self._emit(node, call, sources, on_host=False)
        return self._emit(node, call, sources, on_host=True)

    def defer(self, node: Node, call: StepCall, source: Device, spec: Spec) -> Device:
        """Return the result of a step on the host, which is written before something reads it.

        So steps of the device that follow the node stay in its segment.
        """
        if self._open_blocks:
            raise NeedsHost
        self.recorder.allow_host()
        result = self._slot(spec)
        self._deferred[result] = node, call, source
        return result

    def _write_deferred(self, values: Iterable[Value]) -> None:
        for value in values:
            if isinstance(value, Device) and value in self._deferred:
                if self._open_blocks:
                    raise NeedsHost
                node, call, source = self._deferred.pop(value)
                self._emit(node, call, (source,), on_host=True, result=value)

    def _emit(
        self,
        node: Node,
        call: StepCall,
        sources: Sequence[Static | Device],
        *,
        on_host: bool,
        result: Device | None = None,
    ) -> list[Value]:
        self._begin_step(call, on_host=on_host)
        operands = tuple([self._operand(source) for source in sources])
        specs, same, arrays = self._evaluate(call, operands)
        slots: list[Value] = []
        registers = []
        for i, (spec, index) in enumerate(zip(specs, same, strict=True)):
            self.backend.allow(*spec)
            fresh = result or self._slot(spec)
            if index is None:
                hold(fresh, *spec)
            registers.append(fresh.register)
            if arrays is not None:
                self._hold(fresh, arrays[i])
            if index is not None and index < len(sources):
                slots.append(sources[index])
            else:
                self._computed.add(fresh)
                slots.append(fresh)
        if None in same:
            blocks = call.blocks if isinstance(call, BodyCall) else ()
            operands += captures_of(blocks)
            step = Step(
                node, call, operands, tuple(registers), tuple(specs), blocks, path=self.path
            )
            self._steps.append(step)
        if call.is_unsized:
            # Shapes depend on data from here on: the rest of the program holds for these shapes.
            self._close(measured=[slot for slot in slots if isinstance(slot, Device)])
        return slots

    def _begin_step(self, call: StepCall, *, on_host: bool) -> None:
        """End a segment to which the step cannot belong, or refuse the step."""
        stop_if_asked()
        if self._open_blocks and (on_host or call.is_unsized):
            raise NeedsHost
        if on_host:
            self.recorder.allow_host()
        # After the pieces of a long program, the open segment may be empty.
        if (self._steps or self._is_long) and not self._open_blocks:
            if on_host != self._on_host:
                self._close()
            elif self.backend.compiled and len(self._steps) >= LONGEST_SEGMENT and not on_host:
                self._is_long = True
                self._close_pieces(self._results_of_segment(None))
        self._on_host = on_host

    def knows(self, value: Static | Device) -> bool:
        """Whether the value is known, or can be read before any step runs.

        The latter is so under a caller's transformation, for arrays that it does not transform.
        Then a loop whose end is such a value can be differentiated.
        """
        if isinstance(value, Static) or value.register in self._known:
            return True
        is_passed = value.register in self.registers.inputs and not self._open_blocks
        return (
            self.recorder.is_inline
            and is_passed
            and not self.backend.is_abstract(self._frame[value.register])
        )

    def fetch(self, values: Sequence[Value]) -> list[Value]:
        """Return the values as static ones; reading those of the device cuts the tape."""
        devices = [v for value in values for v in leaves(value) if isinstance(v, Device)]
        self._write_deferred(devices)
        unknown = [device for device in devices if device.register not in self._known]
        for weight in unknown:
            if isinstance(weight, Weight):
                self.weights.note_read(weight.name)
                self._known[weight.register] = static(content(weight.host))
        self._read([v.register for v in unknown if v.register not in self._known])
        return [self._known[v.register] if isinstance(v, Device) else v for v in values]

    def parameter(self, array: Any) -> Device:
        """Return the value of a block's parameter, for arguments like `array`."""
        slot = self._slot(self.backend.spec(array))
        if not self._infers:
            self._frame[slot.register] = array
        return slot

    def example(self, value: Value | Spec) -> Any:
        """Return an array like the one that a value stands for; for a static value, its array."""
        if isinstance(value, (Spec, Static, Device)):
            self._require_on_device(value.dtype)
        if isinstance(value, Spec):
            return value
        if isinstance(value, Static):
            return value.value if self.backend.compiled else self.backend.asarray(value.value)
        if not isinstance(value, Device):
            raise NeedsHost
        return value if self._infers else self._value(value.register)

    def stand_in(self, register: int) -> Any:
        """Return an array like the one in a register, for blocks that are being recorded."""
        if not self._infers:
            return self._value(register)
        shape, dtype = self.registers.specs[register]
        self._require_on_device(dtype)
        return self.backend.zeros(shape, dtype=self.backend.dtype(dtype))

    def _require_on_device(self, *dtypes: np.dtype[Any]) -> None:
        """Raise `NeedsHost` if an array of a subgraph has a type that the device lacks."""
        if not self.backend.missing_types.isdisjoint(dtypes):
            raise NeedsHost

    @contextmanager
    def block(self) -> Iterator[Callable[..., Block]]:
        """Write the steps of a subgraph; yields a function from its results to the block."""
        outer, self._steps = self._steps, []
        on_host, self._on_host = self._on_host, False
        self._open_blocks += 1
        try:
            yield self._as_block
        finally:
            self._open_blocks -= 1
            self._steps, self._on_host = outer, on_host

    def finish(self, outputs: Sequence[Value]) -> None:
        """End the last segment; the program returns these values."""
        self._write_deferred(leaf for output in outputs for leaf in leaves(output))
        self._close(outputs=tuple(outputs))

    # -- registers --------------------------------------------------------------------------------

    def _slot(self, spec: Spec) -> Device:
        return (Hosted if spec.dtype == object else Device)(self.registers.new(spec), spec)

    def _hold(self, slot: Device, array: Any) -> None:
        """Keep an array for as long as a value in the graph refers to it."""
        self._frame[slot.register] = array
        if not self.backend.compiled:  # A compiled segment runs later, and reads it then.
            finalize(slot, _let_go, ref(self), slot.register).atexit = False

    def let_go(self, register: int) -> None:
        """Drop an array that nothing reads; one from before the open segment, at its end.

        The open segment may have to run again, and reads it then.
        """
        if register < self._first_of_segment:
            self._unread.append(register)
        else:
            self._frame.pop(register, None)

    def _operand(self, source: Static | Device) -> Operand:
        if isinstance(source, Device):
            return source.register
        value = source.value
        if self._on_host:
            return Embedded(value)
        key = digest(value)
        may_be_embedded = value.size == 1 or self.registers.embeds_arrays
        if value.nbytes <= self.backend.embeds_up_to and may_be_embedded:
            return self.registers.embedded.setdefault(key, Embedded(value))
        if key not in self._placed:
            register = self.registers.new(Spec(value.shape, value.dtype))
            self._placed[key] = register
            self.registers.constants[register] = value
            placed = self.recorder.place(key, value)
            self._frame[register] = self.registers.placed[register] = placed
        return self._placed[key]

    def _runs_on_host(self, call: StepCall, sources: Sequence[Static | Device]) -> bool:
        self._lacking = None
        if isinstance(call, BodyCall):
            return False
        if call.is_unsized and self.backend.compiled:
            return True
        dtypes = [*[source.dtype for source in sources], *requested_dtypes(call)]
        if not self.backend.holds_strings and _STRINGS in dtypes:
            return True
        # Static sources and attributes are constants of the program, and count too.
        dtypes += [a.dtype for a in call.attributes.values() if isinstance(a, np.ndarray)]
        return self._lacks_type((*dtypes, *call.dtypes))

    def _lacks_type(self, dtypes: Iterable[np.dtype[Any] | None]) -> bool:
        """Whether the backend's device lacks one of the types that a step reads or returns."""
        lacking = self.backend.missing_types.intersection(dtypes)
        if not lacking:
            return False
        self._lacking = min(dtype.name for dtype in lacking)
        if not self._open_blocks:
            self.recorder.note_workaround(f"steps on the host: the device has no {self._lacking}")
        return True

    # -- steps ------------------------------------------------------------------------------------

    def _evaluate(
        self, call: StepCall, operands: Sequence[Operand]
    ) -> tuple[Sequence[Spec], Sequence[int | None], Sequence[Any] | None]:
        values = [self._constant(operand) for operand in operands]
        if self._infers and not self._on_host:
            specs = self.registers.specs
            kinds = [specs[o] if isinstance(o, int) else o for o in operands]
            inference = self._inferred.of(call, kinds, values)
            return inference.specs, inference.same, None
        xp = library_of_host(self.backend) if self._on_host else self.backend
        arrays = [self._value(operand) for operand in operands]
        with xp.scope():
            results, same, _ = observed(call, xp, arrays, values)
        result_specs = [xp.spec(result) for result in results]
        if self._on_host:
            results = tuple(apart(results, arrays))
            if not self.backend.reads_host_memory:
                results = tuple(uploaded(self.backend, results))
        return result_specs, same, results

    def _constant(self, operand: Operand) -> np.ndarray[Any, Any] | None:
        """Return the value of a constant or weight; None for operands that calls change."""
        if isinstance(operand, Embedded):
            return operand.value
        if operand in self.registers.weights:
            return self.weights.host(self.registers.weights[operand])
        return self.registers.constants.get(operand)

    def _value(self, operand: Operand) -> Any:
        if isinstance(operand, Embedded):
            return operand.value if self._on_host else self.backend.asarray(operand.value)
        if operand not in self._frame:
            self._frame[operand] = self.weights[self.registers.weights[operand]]
        value = self._frame[operand]
        if self._on_host and self.backend.is_abstract(value):
            reason = f"because the device has no {self._lacking}, " if self._lacking else ""
            raise InvalidInput(f"it runs on the host, {reason}{UNKNOWN_UNDER_TRANSFORMATION}")
        return self.backend.fetch(value) if self._on_host and self.backend.owns(value) else value

    def _as_block(self, results: Sequence[Value], parameters: Sequence[Device] = ()) -> Block:
        arrays = [r for r in results if isinstance(r, (Static, Device)) and r.dtype != object]
        if len(arrays) < len(results):
            raise NeedsHost
        operands = tuple(self._operand(array) for array in arrays)
        specs = tuple(Spec(array.shape, array.dtype) for array in arrays)
        self._require_on_device(*(spec.dtype for spec in specs))
        registers = [o for o in operands if isinstance(o, int)]
        steps = tuple(without_dead_steps(self._steps, registers))
        return Block(steps, operands, specs, tuple(slot.register for slot in parameters))

    # -- cutting ----------------------------------------------------------------------------------

    def _read(self, registers: Sequence[int]) -> None:
        """Read values; the program depends on them from here on."""
        if not registers:
            return
        if self._open_blocks:
            raise NeedsHost
        values = self.recorder.read(registers, self._close)
        for register, value in zip(registers, values, strict=True):
            self._known[register] = static(value)
            if register in self.registers.inputs:
                self.registers.inputs_read[register] = self._known[register].value

    def _close(
        self, outputs: tuple[Value, ...] | None = None, measured: Sequence[Device] = ()
    ) -> None:
        """End the segment, and begin the next one."""
        results = self._results_of_segment(outputs)
        if self._is_long and not self._on_host:
            results = self._close_pieces(results)
        steps = without_dead_steps(self._steps, results)
        self.recorder.close(TracedSegment(steps, results, self._on_host, outputs, measured))
        self.left.update(results)
        self._steps = []
        self._computed.clear()
        for register in self._unread:
            self._frame.pop(register, None)
        self._unread.clear()
        self._first_of_segment = self.registers.count

    def _close_pieces(self, results: Sequence[int]) -> list[int]:
        """End the pieces of the open segment; return the results of the steps that stay open."""
        steps = without_dead_steps(self._steps, results)
        begin, live = 0, set(results)
        later = Counter(register for step in steps for register in step.reads)
        for end in cut(steps, results):
            piece = steps[begin:end]
            later.subtract(register for step in piece for register in step.reads)
            computed = [register for step in piece for register in step.results]
            read = sorted(r for r in computed if later[r] or r in live)
            self.recorder.close(TracedSegment(piece, read, is_piece=True))
            self.left.update(read)
            begin = end
        self._steps = steps[begin:]
        rest = {register for step in self._steps for register in step.results}
        # Of a wide graph most values live on to its end: the next pieces need not see them.
        self._computed = WeakSet([value for value in self._computed if value.register in rest])
        return [register for register in results if register in rest]

    def _results_of_segment(self, outputs: tuple[Value, ...] | None) -> list[int]:
        computed = {register for step in self._steps for register in step.results}
        if outputs is None:
            return sorted(v.register for v in self._computed if v.register in computed)
        arrays = [leaf for output in outputs for leaf in leaves(output)]
        registers = (leaf.register for leaf in arrays if isinstance(leaf, Device))
        return list(dict.fromkeys(r for r in registers if r in computed))


def _let_go(tape: ref[Tape], register: int) -> None:
    """Drop an array that nothing reads; outputs, which recordings hold, do not hold the tape."""
    if (living := tape()) is not None:
        living.let_go(register)

"""The tape a recording is written on: registers, steps, and where the program is cut.

On a compiled backend steps are only written down, and run as a whole when the tape is cut or
finished. On the others each step also runs at once, since that is how its result's shape is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet, finalize

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.backends.operations.library import HoldsNoStrings
from sardonyx.backends.size_limits import hold
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage, output_of, read_key
from sardonyx.graph.programs.weight_preparation import Binding, Fixed, bind
from sardonyx.graph.rewriting import rewrite
from sardonyx.graph.tracing.op_call import OpCall, Probe, makes_strings
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import (
    Block,
    Embedded,
    Frame,
    Operand,
    Segment,
    Step,
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
from sardonyx.graph.values.params import Constants, Weights
from sardonyx.ops.definition import NeedsHost

# The time to compile a segment grows faster than the number of its steps: XLA for CPU takes 3
# seconds for 2,000 of them and 31 for 6,000.
LONGEST_SEGMENT = 2048


_ABSTRACT = (
    "but under a transformation such as jit or vmap only its shape is known: pass it as a NumPy "
    "array, or call the model outside the transformation"
)


class Tape:
    """Writes one recording; the stages it makes grow under `root`."""

    def __init__(
        self,
        root: Stage,
        compiler: Compiler,
        weights: Weights,
        constants: Constants,
        *,
        inferred: Inferred,
        inline: bool,
        execute: bool,
        donated: Collection[int] = (),
    ) -> None:
        self.backend = compiler.backend
        self.compiler = compiler
        self.weights = weights
        self.constants = constants
        self.inline = inline
        self.execute = execute
        self.path: list[Stage] = []
        # The registers that leave the segment in which they are made.
        self.left: set[int] = set()
        # The caller's arrays whose values the program was recorded for.
        self.inputs_read: dict[int, np.ndarray[Any, Any]] = {}
        self._inputs: set[int] = set()
        self._donated = donated
        self._key_register = -1
        self._root = self._stage = root
        self._key: tuple[Any, ...] = ()
        self._frame: Frame = {}
        self._steps: list[Step] = []
        self._on_host = False
        self._open_blocks = 0
        self._made: WeakSet[Device] = WeakSet()
        # The first register of the open segment, and the older ones that nothing reads any more.
        self._first_of_segment = 0
        self._unread: list[int] = []
        self._known: dict[int, Static] = {}
        self._weights: dict[int, str] = {}
        self._placed: dict[Any, int] = {}
        self._embedded: dict[Any, Embedded] = {}
        self._constants: dict[int, Any] = {}
        self._sources: dict[int, np.ndarray[Any, Any]] = {}
        self.draws = False
        self._specs: dict[int, Spec] = {}
        self._registers = 0
        self._rewritten_registers = self._key_register
        self._inferred = inferred
        self.outputs: tuple[Value, ...] | None = None

    # -- what goes on the tape --------------------------------------------------------------------

    def input(self, array: Any) -> Device | Static:
        """An array that the caller passes."""
        slot = self._slot(self.backend.spec(array))
        self._frame[slot.register] = array
        self._inputs.add(slot.register)
        return slot

    def key(self, array: Any) -> Device:
        """From what to draw at random; the caller passes it where `draws` turns out to be true."""
        slot = self._slot(self.backend.spec(array))
        self._frame[slot.register] = array
        self._key_register = slot.register
        return slot

    @property
    def input_specs(self) -> list[Spec]:
        """The shapes and dtypes of what the caller passes."""
        return [self._specs[register] for register in sorted(self._inputs)]

    @property
    def is_in_block(self) -> bool:
        """Whether what is written belongs to a subgraph."""
        return self._open_blocks > 0

    def weight(self, name: str) -> Weight:
        """An initializer, an argument of the program."""
        host = self.weights.host(name)
        spec = Spec(host.shape, host.dtype)
        slot = Weight(self._next_register(spec), spec, name=name, host=host)
        self._weights[slot.register] = name
        return slot

    def emit(
        self, node: Node, call: OpCall | BodyCall, sources: Sequence[Static | Device]
    ) -> list[Value]:
        """Write one step. A result that is the op's own argument is the argument: an alias."""
        if self._runs_on_host(call, sources):
            return self._emit(node, call, sources, on_host=True)
        try:
            return self._emit(node, call, sources, on_host=False)
        except HoldsNoStrings:
            return self._emit(node, call, sources, on_host=True)

    def _emit(
        self,
        node: Node,
        call: OpCall | BodyCall,
        sources: Sequence[Static | Device],
        *,
        on_host: bool,
    ) -> list[Value]:
        if self._open_blocks and (on_host or call.is_unsized):
            raise NeedsHost
        if self._steps and not self._open_blocks:
            full = self.backend.compiled and len(self._steps) >= LONGEST_SEGMENT
            if full or on_host != self._on_host:
                self._close()
        self._on_host = on_host
        operands = tuple(self._operand(source) for source in sources)
        specs, same, arrays = self._evaluate(call, operands)
        slots: list[Value] = []
        registers = []
        for i, (spec, index) in enumerate(zip(specs, same, strict=True)):
            self.backend.allow(*spec)
            fresh = self._slot(spec)
            if index is None:
                hold(fresh, *spec)
            registers.append(fresh.register)
            if arrays is not None:
                self._hold(fresh, arrays[i])
            if index is not None and index < len(sources):
                slots.append(sources[index])
            else:
                self._made.add(fresh)
                slots.append(fresh)
        if any(index is None for index in same):
            step = Step(node, call, operands, tuple(registers), tuple(specs))
            self._steps.append(step.with_blocks(call) if isinstance(call, BodyCall) else step)
        if call.is_unsized:
            self._measure([slot for slot in slots if isinstance(slot, Device)])
        return slots

    def recalled(self, values: Sequence[Static | Device]) -> list[Static | Device]:
        """The values, those that were read before as what they were read to be."""
        return [self._recalled(value) for value in values]

    def _recalled(self, value: Static | Device) -> Static | Device:
        return self._known.get(value.register, value) if isinstance(value, Device) else value

    def is_at_hand(self, value: Device) -> bool:
        """Whether it is what a call under a transformation gives as it is, not transformed.

        Nothing has to run before it is read, and a loop whose end is known can be differentiated.
        """
        given = self.inline and not self._open_blocks and value.register in self._inputs
        return given and not self.backend.is_abstract(self._frame[value.register])

    def fetch(self, values: Sequence[Value]) -> list[Value]:
        """The values with every array in them known: read, and the tape cut, where need be."""
        unknown = [
            leaf
            for value in values
            for leaf in leaves(value)
            if isinstance(leaf, Device) and leaf.register not in self._known
        ]
        for weight in unknown:
            if isinstance(weight, Weight):
                self.weights.note_read(weight.name)
                self._known[weight.register] = static(weight.host)
        self._read([device for device in unknown if not isinstance(device, Weight)])
        return [self._known[v.register] if isinstance(v, Device) else v for v in values]

    def parameter(self, array: Any) -> Device:
        """What stands in a block for an array that it will be called with."""
        slot = self._slot(self.backend.spec(array))
        if not self.backend.compiled:
            self._frame[slot.register] = array
        return slot

    def example(self, value: Value | Spec) -> Any:
        """An array like the one that a value stands for; for a static value, itself."""
        if isinstance(value, Spec):
            return value
        if isinstance(value, Static):
            return value.value if self.backend.compiled else self.backend.asarray(value.value)
        if not isinstance(value, Device):
            raise NeedsHost
        return value if self.backend.compiled else self._value(value.register)

    def stand_ins(self) -> Mapping[int, Any]:
        """Something to read captured values from, before it is known which are captured."""
        return StandIns(self)

    @contextmanager
    def block(self) -> Iterator[Callable[..., Block]]:
        """Steps written inside belong to a subgraph; call what is yielded with its results."""
        outer, self._steps = self._steps, []
        on_host, self._on_host = self._on_host, False
        self._open_blocks += 1
        try:
            yield self._as_block
        finally:
            self._open_blocks -= 1
            self._steps, self._on_host = outer, on_host

    def finish(self, outputs: Sequence[Value]) -> None:
        """Close the tape; these values are what the program returns."""
        self._close(outputs=tuple(outputs))

    def output_arrays(self) -> tuple[Any, ...]:
        """The outputs of the call that was recorded."""
        outputs = self.outputs or ()
        return tuple(output_of(v, self._frame, self.weights, self.backend) for v in outputs)

    def used_constants(self) -> list[tuple[np.ndarray[Any, Any], Any]]:
        """The static values that device steps use, each with the array that they get for it."""
        placed = {register for stage in self.path for register in stage.binding.all_constants}
        steps = [step for stage in self.path for step in stage.steps]
        # Steps of another process have values of their own, which are equal to those met here.
        found = (self._embedded.get(digest(e.value), e) for s in steps for e in s.embedded)
        embedded = {id(e): e.value for e in found}
        used = [(self._sources[register], self._constants[register]) for register in sorted(placed)]
        return used + [(value, value) for value in embedded.values()]

    # -- registers --------------------------------------------------------------------------------

    def _next_register(self, spec: Spec) -> int:
        register = self._registers
        self._registers += 1
        self._specs[register] = spec
        return register

    def fresh_register(self, spec: Spec) -> int:
        """One for a rewrite, of use in its segment alone.

        They are counted apart: a path that was recorded before is not rewritten again, and the
        others have to be called there as they were.
        """
        self._rewritten_registers -= 1
        self._specs[self._rewritten_registers] = spec
        return self._rewritten_registers

    def _slot(self, spec: Spec) -> Device:
        return (Hosted if spec.dtype == object else Device)(self._next_register(spec), spec)

    def _hold(self, slot: Device, array: Any) -> None:
        """Keep an array for as long as the graph may still read it."""
        self._frame[slot.register] = array
        if not self.backend.compiled:  # A compiled segment runs later, and reads it then.
            finalize(slot, self._let_go, slot.register).atexit = False

    def _let_go(self, register: int) -> None:
        """Drop an array that the graph reads no more; the open segment may have to run again."""
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
        if value.nbytes <= self.backend.embeds_up_to:
            return self._embedded.setdefault(key, Embedded(value))
        if key not in self._placed:
            register = self._next_register(Spec(value.shape, value.dtype))
            self._placed[key] = register
            self._frame[register] = self._constants[register] = self.constants.place(key, value)
            self._sources[register] = value
        return self._placed[key]

    def _runs_on_host(self, call: OpCall | BodyCall, sources: Sequence[Static | Device]) -> bool:
        if isinstance(call, BodyCall):
            return False
        if call.is_unsized and self.backend.compiled:
            return True
        strings = makes_strings(call) or any(source.dtype == object for source in sources)
        return strings and not self.backend.holds_strings

    # -- steps ------------------------------------------------------------------------------------

    def _evaluate(
        self, call: OpCall | BodyCall, operands: Sequence[Operand]
    ) -> tuple[Sequence[Spec], Sequence[int | None], Sequence[Any] | None]:
        if self.backend.compiled and not self._on_host:
            found = self._inferred.of(call, operands, self._specs, self._constant)
            return found.specs, found.same, None
        probe = Probe(call, HOST if self._on_host else self.backend)
        arrays = [self._value(operand) for operand in operands]
        with probe.xp.scope():
            results, _ = probe.looking(arrays, [self._constant(operand) for operand in operands])
        specs = [probe.xp.spec(result) for result in results]
        if self._on_host:
            results = tuple(r if r.dtype == object else self.backend.put(r) for r in results)
        return specs, probe.same, results

    def _constant(self, operand: Operand) -> np.ndarray[Any, Any] | None:
        """The value of an operand that no call changes; a weight may be replaced, by a good one."""
        if isinstance(operand, Embedded):
            return operand.value
        if operand in self._weights:
            return self.weights.host(self._weights[operand])
        return self._sources.get(operand)

    def _value(self, operand: Operand) -> Any:
        if isinstance(operand, Embedded):
            return operand.value if self._on_host else self.backend.asarray(operand.value)
        if operand not in self._frame:
            self._frame[operand] = self.weights[self._weights[operand]]
        value = self._frame[operand]
        if self._on_host and self.backend.is_abstract(value):
            raise InvalidInput(f"it runs on the host, {_ABSTRACT}")
        return self.backend.fetch(value) if self._on_host and self.backend.owns(value) else value

    def stand_in(self, register: int) -> Any:
        """An array like the one that the register will hold; where steps run at once, that one."""
        if not self.backend.compiled:
            return self._value(register)
        shape, dtype = self._specs[register]
        return self.backend.zeros(shape, dtype=self.backend.dtype(dtype))

    def _as_block(self, results: Sequence[Value], parameters: Sequence[Device] = ()) -> Block:
        if any(not isinstance(r, (Static, Device)) or r.dtype == object for r in results):
            raise NeedsHost
        operands = tuple(self._operand(r) for r in results if isinstance(r, (Static, Device)))
        specs = tuple(Spec(r.shape, r.dtype) for r in results if isinstance(r, (Static, Device)))
        registers = [o for o in operands if isinstance(o, int)]
        steps = tuple(without_dead_steps(self._steps, registers))
        return Block(steps, operands, specs, tuple(slot.register for slot in parameters))

    # -- cutting ----------------------------------------------------------------------------------

    def _read(self, devices: Sequence[Device]) -> None:
        """Cut the tape, and go on knowing these values; the program depends on them from here."""
        if not devices:
            return
        if self._open_blocks:
            raise NeedsHost
        self._close()
        registers = [d.register for d in devices]
        for register in registers:
            value = self._frame[register]
            if self.backend.is_abstract(value):
                raise InvalidInput(f"its value decides a shape or a branch, {_ABSTRACT}")
            host = self.backend.fetch(value) if self.backend.owns(value) else value
            # A copy, since the caller may write to the array after the call.
            self._known[register] = static(np.array(host))
            if register in self._inputs:
                self.inputs_read[register] = self._known[register].value
        self._stage.reads = tuple(registers)
        self._key = read_key([self._known[r].value for r in registers])

    def _measure(self, devices: Sequence[Device]) -> None:
        """Cut the tape where shapes depend on data; the program goes on for these shapes alone."""
        self._close()
        self._stage.measures = tuple(device.register for device in devices)
        self._key = read_key([], [device.shape for device in devices])

    def _close(self, outputs: tuple[Value, ...] | None = None) -> None:
        """End the segment: run it, and begin the next one."""
        results = self._results_of_segment(outputs)
        stage = self._stage.next(self._key)
        is_new = stage is None
        if stage is None:
            stage = self._new_stage(results, outputs)
        if stage.segment is not None:
            self.draws |= self._key_register in stage.segment.inputs
        if is_new:
            # Other threads may go on to the stage at once: what it takes is said before.
            self._root.draws |= self.draws
            self._stage.lead_to(self._key, stage)
        self.path.append(stage)
        if stage.segment is not None:
            self.left.update(stage.segment.results)
            runs_later = self.backend.compiled and not stage.segment.host
            # Steps that were run as they were traced run again where rewrites have changed them:
            # later calls run these, and are to give the same.
            runs = stage.is_rewritten or runs_later
            if runs and (outputs is None or self.execute):
                stage.run(self._frame, self.compiler, self.weights, inline=self.inline)
        self._stage, self._key, self._steps = stage, (), []
        self._made.clear()
        for register in self._unread:
            self._frame.pop(register, None)
        self._unread.clear()
        self._first_of_segment = self._registers
        self.outputs = outputs

    def _results_of_segment(self, outputs: tuple[Value, ...] | None) -> list[int]:
        made = {register for step in self._steps for register in step.results}
        if outputs is None:
            return sorted(device.register for device in self._made if device.register in made)
        arrays = [leaf for output in outputs for leaf in leaves(output)]
        registers = (leaf.register for leaf in arrays if isinstance(leaf, Device))
        return list(dict.fromkeys(r for r in registers if r in made))

    def _new_stage(self, results: Sequence[int], outputs: tuple[Value, ...] | None) -> Stage:
        steps = self._rewritten(results)
        stage = self._stage_of(steps, results, outputs)
        if self._on_host or not self.backend.compiled:
            traced = without_dead_steps(self._steps, results)
            stage.is_rewritten = list(map(id, steps)) != list(map(id, traced))
        return stage

    def _rewritten(self, results: Sequence[int]) -> Sequence[Step]:
        steps = without_dead_steps(self._steps, results)
        # Under a caller's transformation nothing runs ahead of the call, and weights are as they
        # are passed.
        weights = () if self.inline else self._weights
        return rewrite(
            steps,
            results,
            self._sources,
            weights,
            self.backend,
            specs=self._specs,
            fresh=self.fresh_register,
            is_finite=self._is_finite,
        )

    def _is_finite(self, register: int) -> bool:
        """Whether a weight is, as it is now; of what a call passes that is not known."""
        weight = self._weights.get(register)
        return weight is not None and self.weights.is_finite(weight)

    def _stage_of(
        self, steps: Sequence[Step], results: Sequence[int], outputs: tuple[Value, ...] | None
    ) -> Stage:
        if not steps:
            return Stage(outputs=outputs)
        if self._on_host or self.inline:
            registers = {*self._weights, *self._constants}
            segment = Segment(steps, results, registers, host=self._on_host)
            binding = Binding.plain(segment, self._weights, self._sources, self._constants)
        else:
            fixed = Fixed(self._weights, self._sources, self._constants, self._specs)
            segment, binding = bind(steps, results, fixed, self.backend)
        return Stage(
            segment,
            binding,
            self._given_up(segment, outputs),
            inputs=tuple(self._specs[register] for register in segment.inputs),
            results=tuple(self._specs[register] for register in segment.results),
            outputs=outputs,
        )

    def _given_up(self, segment: Segment, outputs: tuple[Value, ...] | None) -> tuple[int, ...]:
        """The places of arguments whose buffers results may take over: nobody reads them later."""
        if outputs is None:
            return ()
        kept = {v.register for o in outputs for v in leaves(o) if isinstance(v, Device)}
        return tuple(
            place
            for place, register in enumerate(segment.inputs)
            if register in self._donated and register not in kept
        )


class StandIns(dict[int, Any]):
    """Registers' arrays, made up when they are asked for."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __missing__(self, register: int) -> Any:
        return self._tape.stand_in(register)

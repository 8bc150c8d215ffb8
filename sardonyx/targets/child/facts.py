"""What XLA says of a program that it compiled."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib import _jax

from sardonyx.targets.child.products import products_of
from sardonyx.targets.child.program_text import Instruction, ProgramText, nbytes
from sardonyx.targets.records import Collective, Facts

# Instructions that no kernel stands for.
_FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy-done", "async-done",
    "async-update", "partition-id", "replica-id", "after-all", "opt-barrier", "while",
    "conditional", "call", "all-reduce-done", "all-gather-done", "collective-permute-done",
    "send-done", "recv-done", "add-dependency", "domain",
})  # fmt: skip
_COPIES = frozenset({"copy", "copy-start"})
_COLLECTIVES = frozenset({
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast",
})  # fmt: skip
_TRANSFERS = frozenset({"send", "recv", "infeed", "outfeed"})
_NARROW = ("int2", "uint2", "int4", "uint4")
_WIDE = frozenset({"s64", "u64", "f64", "c128"})
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
# Where a TPU's pairs of 32 bits become one array of 64 bits, or are taken from it.
_PAIRED = re.compile(r'custom_call_target="X(?:64|128)[A-Z]')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLBACK = re.compile(r"callback|py_func|infeed|outfeed", re.IGNORECASE)


def facts_of(traced: Any, lowered: Any, built: Any, platform: str) -> tuple[Facts, str]:
    """Return the facts of a compiled program, and its text."""
    text = built.as_text()
    program = ProgramText.of(text)
    memory = built.memory_analysis()
    costs = built.cost_analysis() or _counted(built)
    kernels = _kernels(program)
    calls = _custom_calls(program)
    arguments = _nbytes(built.in_avals, built.input_shardings)
    outputs = _nbytes(built.out_info, built.output_shardings)
    return Facts(
        kinds=dict(kernels.most_common()),
        loops=sum(each.operation == "while" for _, each in program.instructions()),
        operations=_count(lowered.compiler_ir("hlo").get_hlo_module()).get("flops", 0.0),
        optimised_operations=costs.get("flops", 0.0),
        accessed=costs.get("bytes accessed", 0.0),
        least_moved=arguments + outputs,
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        donated=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        plain_arguments=arguments,
        custom_calls=calls,
        host_calls=_host_calls(program, calls),
        wide_values=_wide_values(program),
        collectives=_collectives(program),
        products=products_of(traced.jaxpr, platform),
        cycles=_cycles(program),
    ), text


def _nbytes(arrays: Any, shardings: Any) -> int:
    """Return the bytes of arrays on one device."""
    pairs = zip(jax.tree.leaves(arrays), jax.tree.leaves(shardings), strict=False)
    return sum(_size(sharding.shard_shape(each.shape), each.dtype) for each, sharding in pairs)


def _size(shape: tuple[int, ...], dtype: Any) -> int:
    if jnp.issubdtype(dtype, jax.dtypes.extended):  # A key of random numbers.
        return math.prod(shape) * int(dtype.itemsize)
    bits = jnp.iinfo(dtype).bits if jnp.dtype(dtype).name in _NARROW else 8 * dtype.itemsize
    return math.ceil(math.prod(shape) * bits / 8)


def _counted(built: Any) -> Mapping[str, float]:
    """Return XLA's generic counts of the optimised modules, as its GPU compiler has no device."""
    found: Counter[str] = Counter()
    for module in built.runtime_executable().hlo_modules():
        found.update(_count(module))
    return found


def _count(module: Any) -> Mapping[str, float]:
    cpu = jax.devices("cpu")[0].client
    counts: Mapping[str, float] = _jax.hlo_module_cost_analysis(cpu, module)
    return counts


def _kernels(program: ProgramText) -> Counter[str]:
    return Counter(
        instruction.operation
        for name, instruction in program.instructions()
        if name in program.launching and instruction.operation not in _FREE
        if not _PAIRED.search(instruction.rest)
    )


def _custom_calls(program: ProgramText) -> dict[str, int]:
    targets = (_TARGET.search(each.rest) for _, each in program.instructions())
    return dict(Counter(target[1] for target in targets if target))


def _host_calls(program: ProgramText, calls: Iterable[str]) -> tuple[str, ...]:
    transfers = {each.operation for _, each in program.instructions()} & _TRANSFERS
    return tuple(sorted(transfers.union(filter(_CALLBACK.search, calls))))


def _wide_values(program: ProgramText) -> dict[str, int]:
    """Count the arrays of 64-bit types, without single numbers, arguments and their parts."""
    return dict(
        Counter(
            type_name
            for _, instruction in program.instructions()
            if instruction.operation not in ("parameter", "get-tuple-element", "tuple", "bitcast")
            for type_name, shape in instruction.arrays
            if type_name in _WIDE and shape
        )
    )


def _collectives(program: ProgramText) -> tuple[Collective, ...]:
    counts, sizes = Counter[str](), Counter[str]()
    for name, instruction in program.instructions():
        kind = instruction.operation.removesuffix("-start")
        if kind in _COLLECTIVES:
            times = max(1, program.times[name])
            counts[kind] += times
            sizes[kind] += times * _collective_bytes(instruction)
    return tuple(Collective(kind, count, sizes[kind]) for kind, count in sorted(counts.items()))


def _collective_bytes(instruction: Instruction) -> int:
    arrays = instruction.arrays
    # Types of the operands stand beside those of the results, except for all-reduce.
    if instruction.operation.endswith("-start") and instruction.operation != "all-reduce-start":
        arrays = [max(arrays, key=lambda array: nbytes(*array))]
    return sum(nbytes(*array) for array in arrays)


def _cycles(program: ProgramText) -> int:
    return sum(
        int(cycles[1])
        for name, instruction in program.instructions()
        if name in program.launching
        if (cycles := _CYCLES.search(instruction.rest))
    )

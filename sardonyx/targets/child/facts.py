"""What XLA says of a program that it compiled."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxlib import _jax

from sardonyx.targets.child.least_reads import parts_read
from sardonyx.targets.child.padding import padding_of
from sardonyx.targets.child.products import products_of
from sardonyx.targets.child.program_text import Instruction, ProgramText, arrays_of, nbytes
from sardonyx.targets.records import Collective, Facts

# Instructions that no kernel stands for.
_FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "async-update",
    "partition-id", "replica-id", "after-all", "opt-barrier", "while", "conditional", "call",
    "add-dependency", "domain",
})  # fmt: skip
_COLLECTIVES = frozenset({
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast",
})  # fmt: skip
_TRANSFERS = frozenset({"send", "recv", "infeed", "outfeed"})
_NARROW = ("int2", "uint2", "int4", "uint4")
_WIDE = frozenset({"s64", "u64", "f64", "c128"})
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
# Views on TPUs: of pairs of 32 bits as 64 bits, and of several arrays as one.
_FREE_CALL = re.compile(
    r'custom_call_target="(?:X(?:64|128)[A-Z]|ConcatBitcast|AllocateBuffer|Sharding)'
)
# Calls of which XLA counts nothing, and the types of their operands.
_CUDNN = re.compile(r'custom_call_target="__cudnn\$fmha\w*?(?P<backward>Backward)?"')
_OPERANDS = re.compile(r"operand_layout_constraints=\{(.*?\})\}")
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLBACK = re.compile(r"callback|py_func|infeed|outfeed", re.IGNORECASE)


def facts_of(
    arguments: Sequence[Any], traced: Any, lowered: Any, built: Any, platform: str
) -> tuple[Facts, str]:
    """Return the facts of a program compiled for these stand-ins, and its text."""
    text = built.as_text()
    program = ProgramText.of(text)
    memory = built.memory_analysis()
    costs = built.cost_analysis() or _counted(built)
    plain = _count(lowered.compiler_ir("hlo").get_hlo_module())
    by_cudnn = _by_cudnn(program)
    kernels = _kernels(program)
    padding = padding_of(kernels)
    calls = _custom_calls(program)
    leaves = jax.tree.leaves(arguments)
    sizes = _sizes(leaves, [leaf.sharding for leaf in leaves])
    parts = parts_read(traced.jaxpr)
    read = sum(size * part for size, part in zip(sizes, parts, strict=True))
    outputs = _sizes(built.out_info, built.output_shardings)
    return Facts(
        kinds=dict(Counter(kernel.operation for kernel in kernels).most_common()),
        loops=sum(each.operation == "while" for _, each in program.instructions()),
        # A program of nothing but cuDNN's calls has counts of -1.
        operations=max(plain.get("flops", 0.0), 0.0) + by_cudnn.operations,
        optimised_operations=max(costs.get("flops", 0.0), 0.0) + by_cudnn.operations,
        accessed=max(costs.get("bytes accessed", 0.0), 0.0) + by_cudnn.accessed,
        least_moved=math.ceil(read) + sum(outputs),
        results=padding.results,
        padding=padding.added,
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        donated=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        # Arguments that nothing reads are not passed.
        plain_arguments=sum(size for size, part in zip(sizes, parts, strict=True) if part),
        custom_calls=calls,
        host_calls=_host_calls(program, calls),
        wide_values=_wide_values(program),
        collectives=_collectives(program),
        products=products_of(traced.jaxpr, platform),
        cycles=_cycles(program),
    ), text


def _sizes(arrays: Any, shardings: Any) -> list[int]:
    """Return the bytes of each array on one device."""
    pairs = zip(jax.tree.leaves(arrays), jax.tree.leaves(shardings), strict=True)
    return [_size(sharding.shard_shape(each.shape), each.dtype) for each, sharding in pairs]


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


def _kernels(program: ProgramText) -> list[Instruction]:
    return [
        instruction
        for name, instruction in program.instructions()
        if name in program.launching and not _is_free(instruction)
    ]


def _is_free(instruction: Instruction) -> bool:
    operation = instruction.operation
    is_end = operation.endswith("-done")  # Of what another instruction started.
    return is_end or operation in _FREE or bool(_FREE_CALL.search(instruction.rest))


def _custom_calls(program: ProgramText) -> dict[str, int]:
    targets = (_TARGET.search(each.rest) for _, each in program.instructions())
    return dict(Counter(target[1] for target in targets if target))


class _Counts(NamedTuple):
    operations: float
    accessed: int


def _by_cudnn(program: ProgramText) -> _Counts:
    """Return what calls of cuDNN's attention compute, and the bytes that they access at least."""
    operations, accessed = 0.0, 0
    for name, instruction in program.instructions():
        target, types = _CUDNN.search(instruction.rest), _OPERANDS.search(instruction.rest)
        if target is not None and types is not None:
            times, operands = max(1, program.times[name]), arrays_of(types[1])
            # (batch, length, heads, size).
            (_, q), (_, k), (_, v) = operands[:3]
            # Gradients are five products in place of two.
            factor = 5.0 if target["backward"] else 2.0
            operations += times * factor * math.prod(q[:3]) * k[1] * (q[3] + v[3])
            accessed += times * sum(nbytes(*array) for array in (*instruction.arrays, *operands))
    return _Counts(operations, accessed)


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
    seen = set[str]()
    for name, instruction in program.instructions():
        kind = instruction.operation.removesuffix("-start")
        if kind in _COLLECTIVES and not _is_repeated(program, name, instruction, seen):
            times = max(1, program.times[name])
            counts[kind] += times
            sizes[kind] += times * _collective_bytes(instruction)
    return tuple(Collective(kind, count, sizes[kind]) for kind, count in sorted(counts.items()))


def _is_repeated(program: ProgramText, name: str, instruction: Instruction, seen: set[str]) -> bool:
    """Whether it is another part of one collective, which a TPU runs within several fusions."""
    channel = _CHANNEL.search(instruction.rest)
    if name in program.launching or channel is None:
        return False
    is_known = channel[1] in seen
    seen.add(channel[1])
    return is_known


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

"""XLA's figures for a program that it compiled: memory and arithmetic operations."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.executable import Costs


def costs_of(built: Any) -> Costs:
    """The costs of a compiled program."""
    memory, work = built.memory_analysis(), built.cost_analysis()
    return Costs(
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        donated=memory.alias_size_in_bytes,
        operations=work.get("flops", 0.0),
        moved=work.get("bytes accessed", 0.0),
    )


def bytes_made_anew(built: Any) -> int:
    """The bytes of results and temporaries that a call allocates."""
    memory = built.memory_analysis()
    total: int = memory.output_size_in_bytes + memory.temp_size_in_bytes
    return total

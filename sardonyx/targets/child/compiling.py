"""Compile a function for the devices of a topology that is not here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from sardonyx.backends.jax.accelerators import cudnn_trial
from sardonyx.backends.jax.backend import EXACT
from sardonyx.backends.jax.compiling import compiled
from sardonyx.errors import SardonyxError
from sardonyx.printable import printable
from sardonyx.targets.child.facts import facts_of
from sardonyx.targets.names import Target
from sardonyx.targets.records import COMPILED, FAILED, REFUSED, Compilation

# How XLA begins an error if a program needs more memory than the device has.
_TOO_LARGE = "RESOURCE_EXHAUSTED"
_LONGEST_REASON = 1500
# libtpu may be newer than jaxlib, and write instructions that this cannot read.
_UNREADABLE = "It was compiled, but jaxlib cannot read the program, so nothing is counted"

Keep = Callable[[Any, Any], None]


@cache
def devices_of(target: Target) -> Sequence[Any]:
    """Return the devices of a target, as JAX describes them."""
    if target.platform == "cuda":
        options: dict[str, Any] = {"target_config": target.specification}
        options["topology"] = target.topology
        return tuple(topologies.get_topology_desc("", "cuda", **options).devices)
    # Else XLA counts on hosts of four chips.
    options = {} if target.is_mesh else {"chips_per_host_bounds": [1, 1, 1]}
    return tuple(topologies.get_topology_desc(target.topology, "tpu", **options).devices)


def stand_in(value: Any, device: Any) -> Any:
    """Return a value's shape and dtype, on the device."""
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=SingleDeviceSharding(device))


def compilation(
    title: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    target: Target,
    *,
    donated: Sequence[int] = (),
    keeps_text: bool = False,
    keep: Keep | None = None,
) -> Compilation:
    """Compile a function for stand-ins on the target's devices; return how that ended.

    `keep` gets what was compiled, and what it was compiled from.
    """
    start = time.perf_counter()
    try:
        jitted = jax.jit(function, donate_argnums=tuple(donated), compiler_options=EXACT)
        with cudnn_trial.noted() as notes:
            traced = jitted.trace(*arguments)
        # Else JAX lowers for the CPU that this process runs on.
        lowered = traced.lower(lowering_platforms=(target.platform,))
        built, workaround = compiled(lowered, target.platform)
        workaround = workaround or next(iter(notes), None)
        seconds = time.perf_counter() - start
        if keep is not None:
            keep(built, lowered)
        try:
            facts, text = facts_of(arguments, traced, lowered, built, target.platform)
        except jax.errors.JaxRuntimeError as error:
            reason = printable(f"{_UNREADABLE} ({error})", _LONGEST_REASON)
            return Compilation(title, COMPILED, reason, seconds)
        return Compilation(
            title, COMPILED, workaround or "", seconds, facts, text if keeps_text else ""
        )
    except SardonyxError as error:
        return Compilation(title, REFUSED, str(error), time.perf_counter() - start)
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        outcome = REFUSED if text.startswith(_TOO_LARGE) else FAILED
        reason = printable(f"{type(error).__name__}: {text}", _LONGEST_REASON)
        return Compilation(title, outcome, reason, time.perf_counter() - start)

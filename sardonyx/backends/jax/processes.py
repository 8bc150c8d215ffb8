"""What carries a backend over to another process: pickling does, and a fork does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax._src import xla_bridge

from sardonyx.backends.base import Backend
from sardonyx.backends.forks import Fork

if TYPE_CHECKING:
    from sardonyx.backends.jax.backend import JaxBackend


@cache
def fork() -> Fork:
    """Whether this process was forked after JAX had started its threads."""
    return Fork("JAX", xla_bridge.backends_are_initialized)


def description(backend: JaxBackend) -> tuple[Any, ...]:
    """The arguments of `restored`, all of which can be pickled."""
    settings, folder, device = backend.settings, backend.settings.cache, backend.device
    place = None
    if device is not None:
        place = device.platform, jax.local_devices(backend=device.platform).index(device)
    bare = replace(settings, cache=None, checks=None)
    path = None if folder is None else folder.path
    return type(backend), place, backend.compiled, bare, path, backend.checked


def restored(
    kind: type[JaxBackend],
    place: tuple[str, int] | None,
    jit: bool,
    settings: Any,
    folder: Path | None,
    checked: bool,
) -> Backend:
    """The backend that was described, on the device of this process with the same place."""
    device = kind.device_for(*place) if place else None
    found: Backend = kind(device, jit=jit, settings=settings)
    if folder is not None:
        found = found.with_cache(folder)
    return found.with_checks() if checked else found

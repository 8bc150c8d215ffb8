"""Clients of XLA for the CPU with a number of threads of their own.

XLA's thread pool belongs to a client, and no option of a program limits it. So models with
`threads=` run on a client whose pool has that size, one for each number in a process.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Any

import jax
from jaxlib import xla_client

from sardonyx.errors import BackendUnavailable

# XLA reads it where it creates a client.
_SIZE = "PJRT_NPROC"

_lock = Lock()
_devices: dict[int, jax.Device] = {}


def device(threads: int) -> jax.Device:
    """Return the CPU as the device of a client with so many threads."""
    with _lock:
        if threads not in _devices:
            _devices[threads] = _created(threads)
        return _devices[threads]


def _created(threads: int) -> jax.Device:
    # JAX's own client first: it must not see the variable.
    jax.local_devices(backend="cpu")
    before = os.environ.get(_SIZE)
    os.environ[_SIZE] = str(threads)
    try:
        client: Any = xla_client.make_cpu_client(asynchronous=True)
        found: jax.Device = client.local_devices()[0]
    except (AttributeError, TypeError) as error:
        raise BackendUnavailable(
            f"JAX {jax.__version__} cannot limit XLA's threads ({error}): leave out threads=, or "
            "set NPROC for the process."
        ) from error
    finally:
        if before is None:
            del os.environ[_SIZE]
        else:
            os.environ[_SIZE] = before
    return found

"""Functions of the module: seeds, logging, telemetry, and what was built."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from sardonyx.backends import available
from sardonyx.compat.exceptions import RefusedCall, WrongType, refused
from sardonyx.version import __version__ as own_version

# The release of onnxruntime whose interface this package has.
ORT_VERSION = "1.31.1"


@dataclass
class _Seed:
    value: int | None = None


_seed = _Seed()


class Draws:
    """The random keys of one session's calls; none if no seed was set when it was created.

    >>> Draws().key()
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = _seed.value if seed is None else seed
        self._calls = count()

    def __reduce__(self) -> Any:
        return Draws, (self._seed,)

    def key(self) -> Any:
        """Return the key of the next call, or None to draw anew."""
        if self._seed is None:
            return None
        return np.asarray([self._seed % 2**32, next(self._calls)], np.uint32)


def set_seed(seed: int) -> None:
    """Let sessions that are created from now on draw the same random numbers each time.

    Call by call, two sessions that were created after equal seeds draw alike. The numbers are not
    onnxruntime's.

    >>> set_seed(7)
    >>> Draws().key()
    array([7, 0], dtype=uint32)
    >>> _seed.value = None
    """
    _seed.value = _whole(seed, "A seed")


def set_default_logger_severity(severity: int) -> None:
    """Check a severity, from 0 (verbose) to 4 (fatal); without effect.

    >>> set_default_logger_severity(3)
    """
    if not 0 <= _whole(severity, "A severity") <= 4:
        raise RefusedCall(f"A severity of the logger is {severity}: pass 0 (verbose) to 4 (fatal).")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Check a verbosity; without effect.

    >>> set_default_logger_verbosity(0)
    """
    _whole(verbosity, "A verbosity")


def enable_telemetry_events() -> None:
    """Do nothing: sardonyx sends nothing to anybody.

    >>> enable_telemetry_events()
    """


def disable_telemetry_events() -> None:
    """Do nothing: sardonyx sends nothing to anybody.

    >>> disable_telemetry_events()
    """


def get_build_info() -> str:
    """Return the versions of the package and of the interface that it follows, and its backends.

    >>> get_build_info().startswith("sardonyx ")
    True
    """
    backends = ", ".join(available())
    return f"sardonyx {own_version}, with the interface of onnxruntime {ORT_VERSION}, on {backends}"


def get_version_string() -> str:
    """Return the release of onnxruntime whose interface this package has.

    >>> get_version_string()
    '1.31.1'
    """
    return ORT_VERSION


def has_collective_ops() -> bool:
    """Return False: no operators of other processes are built in.

    >>> has_collective_ops()
    False
    """
    return False


def preload_dlls(*_arguments: Any, **_options: Any) -> None:
    """Do nothing: JAX and CuPy load CUDA's libraries themselves.

    >>> preload_dlls()
    """


def print_debug_info() -> None:
    """Print the versions and backends.

    >>> print_debug_info()  # doctest: +ELLIPSIS
    sardonyx ...
    """
    print(get_build_info())


def get_ep_devices() -> list[Any]:
    """Return no devices of plugins: sardonyx has none.

    >>> get_ep_devices()
    []
    """
    return []


def set_global_thread_pool_sizes(*_sizes: int) -> None:
    """Do nothing: threads belong to the process, or to a session's options.

    >>> set_global_thread_pool_sizes(1, 1)
    """


def register_execution_provider_library(name: str, path: Any) -> None:
    """Refuse a library of providers."""
    raise refused("Libraries of providers are", "write a sardonyx.types.Backend of your own")


def unregister_execution_provider_library(name: str) -> None:
    """Refuse a library of providers."""
    raise refused("Libraries of providers are", "there is none to unregister")


def create_and_register_allocator(*_arguments: Any) -> None:
    """Do nothing: the array libraries have allocators of their own.

    >>> create_and_register_allocator()
    """


create_and_register_allocator_v2 = create_and_register_allocator


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, (int, np.integer)):
        raise WrongType(f"{what} is {value!r:.100}: pass a whole number.")
    return int(value)

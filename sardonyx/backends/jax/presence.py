"""What can be said of JAX in this process without importing it, which takes half a second."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

from sardonyx.backends.forks import Fork
from sardonyx.errors import BackendUnavailable
from sardonyx.printable import first_line

# By which a user names the platforms.
_CHOICES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")


@cache
def fork() -> Fork:
    """Whether this process was forked after JAX had started its threads."""
    return Fork("JAX", has_started)


def has_started() -> bool:
    """Whether XLA runs in this process, for whomever."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def has_only_cpus() -> bool:
    """Whether JAX is certain to have no devices but CPUs, though it may not be imported yet."""
    if "jax" in sys.modules:
        return _default_platform() == "cpu"
    chosen = [os.environ[name] for name in _CHOICES if os.environ.get(name)]
    return chosen[0] == "cpu" if chosen else not _has_plugins()


def _default_platform() -> str:
    import jax  # noqa: PLC0415  (another thread may be importing it)

    try:
        return jax.default_backend()
    except (AssertionError, RuntimeError) as error:
        chosen = [f"{name}={os.environ[name]}" for name in _CHOICES if name in os.environ]
        reason = "; ".join((first_line(error), *chosen))
        raise BackendUnavailable(
            f"JAX finds no device here ({reason}): set JAX_PLATFORMS=cpu, or install what the "
            "platform needs."
        ) from error


@cache
def _has_plugins() -> bool:
    """Whether anything is installed that brings another platform: CUDA, ROCm, TPUs."""
    modules = ("jax_plugins", "libtpu")
    is_installed = any(find_spec(name) is not None for name in modules)
    has_library = "TPU_LIBRARY_PATH" in os.environ
    return is_installed or has_library or bool(entry_points(group="jax_plugins"))


def looks_for_nan() -> bool:
    """Whether a setting of JAX lets programs look for bad values, or run step by step.

    Another thread may be importing JAX, whose settings then have their defaults.
    """
    jax = sys.modules.get("jax")
    if jax is None:  # Each call of a small model comes here.
        return False
    try:
        config = jax.config
        return bool(config.jax_debug_nans or config.jax_debug_infs or config.jax_disable_jit)
    except AttributeError:
        return False

"""Execution providers: which backend and device a name of onnxruntime's means.

A provider that is not here, or whose device is not here, is skipped with a warning, and the next
one of the list is taken; the CPU stands behind every list. This is what onnxruntime does.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.compat.devices import check_index
from sardonyx.compat.exceptions import Fail, RefusedCall, WrongType
from sardonyx.compat.values import device_of
from sardonyx.errors import BackendUnavailable, InvalidInput

CPU = "CPUExecutionProvider"
# An entry of the options: without it, sessions fall back to the CPU.
NO_FALLBACK_ENTRY = "session.disable_cpu_ep_fallback"


class _Target(NamedTuple):
    """The backend and the kind of device of a provider; None is whichever is best."""

    backend: str | None
    kind: str | None


# The best first.
_TARGETS = {
    "TPUExecutionProvider": _Target("jax", "tpu"),
    "TensorrtExecutionProvider": _Target("jax", "cuda"),
    "NvTensorRTRTXExecutionProvider": _Target("jax", "cuda"),
    "CUDAExecutionProvider": _Target(None, "cuda"),
    "JaxExecutionProvider": _Target("jax", None),
    "CupyExecutionProvider": _Target("cupy", None),
    "NumpyExecutionProvider": _Target("numpy", None),
    CPU: _Target(None, "cpu"),
}
# What onnxruntime knows besides, for devices that sardonyx does not use.
_OTHERS = (
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
)
_DEVICE, _INDEX = "device", "device_id"


class Placement(NamedTuple):
    """The provider that a session has, its options, and the backend they mean."""

    provider: str
    options: dict[str, str]
    backend: Backend

    @property
    def providers(self) -> list[str]:
        """The names that `get_providers` returns."""
        return [self.provider] if self.provider == CPU else [self.provider, CPU]

    @property
    def provider_options(self) -> dict[str, dict[str, str]]:
        """What `get_provider_options` returns."""
        return {CPU: {}} | {self.provider: dict(self.options)}


def place(
    providers: Any, provider_options: Any, *, falls_back: bool = True, needs_device: bool = False
) -> Placement:
    """Return the placement for the arguments of a session.

    Unless it `falls_back`, names that nobody knows are an error. If it `needs_device`, so is a list
    of which nothing is here.

    >>> place(["NumpyExecutionProvider"], None).providers
    ['NumpyExecutionProvider', 'CPUExecutionProvider']
    """
    wanted = _normalised(providers, provider_options)
    if not wanted:
        return _best()
    for name, options in wanted.items():
        if name not in _TARGETS and name not in _OTHERS and not falls_back:
            raise RefusedCall(
                f"There is no provider {name!r:.100}: pass one of {', '.join(_TARGETS)}."
            )
        try:
            return Placement(name, _shown_options(name, options), _backend(name, options))
        except BackendUnavailable as error:
            reason = str(error).rstrip(".")
            warnings.warn(
                f"The provider '{name}' is not available here: {reason}. The next provider of the "
                f"list is taken, or else {CPU}.",
                stacklevel=4,
            )
    if needs_device:
        raise Fail(
            f"None of the providers {', '.join(wanted)} is available, and the entry "
            f"'{NO_FALLBACK_ENTRY}' forbids the CPU: remove the entry, or name another provider."
        )
    return Placement(CPU, {}, _on("cpu", 0))


def get_all_providers() -> list[str]:
    """Return the names of all providers, here or not, the best first.

    >>> "CPUExecutionProvider" in get_all_providers()
    True
    """
    names = [name for name in _TARGETS if name != CPU]
    return [*names, *_OTHERS, CPU]


def get_available_providers() -> list[str]:
    """Return the names of the providers whose backend and device are here, the best first.

    >>> get_available_providers()[-1]
    'CPUExecutionProvider'
    """
    return [name for name in get_all_providers() if _is_here(name)]


def get_device() -> str:
    """Return the kind of the best device: "CPU", "GPU" or "TPU".

    >>> get_device() in ("CPU", "GPU", "TPU")
    True
    """
    for kind, name in (("TPU", "TPUExecutionProvider"), ("GPU", "CUDAExecutionProvider")):
        if _is_here(name):
            return kind
    return "CPU"


def _is_here(name: str) -> bool:
    with suppress(BackendUnavailable):
        return _backend(name, {}) is not None
    return False


def _best() -> Placement:
    """Return the placement of a session that names no provider."""
    for name in ("TPUExecutionProvider", "CUDAExecutionProvider"):
        with suppress(BackendUnavailable):
            return Placement(name, _shown_options(name, {}), _backend(name, {}))
    return Placement(CPU, {}, _on("cpu", 0))


def _backend(name: str, options: Mapping[str, str]) -> Backend:
    target = _TARGETS.get(name)
    if target is None:
        raise BackendUnavailable(f"Sardonyx has no provider {name!r:.100}.")
    if target.kind == "cpu":
        return _on("cpu", 0)
    if target.kind is None:
        device = options.get(_DEVICE)
        index = options.get(_INDEX)
        if device is None and index not in (None, "0"):
            raise InvalidInput(
                f"The provider '{name}' has the {_INDEX} {index!r:.50} and no device: pass "
                f"{{'{_DEVICE}': 'cuda:{index}'}}."
            )
        return find(target.backend, device)
    return _on(target.kind, _index(options), target.backend)


def _on(kind: str, index: int, backend: str | None = None) -> Backend:
    """Return the backend on a device.

    If JAX's default device is that device, its backend there: calls on a device that is named copy
    each array of NumPy first.
    """
    best = find(backend)
    is_there = device_of(best) == (kind, index)
    return best if is_there else find(backend, f"{kind}:{index}")


def _shown_options(name: str, options: Mapping[str, str]) -> dict[str, str]:
    kind = _TARGETS[name].kind if name in _TARGETS else None
    if kind == "cpu":
        return {}
    return {**({_INDEX: "0"} if kind else {}), **options}


def _index(options: Mapping[str, str]) -> int:
    index = options.get(_INDEX, "0")
    if not (index.isascii() and index.isdigit()):
        raise InvalidInput(f"The {_INDEX} of a provider is {index!r:.50}: pass 0, 1, ...")
    return check_index(int(index))


def _normalised(providers: Any, provider_options: Any) -> dict[str, dict[str, str]]:
    """Return the options of each provider, in the order of the list."""
    if providers is None:
        if provider_options is not None and not isinstance(provider_options, Sequence):
            raise InvalidInput("The options of providers are no list: pass a list of dicts.")
        return {}
    if isinstance(providers, str):
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise WrongType(f"The providers are {providers!r:.200}: pass a list of names.")
    wanted: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if name in wanted:
            warnings.warn(
                f"The provider '{name}' is named twice: the first one counts.", stacklevel=5
            )
            continue
        wanted[name] = {str(key): str(value) for key, value in options.items()}
    return wanted


def _pairs(providers: Sequence[Any], options: Any) -> list[tuple[str, Mapping[Any, Any]]]:
    if options is not None:
        is_list = isinstance(options, Sequence) and not isinstance(options, str)
        if not is_list or len(options) != len(providers):
            raise InvalidInput(
                f"There are {len(providers)} providers, and the options are {options!r:.200}: "
                "pass a list with one dict for each."
            )
        providers = list(zip(providers, options, strict=True))
    pairs = [(each, {}) if isinstance(each, str) else each for each in providers]
    for pair in pairs:
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str) or not isinstance(pair[1], Mapping):
            raise InvalidInput(
                f"A provider is {pair!r:.200}: pass its name, or a tuple of its name and a dict of "
                "options."
            )
    return pairs

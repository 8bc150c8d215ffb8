"""The compiled kernels, loaded once, and called on arrays of the host."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache, partial
from logging import INFO, WARNING
from threading import Lock, local
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.host_memory import zero_bytes
from sardonyx.backends.jax.onednn.build import BuildError, built, is_installed
from sardonyx.logs import Log, postponed

# The names under which XLA's programs find them.
PACK, RUN, CHAIN = TARGETS = (
    "sardonyx_onednn_pack",
    "sardonyx_onednn_run",
    "sardonyx_onednn_chain",
)
Bytes: TypeAlias = np.ndarray[Any, Any]

_LOG = Log("kernels")
# The major version of oneDNN that the kernels were written for.
SERIES = 3

# All objects of CPython have the same head, behind which NumPy's arrays begin with this pointer.
_POINTER_WITHIN_ARRAY = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address
_BYTES_OF_NUMBER = 8

_loading = Lock()
# The kernels, once somebody has asked.
_asked_for: list[Kernels] = []


class Kernels(NamedTuple):
    """The library and the digest of its build, or why there is no library."""

    functions: ctypes.CDLL | None = None
    identity: str = ""
    fault: str = ""
    # Whether they compute functions of rows, windows and boxes, too, on this processor.
    have_lanes: bool = False


class Kind(IntEnum):
    """What a kernel computes, numbered as in kernels/sequence.h."""

    PRODUCT, CHAIN, STACK, ATTENTION, ROWS, WINDOWS, COPY, POINTS, SUMS, SEQUENCE = range(10)


class KernelCall(NamedTuple):
    """A call of a kernel."""

    kind: Kind
    spec: tuple[int, ...]
    arrays: tuple[Bytes | None, ...]

    @property
    def results(self) -> int:
        """How many of the last arrays it writes to."""
        return 3 if self.kind is Kind.ROWS else 1


class _Notes(local):
    """The calls of a thread that only notes them."""

    calls: list[KernelCall] | None = None
    # Whether these are to run in one call.
    will_be_joined: bool = False


_notes = _Notes()


class PackedForm(NamedTuple):
    """How many bytes the packed weight of a product takes, and its form."""

    size: int
    # Equal for products that read the same packed weights; None if only oneDNN knows the form.
    numbers: tuple[int, ...] | None


def status() -> str:
    """Whether oneDNN is used, and why not, in a sentence."""
    fault = _kernels().fault
    if fault:
        return f"XLA's own kernels are used, not oneDNN's: {fault}"
    return "oneDNN's kernels are used for products and convolutions on the CPU"


def identity() -> str:
    """The digest of this build of the kernels; empty if there are none."""
    return _kernels().identity


def shared_library() -> ctypes.CDLL | None:
    """The library of the kernels, if there is one."""
    return _kernels().functions


def packed_form(spec: Sequence[int]) -> PackedForm | None:
    """The form of a product's packed weight; None if oneDNN has no fast kernel for it."""
    library, room, size = _kernels().functions, 64, -1
    while library is not None:
        numbers, count = (ctypes.c_int64 * room)(), ctypes.c_int64(room)
        size = library.sardonyx_onednn_plan(*_passed(spec), numbers, ctypes.byref(count))
        if count.value <= room:
            break
        room = count.value
    if size >= 0:
        return PackedForm(size, tuple(numbers[: count.value]) if count.value >= 0 else None)
    if library is not None:
        _LOG.debug(
            "oneDNN has no fast kernel for the product or convolution %s.", partial(str, spec)
        )
    return None


def pack(spec: Sequence[int], size: int, weight: Bytes) -> Bytes:
    """The weight in the form that the kernel of this product reads."""
    library = _kernels().functions
    packed, weight = zero_bytes(size), np.ascontiguousarray(weight)
    addresses = weight.ctypes.data, packed.ctypes.data
    if library is None or library.sardonyx_onednn_pack_now(*_passed(spec), *addresses, size):
        raise RuntimeError(f"oneDNN cannot pack a weight of shape {weight.shape}")
    return packed


def compute(kind: Kind, spec: Sequence[int], *arrays: Bytes | None) -> None:
    """Compute what the header of this kind of kernel says, with arrays in the order that it has.

    It writes to the last of them, and if it is of `ROWS` to the last three.
    """
    if _notes.calls is None:
        run(kind, _packed(spec), packed_addresses(arrays))
    else:
        _notes.calls.append(KernelCall(kind, tuple(spec), arrays))


def run(kind: Kind, packed_spec: bytes, addresses: bytes) -> None:
    """Compute the same for arrays at these addresses, as `packed_addresses` returns them."""
    if _notes.calls is not None:
        return
    library = _kernels().functions
    count = len(packed_spec) // _BYTES_OF_NUMBER
    if library is None or library.sardonyx_onednn_compute_now(kind, packed_spec, count, addresses):
        raise RuntimeError(f"the kernels cannot compute {kind.name.lower()} of these shapes")


@contextmanager
def only_noted(*, to_join: bool = False) -> Iterator[list[KernelCall]]:
    """A context in which kernels that this thread calls compute nothing, and a list of calls.

    Of those that are called together it has none. If the calls are `to_join`, kernels are called
    for small arrays, too.
    """
    before = _notes.calls, _notes.will_be_joined
    _notes.calls, _notes.will_be_joined = [], to_join
    try:
        yield _notes.calls
    finally:
        _notes.calls, _notes.will_be_joined = before


@contextmanager
def generating(kernels: Iterable[tuple[Kind, Sequence[int]]]) -> Iterator[None]:
    """A context in which other threads generate the code of products and chains.

    It ends when all of them have theirs.
    """
    library, generation = _kernels().functions, None
    numbers = [number for kind, spec in kernels for number in (kind, len(spec), *spec)]
    if library is not None and numbers:
        generation = library.sardonyx_onednn_generate(packed_numbers(numbers), len(numbers))
    try:
        yield
    finally:
        if library is not None and generation is not None:
            library.sardonyx_onednn_generated(generation)


def will_be_joined() -> bool:
    """Whether this thread's calls are noted to run in one call, where each takes little time."""
    return _notes.will_be_joined


def suppress(spec: Sequence[int], found: Bytes, boxes: Bytes, scores: Bytes) -> int:
    """Write which boxes are selected, and return how many, as kernels/suppression.h says."""
    library, count = _kernels().functions, -1
    if library is not None:
        addresses = map(address, (boxes, scores, found))
        count = int(library.sardonyx_onednn_suppress_now(*_passed(spec), *addresses))
    if count < 0:
        raise RuntimeError(f"the kernels cannot select among {boxes.shape[1]} boxes")
    return count


def is_loaded() -> bool:
    """Whether there are kernels, and somebody has needed them."""
    return bool(_asked_for) and _asked_for[0].functions is not None


def may_be_used() -> bool:
    """Whether there are kernels, or may be once somebody needs them."""
    return is_loaded() if _asked_for else is_installed()


def has_lanes() -> bool:
    """Whether there are kernels of rows, windows and boxes, and somebody has needed kernels."""
    return bool(_asked_for) and _asked_for[0].have_lanes


def release() -> None:
    """Free the memory that is retained between calls, if the kernels are loaded."""
    # Whoever has loaded no kernels retains no memory.
    if is_loaded() and (library := _kernels().functions) is not None:
        library.sardonyx_onednn_release()


def _passed(spec: Sequence[int]) -> tuple[bytes, int]:
    return _packed(spec), len(spec)


def _packed(spec: Sequence[int]) -> bytes:
    return _packed_numbers(tuple(spec))


@lru_cache(1024)
def _packed_numbers(spec: tuple[int, ...]) -> bytes:
    return packed_numbers(spec)


def packed_numbers(spec: Sequence[int]) -> bytes:
    """The numbers as C has them; `ctypes` would take five times as long to make an array."""
    return struct.pack(f"{len(spec)}q", *spec)


def packed_addresses(arrays: Sequence[Any]) -> bytes:
    """Where the elements of each array begin, as C has it: null for none."""
    return struct.pack(f"{len(arrays)}Q", *[address(array) or 0 for array in arrays])


def address(array: Any) -> Any:
    """Where the elements begin, as an integer; None for no array.

    NumPy's `ctypes.data` would take eight times as long, and a chain has a hundred weights.
    """
    return None if array is None else _pointer_at(id(array) + _POINTER_WITHIN_ARRAY).value


def _kernels() -> Kernels:
    """The kernels, loaded by the first thread that asks."""
    if not _asked_for:
        with postponed(), _loading:
            if not _asked_for:
                _asked_for.append(_loaded())
    return _asked_for[0]


def _loaded() -> Kernels:
    try:
        library, identity = built()
    except BuildError as error:
        return _left_out(str(error), is_chosen=error.is_chosen)
    except OSError as error:
        return _left_out(f"its library does not load ({error})")
    if library.sardonyx_onednn_series() != SERIES:
        return _left_out(f"it is not of the series {SERIES}")
    _declare(library)
    _LOG.debug("oneDNN's kernels are loaded, build %s.", identity)
    return Kernels(library, identity, have_lanes=bool(library.sardonyx_onednn_has_lanes()))


def _left_out(fault: str, *, is_chosen: bool = False) -> Kernels:
    """No kernels; a user should act, unless somebody chose to have none."""
    level = INFO if is_chosen else WARNING
    text = "Products and convolutions run on XLA's own kernels, not on oneDNN's, because %s."
    _LOG.log(level, text, fault, reason=fault)
    return Kernels(fault=fault)


def _declare(library: ctypes.CDLL) -> None:
    library.sardonyx_onednn_release.restype = None
    library.sardonyx_onednn_has_lanes.restype = ctypes.c_int64
    spec = (ctypes.c_char_p, ctypes.c_int64)
    library.sardonyx_onednn_plan.restype = ctypes.c_int64
    library.sardonyx_onednn_plan.argtypes = (*spec, *[ctypes.POINTER(ctypes.c_int64)] * 2)
    library.sardonyx_onednn_pack_now.restype = ctypes.c_int64
    library.sardonyx_onednn_generate.restype = ctypes.c_void_p
    library.sardonyx_onednn_generate.argtypes = spec
    library.sardonyx_onednn_generated.restype = None
    library.sardonyx_onednn_generated.argtypes = (ctypes.c_void_p,)
    pointers = ctypes.c_void_p, ctypes.c_void_p
    library.sardonyx_onednn_pack_now.argtypes = (*spec, *pointers, ctypes.c_int64)
    library.sardonyx_onednn_compute_now.restype = ctypes.c_int64
    library.sardonyx_onednn_compute_now.argtypes = (ctypes.c_int64, *spec, ctypes.c_void_p)
    library.sardonyx_onednn_suppress_now.restype = ctypes.c_int64
    library.sardonyx_onednn_suppress_now.argtypes = (*spec, *[ctypes.c_void_p] * 3)

"""What people call: loading a model, and running one operator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.arguments import check_choice, check_count, check_switches, check_text
from sardonyx.backends import backend_of, find, limit_memory
from sardonyx.backends.base import Backend
from sardonyx.backends.host_memory import keep_freed
from sardonyx.backends.private_folder import path_of
from sardonyx.errors import InvalidInput
from sardonyx.exporting.api import load_exported
from sardonyx.exporting.archive import is_archive
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.loading.custom_ops import with_ops
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import Readable, read_model
from sardonyx.graph.loading.single_op import single_node
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.shared import Options
from sardonyx.graph.standard.schema import newest_version
from sardonyx.ops.definition import Op
from sardonyx.progress import compiling

PRECISIONS = ("highest", "high", "bfloat16")
# Of one operator: Split has the most, one for each part.
MOST_OUTPUTS = 2**16


def load(  # noqa: PLR0913  (each is a choice of its own)
    source: Readable,
    *,
    backend: str | Backend | None = None,
    device: Any = None,
    jit: bool = True,
    strict: bool = True,
    cache: str | os.PathLike[str] | None = None,
    most_signatures: int = 256,
    buckets: Mapping[str, Sequence[int] | str] | None = None,
    memory_fraction: float | None = None,
    keep_memory: bool = False,
    precision: str = "highest",
    checked: bool = False,
    max_bytes: int | None = None,
    ops: Iterable[Op[Any]] = (),
) -> Model:
    """Load an ONNX model from a path, bytes, a file object or a `ModelProto`.

    What `sardonyx.export` wrote is known by its content, and loaded too: as an `ExportedModel`,
    which is called like a `Model`. Of the choices below only `device` is left then.

    `backend` is "jax", "cupy" or "numpy", or a `Backend` of your own; None takes the best that is
    present, and `model.backend` says which. `device` is "cpu", "cuda", "cuda:1", "tpu" or one of
    JAX's own devices. With `jit=False` nothing is compiled, and operators run one by one, which is
    slow but easy to follow. With `strict=False` types that an operator's schema does not list are
    let through.

    `cache` names a folder in which recordings and compiled programs are kept for the next process.
    Compiled programs are machine code, which JAX unpickles, so that the folder must be your own: it
    is created for you alone (mode 0700), and one that belongs to another user, or that others can
    write to, is refused. It holds at most 4 GiB; what was used longest ago goes first.

    A model keeps the programs of `most_signatures` kinds of calls, those used last.

    `buckets` gives named free dimensions a few sizes, as `{"batch": [1, 8, 32]}`, or "powers of
    two". Calls are padded up to the next one (or multiple of the last), run by one program for all
    of them, and cut to what they would have been. That no padding can change a result is proved
    from the model's program; if it cannot be, a call is refused with the node that is in the way.
    A size of 1, and calls without data, are run as they are. Sums may be taken in another order.
    NumPy and CuPy compile nothing, so that there is nothing to do for them, and calls inside of a
    caller's `jit` are its own.

    `memory_fraction` says how much of a GPU's memory the library may take, of which JAX otherwise
    takes three quarters at once; JAX must not have been used before.

    With `keep_memory` what calls free on the host stays with the process. Otherwise temporaries of
    more than 32 MB are asked of the system and cleared at every call, which takes a third of the
    time of a MobileNet at batch 8. It holds for all that this process frees from then on, whoever
    frees it, and on Linux with GNU's C library alone.

    `precision` says how exactly JAX multiplies and convolves float32: "highest" is float32 itself;
    "high" is TF32 on GPUs and nearly float32 on TPUs; with "bfloat16" factors are rounded to that
    type, and sums are float32. NumPy and CuPy are always exact.

    With `checked` a call whose data the standard calls an error, such as an index out of range, is
    refused by the node's name on every backend. Otherwise JAX and CuPy read the nearest element,
    and write nothing. Each call then waits until its program has run.

    `max_bytes` is the most that one value may take which the model makes of little, such as a
    `Range` over 2**40; all that are needed at once may take twice as much. By default it is 4 GiB,
    or a quarter of the memory that this process may have. A value may always be as large as the
    inputs and weights together.

    `ops` are operators of your own, made with `@sardonyx.op`, for this model alone; they come
    before the standard's of the same name.

    >>> import sardonyx
    >>> sardonyx.load("examples/encoder.onnx", backend="numpy").backend
    'numpy'
    """
    check_switches(jit=jit, strict=strict, keep_memory=keep_memory, checked=checked)
    check_count(most_signatures, "A model keeps at least one signature")
    check_choice("precision", precision, PRECISIONS)
    if is_archive(source):
        _require_unchecked(checked)
        exported: Model = load_exported(source, backend, device)
        return exported
    proto, file = read_model(source)
    if max_bytes is not None and not (isinstance(max_bytes, int) and max_bytes > 0):
        raise InvalidInput(f"The limit max_bytes is a number of bytes, not {max_bytes!r:.100}.")
    loaded = replace(with_ops(load_source(proto, file), ops), max_bytes=max_bytes)
    if memory_fraction is not None:
        limit_memory(backend, memory_fraction)
    if keep_memory:
        keep_freed()
    chosen = backend if isinstance(backend, Backend) else find(backend, device)
    if precision != "highest":
        chosen = chosen.with_precision(precision)
    if checked:
        chosen = _with_checks(chosen, is_padded=jit and bool(buckets))
    if cache is not None:
        chosen = chosen.with_cache(path_of(cache))
    sizes = Sizes.of(buckets, loaded.graph.inputs)
    options = Options(strict, most_signatures, sizes, watch=compiling)
    model = Model(loaded, chosen if jit else chosen.uncompiled(), options)
    model.audit()
    return model


def _require_unchecked(checked: bool) -> None:
    if checked:
        raise InvalidInput(
            "An exported program checks no data: load the ONNX model itself with checked=True."
        )


def _with_checks(backend: Backend, *, is_padded: bool) -> Backend:
    if is_padded and backend.padding() is not None:
        raise InvalidInput("Padded calls check no data: leave out checked=True, or the buckets.")
    checking: Backend = backend.with_checks()
    return checking


def run_op(
    op_type: str,
    /,
    *inputs: Any,
    opset: int | None = None,
    domain: str = "",
    outputs: int = 1,
    backend: str | Backend | None = None,
    strict: bool = True,
    **attributes: Any,
) -> Any:
    """Run one operator on arrays of any library, at any opset (None: the newest).

    It runs on the library of the first array that is not NumPy's, or on the `backend` named.

    >>> import numpy as np, sardonyx
    >>> sardonyx.run_op("Softmax", np.zeros((1, 2), np.float32), axis=-1, opset=13)
    array([[0.5, 0.5]], dtype=float32)
    """
    check_text(op_type=op_type, domain=domain)
    check_switches(strict=strict)
    check_count(outputs, f"An operator has 1 to {MOST_OUTPUTS:,} outputs", MOST_OUTPUTS)
    version = (newest_version(domain) or 1) if opset is None else opset
    check_count(version, "An opset is a number from 1 on")
    arrays = [None if value is None else _as_array(value) for value in inputs]
    source = single_node(op_type, arrays, attributes, domain, version, outputs)
    audit(source, strict=strict)
    given = [array for array in arrays if array is not None]
    foreign = next((a for a in given if not isinstance(a, (np.ndarray, list))), None)
    if backend is None:
        backend = find("numpy") if foreign is None else backend_of(foreign)
    chosen = backend if isinstance(backend, Backend) else find(backend)
    return Model(source, chosen, Options(strict))(*given)


def _as_array(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if isinstance(value, list) and value and hasattr(value[0], "shape"):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidInput(f"An input is no array: {error}.") from None
    return array.astype(object) if array.dtype.kind in "UST" else array

"""`sardonyx.load` and `sardonyx.run_op`: a model, and one operator."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from sardonyx.arguments import (
    check_choice,
    check_count,
    check_level,
    check_switches,
    check_text,
    precision_level,
)
from sardonyx.backends import backend_of, find, limit_memory
from sardonyx.backends.base import Backend
from sardonyx.backends.host_memory import keep_freed
from sardonyx.backends.private_folder import path_of
from sardonyx.display.units import counted
from sardonyx.errors import InvalidInput
from sardonyx.exporting.api import load_exported
from sardonyx.exporting.archive import is_archive
from sardonyx.graph.buckets.sizes import AUTOMATIC, Buckets, Sizes
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Graph
from sardonyx.graph.loading.custom_ops import with_ops
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import Readable, read_model
from sardonyx.graph.loading.single_op import single_node
from sardonyx.graph.model.model import Model, audited
from sardonyx.graph.model.shared import Options
from sardonyx.graph.programs.compiler import MODES
from sardonyx.graph.standard.operators import newest_version
from sardonyx.limits import DEFAULT as DEFAULT_LIMITS
from sardonyx.limits import Limits
from sardonyx.logs import Log
from sardonyx.ops.definition import Op
from sardonyx.progress import compiling

_LOG = Log("loading")
# Nobody has so many processors for one call; each number of threads has a separate pool.
MOST_THREADS = 1024
# Of one operator: Split has the most, one for each part.
MOST_OUTPUTS = 2**16


def load(  # noqa: PLR0913  (each is a choice of its own)
    source: Readable,
    *,
    backend: str | Backend | None = None,
    device: Any = None,
    jit: bool = True,
    compile: str | None = None,  # noqa: A002  (the word for it)
    strict: bool | None = None,
    cache: str | os.PathLike[str] | None = None,
    max_signatures: int = 256,
    buckets: Buckets | str | None = AUTOMATIC,
    memory_fraction: float | None = None,
    retain_freed_memory: bool = False,
    precision: str = "highest",
    checked: bool = False,
    rewrites: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    threads: int | None = None,
    ops: Iterable[Op[Any]] = (),
) -> Model | Any:
    """Load an ONNX model from a path, bytes, a file object or a `ModelProto`.

    Weights beside the model file, and those inside a file of 64 MiB or more, are read when programs
    need them. Such a file may be deleted, or replaced by renaming another one, but must not be
    overwritten while its model is in use.

    Archives that `sardonyx.export` wrote are detected, and loaded as `ExportedModel`, which is
    called like a `Model`. Of the options only `device`, `memory_fraction` and
    `retain_freed_memory` apply to them; any other is an error. Type checkers take the result for a
    `Model`; after `assert isinstance(program, sardonyx.types.ExportedModel)` they know better.

    `backend` is "jax", "cupy" or "numpy", or a `Backend` of your own; None chooses the best that is
    present, and `model.backend` names it. `device` is "cpu", "cuda", "cuda:1", "tpu" or one of
    JAX's own devices. With `jit=False` nothing is compiled: operators run one by one, which is slow
    but easy to follow.

    With `compile="background"`, the default on CPUs and, if CuPy is installed, on CUDA, no call
    waits for the compiler. On a CPU a new signature runs step by step, on NumPy and on oneDNN's
    kernels if they are installed; when it comes again, it is compiled in another thread, and the
    compiled program takes over as soon as it is ready. Nothing is compiled for calls that are
    nearly all kernels of oneDNN, as a program would call the same ones. On CUDA CuPy runs it
    meanwhile, unless `memory_fraction` is set. Results of the two differ by rounding. With "now"
    each call runs compiled programs, and the first one waits; `model.compile(...)` compiles ahead
    of it. With "never" only `model.compile(...)` does: steps run on NumPy or CuPy, and on a CPU
    repeated calls run them as one function of Python. Programs for sizes that change are compiled
    in the background as well, except with explicit `buckets`, and where sizes grow with each call
    of a model whose steps cannot be derived. TPUs have nothing to run before, so "now" always holds
    there, as it does with `checked`, and for operators of your own.

    By default a file may deviate from the standard as files of real exporters do, in the ways that
    docs/accepted.md lists. `strict=True` refuses all of these. With `strict=False` they are
    accepted, and operators accept types that their schemas do not list.

    `cache` names a folder for recordings and compiled programs, or on CuPy compiled kernels, which
    the next process uses again. By default, on CPUs, its first calls run step by step while JAX is
    imported and the programs are loaded. They are machine code, and JAX unpickles its programs, so
    the folder must be yours alone: it is created with mode 0700, and a folder that another user
    owns or can write to is refused. It holds at most 4 GiB; the entries that were not used for
    longest are deleted first.

    `cache` may also be a file that `sardonyx compile` wrote. The signatures in it are neither
    traced nor compiled; others are, and the file stays as it is. Loading it runs code, so it must
    be yours or root's, and writable by nobody else; take it only from people whose packages you
    would install. A damaged file is an error. A file for another model, other options, another
    kind of machine or other versions is not used, with a warning that says which.

    A model keeps programs for at most `max_signatures` signatures, those used last.

    With `buckets="auto"` a dimension that has had three sizes, or grows by one with each call, gets
    buckets: calls are padded to the next of a few sizes, at most to one and a half times their own
    (four times for a dimension that grows), so that they share one program. Results are cut to
    their true size, and the padding is proved not to change them; calls for which there is no proof
    run programs of their own. From the second call of a bucket on a new size is neither traced nor
    compiled. The order of sums may differ. With None each size is traced and compiled. On a CPU one
    function for all sizes runs such calls step by step, and programs are compiled where that
    probably saves time. The first call of a large model on oneDNN's kernels begins to
    look for that in the background, if the file names one size that may change: `stats()` counts
    these traces, too.

    A dict lists the sizes of free dimensions, as in `{"batch": [1, 8, 32]}`, or "powers of two":
    calls are padded to the next size from the first call on (or to a multiple of the last), and if
    a proof fails, the call is refused with the node that prevents it. A dimension without a name is
    written as an input and an axis, as in `{("X", 0): [1, 8, 32]}`. Calls of size 1 and calls
    without data are not padded. For calls inside of a caller's `jit` this has no effect. NumPy and
    CuPy do not compile, so nothing is padded there, whatever the dict lists: a few traces in the
    background say what those of other sizes would say, and only with None each size is traced.

    `memory_fraction` is the part of a GPU's memory that the library may reserve; JAX reserves three
    quarters by default. It must be set before JAX is first used.

    With `retain_freed_memory` the process keeps the host memory that calls free. Otherwise it keeps
    up to 128 MB, from the first program on a CPU that makes large arrays, and up to 256 MB between
    oneDNN's products; the system provides and clears anew at every call what exceeds this. Both
    affect the whole process from then on, and work only on Linux with the GNU C library. What
    `GLIBC_TUNABLES` says of `malloc` holds in any case.

    `precision` is how exactly float32 is multiplied and convolved: "highest" or "float32" is
    float32 itself; "high" or "bfloat16_3x" is nearly that on TPUs, and allows TF32 on GPUs, which
    "tensorfloat32" takes; "default" is what JAX does by default; "bfloat16" rounds the factors to
    that type. Sums are float32's, and CPUs are exact except with "bfloat16" on JAX; see
    docs/precision.md.

    With `checked`, data that the standard calls an error, such as an index out of range, raises an
    error that names the node, on every backend. Otherwise JAX and CuPy read the nearest element,
    and write nothing. A checked call waits until its program has run.

    With `rewrites=False` programs have the steps of the graph: none are fused, and weights are
    neither combined nor packed for kernels. Such programs are easy to compare with the graph, but
    slower; results agree to rounding. `to_jax`, `export` and `shard` keep a model's choice.

    `limits` bounds the memory and the nodes that a small file may ask for; see `Limits`.

    `threads` is the maximum number of CPU threads that work on a call of this model; None leaves
    it to the libraries, which take all processors. Compiling uses other threads. On JAX a model
    with `threads` has a thread pool of that size, which it shares with others of the same number:
    `threads=1` is one thread. JAX arrays are copied to it and back, so that nothing is donated, and
    inside of a caller's `jit` it has no effect. NumPy's products have one number of threads for the
    process: while a call with a limit runs, the smallest limit holds for all of them. GPUs, TPUs,
    `jit=False` on JAX and backends of your own refuse it; `to_jax`, `export` and `shard` do not
    keep it.

    `ops` are operators of your own, defined with `@sardonyx.op`, for this model alone. They take
    precedence over standard operators of the same name.

    >>> import sardonyx
    >>> sardonyx.load("examples/encoder.onnx", backend="numpy").backend
    'numpy'
    """
    check_switches(jit=jit, checked=checked, rewrites=rewrites)
    check_level(strict)
    check_switches(retain_freed_memory=retain_freed_memory)
    check_count(max_signatures, "A model keeps at least one signature")
    level = precision_level(precision)
    if compile is not None:
        check_choice("compile", compile, MODES)
    if threads is not None:
        check_count(threads, f"A model uses 1 to {MOST_THREADS:,} threads", MOST_THREADS)
    if not isinstance(limits, Limits):
        raise InvalidInput(f"'limits' is {limits!r:.100}: pass a sardonyx.Limits.")
    if is_archive(source):
        _refuse_for_archives(
            jit=jit,
            compile=compile,
            strict=strict,
            cache=cache,
            max_signatures=max_signatures,
            buckets=buckets,
            precision=precision,
            checked=checked,
            rewrites=rewrites,
            limits=limits,
            threads=threads,
            ops=ops,
        )
        _set_memory("jax", memory_fraction, retains=retain_freed_memory)
        exported = load_exported(source, backend, device)
        _LOG.info("Loaded an exported program for %s.", exported.backend)
        return exported
    start = time.perf_counter()
    bare = load_source(*read_model(source))
    bare = replace(bare, limits=limits, rewrites=bool(rewrites), to_the_letter=strict is True)
    loaded = with_ops(bare, ops)
    _set_memory(backend, memory_fraction, retains=retain_freed_memory)
    chosen = backend if isinstance(backend, Backend) else find(backend, device)
    if level != "highest":
        chosen = chosen.with_precision(level)
    if not jit:
        chosen = chosen.uncompiled()
    if threads is not None:
        chosen = chosen.with_threads(int(threads))
    if checked:
        buckets = None if buckets == AUTOMATIC else buckets
        chosen = _with_checks(chosen, is_padded=jit and bool(buckets))
    if cache is not None:
        chosen = chosen.with_cache(path_of(cache))
    sizes = Sizes.of(buckets, loaded.graph.inputs)
    options = Options(
        strict is not False,
        max_signatures,
        sizes,
        watch=compiling,
        checked=checked,
        compile=compile,
    )
    model = audited(Model(loaded, chosen, options))
    _note_loaded(loaded.graph, model.backend, time.perf_counter() - start)
    return model


def _note_loaded(graph: Graph, backend: str, seconds: float) -> None:
    nodes, weights = len(graph.nodes), len(graph.initializers)
    size = f"{counted(nodes, 'node')} and {counted(weights, 'initializer')}"
    text, name = "Loaded %s for %s in %.3f s: %s.", graph.name or "graph"
    _LOG.info(text, name, backend, seconds, size, backend=backend, seconds=seconds)


def _refuse_for_archives(**options: Any) -> None:
    """Refuse the options of `load` that an exported program cannot follow any more."""
    defaults = {name: each.default for name, each in signature(load).parameters.items()}
    for name, value in options.items():
        default = defaults[name]
        is_empty = not value and value is not False and (not default or default == AUTOMATIC)
        if value != default and not is_empty:
            raise InvalidInput(
                f"'{name}' has no effect on an exported program, which is compiled as it was "
                f"exported: leave it out, or load the ONNX model itself with {name}=."
            )


def _set_memory(backend: str | Backend | None, fraction: float | None, *, retains: bool) -> None:
    if fraction is not None:
        limit_memory(backend, fraction)
    if retains:
        keep_freed()


def _with_checks(backend: Backend, *, is_padded: bool) -> Backend:
    if is_padded and backend.padding() is not None:
        raise InvalidInput("Padded calls are never checked: leave out checked=True, or buckets=.")
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
    strict: bool | None = None,
    **attributes: Any,
) -> Any:
    """Run one operator on arrays of any library, at any opset; None is the newest.

    It runs on the library of the first array that is not NumPy's, unless you name a `backend`.

    >>> import numpy as np, sardonyx
    >>> sardonyx.run_op("Softmax", np.zeros((1, 2), np.float32), axis=-1, opset=13)
    array([[0.5, 0.5]], dtype=float32)
    """
    check_text(op_type=op_type, domain=domain)
    check_level(strict)
    check_count(outputs, f"An operator has 1 to {MOST_OUTPUTS:,} outputs", MOST_OUTPUTS)
    version = (newest_version(domain) or 1) if opset is None else opset
    check_count(version, "An opset is a number from 1 on")
    arrays = [None if value is None else _as_array(value) for value in inputs]
    results = [f"output{i}" for i in range(outputs)]
    source = single_node(op_type, arrays, attributes, domain, version, results)
    source = replace(source, to_the_letter=strict is True)
    audit(source, strict=strict is not False)
    inputs_present = [array for array in arrays if array is not None]
    foreign = next((a for a in inputs_present if not isinstance(a, (np.ndarray, list))), None)
    if backend is None:
        backend = find("numpy") if foreign is None else backend_of(foreign)
    chosen = backend if isinstance(backend, Backend) else find(backend)
    return Model(source, chosen, Options(strict is not False))(*inputs_present)


def _as_array(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic):
        return value
    if isinstance(value, list) and value and hasattr(value[0], "shape"):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidInput(f"An input is not a readable array: {error}. Pass an array.") from None
    return array.astype(object) if array.dtype.kind in "UST" else array

"""The runtimes that are compared, each opened in a process of its own (`worker.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.models import Feeds
from benchmarks.roofline import Work, work_of, work_of_jitted
from benchmarks.settling import settle


@dataclass(frozen=True)
class Job:
    """What one process is to run."""

    peer: str
    network: str
    batch: int
    threads: int
    folder: str
    cache: str | None = None
    gpu: bool = False

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"{self.network}.onnx"


class Opened(NamedTuple):
    """A call that returns when its results are there, and the way of one of them to NumPy."""

    call: Callable[[], Sequence[Any]]
    fetch: Callable[[Any], Any] = np.asarray
    # What the compiler counts in the program, for the roofline.
    work: Callable[[], Work] | None = None
    # Waits until calls are as fast as they will be, if the first result does not.
    settle: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    # Imported before the clock runs: always, and for a run on a GPU.
    modules: tuple[str, ...]
    open: Callable[[Job, Feeds], Opened]
    gpu_modules: tuple[str, ...] = field(default=(), kw_only=True)
    # Reads the ONNX file, so that its load and its memory can be compared.
    loads: bool = True
    # Keeps what it compiled for the next process.
    caches: bool = False
    on_cpu: bool = True
    on_gpu: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    # Compiles for so long that what it compiled is kept from one run to the next.
    slow: bool = False


def open_sardonyx(job: Job, feeds: Feeds, **options: Any) -> Opened:
    import sardonyx  # noqa: PLC0415

    device = "cuda" if job.gpu else None
    model = sardonyx.load(job.path, backend="jax", device=device, cache=job.cache, **options)
    if not job.gpu:
        return Opened(lambda: model.run(None, feeds), settle=lambda: settle(model, feeds))
    import jax  # noqa: PLC0415

    placed = {name: jax.device_put(array) for name, array in feeds.items()}
    return Opened(
        lambda: jax.block_until_ready(_several(model(**placed))), work=lambda: work_of(model, feeds)
    )


def open_sardonyx_on_cupy(job: Job, feeds: Feeds) -> Opened:
    import cupy  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    model = sardonyx.load(job.path, backend="cupy")
    placed = {name: cupy.asarray(array) for name, array in feeds.items()}

    def call() -> Sequence[Any]:
        results = _several(model(**placed))
        cupy.cuda.get_current_stream().synchronize()
        return results

    return Opened(call, cupy.asnumpy)


def open_onnxruntime(job: Job, feeds: Feeds) -> Opened:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    if not job.gpu:
        session = onnxruntime.InferenceSession(job.path, options, ["CPUExecutionProvider"])
        return Opened(lambda: session.run(None, feeds))
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ImportError("this onnxruntime was built without CUDA")
    # Its default is TF32, where the others compute in float32.
    provider = ("CUDAExecutionProvider", {"use_tf32": "0"})
    session = onnxruntime.InferenceSession(job.path, options, [provider])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda"))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def call() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        return binding.get_outputs()

    return Opened(call, lambda value: value.numpy())


def open_torch(job: Job, feeds: Feeds) -> Opened:
    return _torch(job, feeds, lambda module: module)


def open_torch_compiled(job: Job, feeds: Feeds) -> Opened:
    import torch  # noqa: PLC0415

    return _torch(job, feeds, lambda module: torch.compile(module, dynamic=False))


def _torch(job: Job, feeds: Feeds, prepared: Callable[[Any], Any]) -> Opened:
    import torch  # noqa: PLC0415

    from benchmarks.exports import module  # noqa: PLC0415

    torch.set_num_threads(job.threads)
    # As the others: float32, and no TF32 in its place.
    torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if job.gpu else "cpu"
    network = prepared(module(job.network).to(device))
    arguments = [torch.from_numpy(array).to(device) for array in feeds.values()]

    @torch.no_grad()
    def call() -> Sequence[Any]:
        results = _several(network(*arguments))
        if job.gpu:
            torch.cuda.synchronize()
        return results

    return Opened(call, lambda tensor: tensor.numpy(force=True))


def open_openvino(job: Job, feeds: Feeds) -> Opened:
    import openvino  # noqa: PLC0415

    core = openvino.Core()
    if job.cache:
        core.set_property({"CACHE_DIR": job.cache})
    model = core.read_model(job.path)
    model.reshape({name: array.shape for name, array in feeds.items()})
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(model, "CPU", settings)

    def call() -> Sequence[Any]:
        results = compiled(feeds, share_inputs=True, share_outputs=True)
        return [results[output] for output in compiled.outputs]

    return Opened(call)


def open_jaxonnxruntime(job: Job, feeds: Feeds) -> Opened:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    import onnx  # noqa: PLC0415

    jnp.clip = _clip_of_old(jnp.clip)
    from jaxonnxruntime import call_onnx, config  # noqa: PLC0415

    # Sizes that it computes from the inputs' shapes are refused otherwise.
    config.update("jaxort_only_allow_initializers_as_static_args", False)
    inputs = list(feeds.values())
    function, weights = call_onnx.call_onnx_model(onnx.load(job.path), inputs)
    placed = jax.device_put(weights)
    jitted = jax.jit(function)
    return Opened(lambda: jax.block_until_ready(jitted(placed, inputs)))


def _clip_of_old(clip: Callable[..., Any]) -> Callable[..., Any]:
    """`jnp.clip` with the keywords that its newest release still passes, and JAX has dropped."""

    def renamed(x: Any, *bounds: Any, **named: Any) -> Any:
        names = {"a_min": "min", "a_max": "max"}
        return clip(x, *bounds, **{names.get(name, name): value for name, value in named.items()})

    return renamed


def open_hand_written(job: Job, feeds: Feeds) -> Opened:
    import jax  # noqa: PLC0415

    from benchmarks.exports import module  # noqa: PLC0415
    from benchmarks.hand_written import NETWORKS  # noqa: PLC0415

    # Float32, as the others, where a GPU would take TF32.
    jax.config.update("jax_default_matmul_precision", "highest")
    network = NETWORKS[job.network]
    state = {name: tensor.numpy() for name, tensor in module(job.network).state_dict().items()}
    weights = jax.device_put(network.weights(state))
    jitted = jax.jit(network.forward)
    inputs = list(jax.device_put(tuple(feeds.values())) if job.gpu else feeds.values())
    return Opened(
        lambda: jax.block_until_ready(_several(jitted(weights, *inputs))),
        work=lambda: work_of_jitted(jitted, weights, *inputs),
    )


def _several(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else [results]


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("onnxruntime", "onnxruntime", ("onnxruntime",), open_onnxruntime),
        Peer(
            "sardonyx", "sardonyx", ("sardonyx",), open_sardonyx, caches=True, gpu_modules=("jax",)
        ),
        Peer(
            "sardonyx_keeping",
            "retain_freed_memory",
            ("sardonyx",),
            partial(open_sardonyx, retain_freed_memory=True),
            caches=True,
            on_gpu=False,
        ),
        Peer(
            "sardonyx_xla",
            "without oneDNN",
            ("sardonyx",),
            open_sardonyx,
            caches=True,
            on_gpu=False,
            environment={"SARDONYX_ONEDNN": "0"},
        ),
        Peer(
            "sardonyx_plain",
            "without rewrites",
            ("sardonyx",),
            partial(open_sardonyx, rewrites=False),
            caches=True,
            gpu_modules=("jax",),
        ),
        Peer(
            "sardonyx_cupy",
            "sardonyx on CuPy",
            ("cupy", "sardonyx"),
            open_sardonyx_on_cupy,
            on_cpu=False,
        ),
        Peer(
            "hand_written",
            "hand-written JAX",
            ("jax", "benchmarks.exports"),
            open_hand_written,
            loads=False,
        ),
        Peer("openvino", "OpenVINO", ("openvino",), open_openvino, caches=True, on_gpu=False),
        Peer("torch", "torch eager", ("benchmarks.exports",), open_torch, loads=False),
        Peer(
            "torch_compiled",
            "torch compiled",
            ("benchmarks.exports",),
            open_torch_compiled,
            loads=False,
            caches=True,
            slow=True,
        ),
        Peer(
            "jaxonnxruntime",
            "jaxonnxruntime",
            ("jax", "onnx"),
            open_jaxonnxruntime,
            on_gpu=False,
        ),
    )
}

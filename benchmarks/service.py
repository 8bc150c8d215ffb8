"""A service: threads that call one model with batches in random order, and reloads in between.

Run it: `python -m benchmarks.service`. All threads call the same model; a further thread loads it
anew and puts the new one in its place, as a service does when a model changes. Latencies are wall
times of single calls, the first ones and those during a reload included. Runtimes take turns, and
results are compared with onnxruntime's first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from rich.table import Table

import sardonyx
from benchmarks.results import console

EXAMPLES = Path(__file__).parents[1] / "examples"
LARGEST_BATCH = 64
BUCKETS = [1, 4, 16, 64]
# Of the largest magnitude, in float32.
TOLERANCE = 1e-4
CACHE = tempfile.TemporaryDirectory()

Feeds = Mapping[str, Any]
Call = Callable[[Feeds], Any]


class Service(NamedTuple):
    """A model, its calls, and the dimension that changes."""

    title: str
    content: bytes
    feeds: Callable[[int], Feeds]
    dimension: Any


def encoder() -> Service:
    content = (EXAMPLES / "encoder.onnx").read_bytes()

    def feeds(batch: int) -> Feeds:
        return {"x": np.random.default_rng(batch).normal(size=(batch, 16, 48)).astype(np.float32)}

    return Service("encoder", content, feeds, "batch")


def classifier(features: int = 30, classes: int = 10) -> Service:
    """A scaled logistic regression with names of classes, as skl2onnx writes it."""
    rng = np.random.default_rng(0)
    labels = [f"class {i}" for i in range(classes)]
    nodes = [
        helper.make_node("Scaler", ["X"], ["scaled"], domain="ai.onnx.ml",
                         offset=rng.normal(size=features).tolist(),
                         scale=rng.uniform(0.5, 2, features).tolist()),
        helper.make_node("LinearClassifier", ["scaled"], ["label", "scores"], domain="ai.onnx.ml",
                         coefficients=rng.normal(size=features * classes).tolist(),
                         intercepts=rng.normal(size=classes).tolist(), classlabels_strings=labels,
                         multi_class=1, post_transform="SOFTMAX"),
        helper.make_node("Normalizer", ["scores"], ["normed"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["normed"], ["probabilities"], domain="ai.onnx.ml",
                         classlabels_strings=labels),
    ]  # fmt: skip
    tensor, maps = onnx.TensorProto, helper.make_map_type_proto
    probabilities = maps(tensor.STRING, helper.make_tensor_type_proto(tensor.FLOAT, []))
    probabilities.map_type.value_type.tensor_type.ClearField("shape")
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("X", tensor.FLOAT, [None, features])],
        [
            helper.make_tensor_value_info("label", tensor.STRING, [None]),
            helper.make_value_info("probabilities", helper.make_sequence_type_proto(probabilities)),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(batch: int) -> Feeds:
        size = (batch, features)
        return {"X": np.random.default_rng(batch).normal(size=size).astype(np.float32)}

    return Service("classifier with names", proto.SerializeToString(), feeds, ("X", 0))


def images(side: int = 64) -> Service:
    """A small network of depthwise and pointwise convolutions, as MobileNet has them."""
    rng = np.random.default_rng(0)
    nodes, weights, name, channels = [], [], "x", 3
    for i, (count, stride) in enumerate([(32, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]):
        for kind, shape, options in (
            ("deep", (channels, 1, 3, 3),
             {"group": channels, "pads": [1] * 4, "strides": [stride] * 2}),
            ("point", (count, channels, 1, 1), {}),
        ):  # fmt: skip
            weight = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
            weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w_{kind}{i}"))
            inputs, name = [name, f"w_{kind}{i}"], f"c_{kind}{i}"
            nodes.append(helper.make_node("Conv", inputs, [name], **options))
            nodes.append(helper.make_node("Relu", [name], [f"r_{kind}{i}"]))
            name = f"r_{kind}{i}"
        channels = count
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    shape = ["batch", 3, side, side]
    value, kind = helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    ends = [value("x", kind, shape)], [value("y", kind, ["batch", channels, 1, 1])]
    graph = helper.make_graph(nodes, "images", *ends, weights)
    opsets = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def feeds(batch: int) -> Feeds:
        size = (batch, 3, side, side)
        return {"x": np.random.default_rng(batch).normal(size=size).astype(np.float32)}

    return Service("convolutions", content, feeds, "batch")


SERVICES = {"encoder": encoder, "classifier": classifier, "images": images}


# -- runtimes --------------------------------------------------------------------------------------


def in_onnxruntime(service: Service) -> Call:
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(
        service.content, options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: session.run(None, dict(feeds))


def as_loaded(service: Service) -> Call:
    """The defaults: nothing waits for the compiler, and the calls show which sizes change."""
    model = sardonyx.load(service.content)
    return lambda feeds: model.run(None, feeds)


def compiled_ahead(service: Service) -> Call:
    """With buckets, all of which are compiled before the model takes calls, or lie in a cache."""
    buckets: Any = {service.dimension: BUCKETS}
    model = sardonyx.load(service.content, buckets=buckets, cache=CACHE.name)
    shapes = [{n: a.shape for n, a in service.feeds(size).items()} for size in BUCKETS]
    model.compile(*shapes)
    for size in BUCKETS:
        model.run(None, service.feeds(size))
    return lambda feeds: model.run(None, feeds)


RUNTIMES: Mapping[str, Callable[[Service], Call]] = {
    "onnxruntime": in_onnxruntime,
    "sardonyx": as_loaded,
    "sardonyx, buckets compiled ahead": compiled_ahead,
}


# -- measuring -------------------------------------------------------------------------------------


class Latencies(NamedTuple):
    """Seconds of calls, from the shortest to the longest, and of the loads in between."""

    calls: Sequence[float]
    loads: Sequence[float]
    seconds: float
    # Of all processors, loads included.
    processor_seconds: float

    def at(self, percent: float) -> float:
        return self.calls[min(int(len(self.calls) * percent / 100), len(self.calls) - 1)]

    def row(self) -> list[str]:
        cells = [f"{self.at(percent) * 1e3:.2f}" for percent in (50, 90, 99, 100)]
        rate = f"{len(self.calls) / self.seconds:,.0f}"
        processor = f"{self.processor_seconds / len(self.calls) * 1e3:.2f}"
        return [*cells, rate, processor, " ".join(f"{load:.2f}" for load in self.loads)]


def measured(
    load: Callable[[Service], Call], service: Service, threads: int, seconds: float, reloads: int
) -> Latencies:
    """Call a service from so many threads for some time, and load its model anew meanwhile."""
    feeds = [service.feeds(batch) for batch in range(1, LARGEST_BATCH + 1)]
    start = time.perf_counter()
    current = [load(service)]
    loads = [time.perf_counter() - start]
    latencies: list[list[float]] = [[] for _ in range(threads)]
    failed: list[BaseException] = []
    begin, processor = time.perf_counter(), time.process_time()
    end = begin + seconds

    def client(number: int) -> None:
        draw = random.Random(number)
        order = list(feeds)
        try:
            while time.perf_counter() < end:
                draw.shuffle(order)
                for each in order:
                    called = time.perf_counter()
                    current[0](each)
                    done = time.perf_counter()
                    latencies[number].append(done - called)
                    if done > end:
                        break
        except BaseException as error:
            failed.append(error)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(threads)]
    for each in clients:
        each.start()
    for i in range(reloads):
        time.sleep(max(0.0, begin + seconds * (i + 1) / (reloads + 1) - time.perf_counter()))
        start = time.perf_counter()
        current[0] = load(service)
        loads.append(time.perf_counter() - start)
    for each in clients:
        each.join()
    taken, processor = time.perf_counter() - begin, time.process_time() - processor
    if failed:
        raise failed[0]
    return Latencies(sorted(each for one in latencies for each in one), loads, taken, processor)


def joined(parts: Sequence[Latencies]) -> Latencies:
    calls = sorted(each for part in parts for each in part.calls)
    loads = [each for part in parts for each in part.loads]
    seconds = sum(part.seconds for part in parts)
    return Latencies(calls, loads, seconds, sum(part.processor_seconds for part in parts))


def check(service: Service) -> None:
    """Compare the results of all runtimes for some sizes."""
    calls = {name: load(service) for name, load in RUNTIMES.items()}
    for batch in (1, 2, 3, 5, 8, 17, LARGEST_BATCH):
        feeds = service.feeds(batch)
        expected = calls["onnxruntime"](feeds)
        for name, call in calls.items():
            for _ in range(2):
                for found, wanted in zip(call(feeds), expected, strict=True):
                    _compare(found, wanted, f"{name}, {service.title}, batch {batch}")


def _compare(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, list):
        assert [list(one) for one in found] == [list(one) for one in expected], where
        found, expected = ([list(one.values()) for one in each] for each in (found, expected))
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind in "OU":
        assert found.tolist() == expected.tolist(), where
    else:
        most = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, atol=most, rtol=0, err_msg=where)


def shown(title: str, rows: Mapping[str, Latencies]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("runtime")
    percentiles = ("p50, ms", "p90, ms", "p99, ms", "max, ms")
    for name in (*percentiles, "calls/s", "CPU ms/call", "loads, s"):
        table.add_column(name, justify="right")
    for name, latencies in rows.items():
        table.add_row(name, *latencies.row())
    return table


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.service", description=__doc__)
    parser.add_argument("services", nargs="*", default=list(SERVICES), help=", ".join(SERVICES))
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="per runtime and round")
    parser.add_argument("--reloads", type=int, default=2, help="per round")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    for name in options.services:
        service = SERVICES[name]()
        check(service)
        parts: dict[str, list[Latencies]] = {runtime: [] for runtime in RUNTIMES}
        for _ in range(options.rounds):
            for runtime, load in RUNTIMES.items():
                taken = measured(load, service, options.threads, options.seconds, options.reloads)
                parts[runtime].append(taken)
        title = f"{service.title}: {options.threads} threads, batches of 1 to {LARGEST_BATCH}"
        console().print(shown(title, {name: joined(each) for name, each in parts.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])

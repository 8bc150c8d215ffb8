"""The process that compiles: each way in which a job can end, and what is said of programs."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.targets.jobs import FORMS, SHARDED, FunctionJob, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.records import (
    ABORTED,
    COMPILED,
    FAILED,
    REFUSED,
    TIMED_OUT,
    Facts,
    Record,
    worst,
)
from sardonyx.targets.worker import Worker
from tests.targets import functions

pytestmark = pytest.mark.aot

F32 = np.dtype(np.float32)
TARGETS = ("v5e", "h100")
ENCODER = "examples/encoder.onnx"


def compiled(worker: Worker, function: Any, *specs: Spec, target: str = "v5e") -> Facts:
    record = worker.run(FunctionJob(function, specs, named(target)))
    assert record.outcome == COMPILED, record.reason
    (program,) = record.programs
    assert program.facts is not None
    return program.facts


def model(text: str) -> bytes:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}')
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("function", "outcome", "reason"),
    [
        (functions.softmax, COMPILED, ""),
        (functions.raising, FAILED, "it does not"),
        (functions.refusing, REFUSED, "The platform has no such thing: pass another."),
        (functions.aborting, ABORTED, "while it compiled aborting"),
        (functions.killed, ABORTED, "signal 9"),
    ],
)
def test_each_end_is_a_record_and_the_next_job_is_served(
    target_worker: Worker, function: Any, outcome: str, reason: str
) -> None:
    target = named("v5e")
    record = target_worker.run(FunctionJob(function, (Spec((8, 8), F32),), target))
    assert record.outcome == outcome
    assert reason in record.reason
    assert record.is_compiled == (outcome == COMPILED)
    again = target_worker.run(FunctionJob(functions.softmax, (Spec((8, 8), F32),), target))
    assert again.is_compiled


def test_a_job_that_takes_too_long_is_ended() -> None:
    pytest.importorskip("libtpu", reason="no libtpu; pip install 'sardonyx[aot]'")
    job = FunctionJob(functions.sleeping, (Spec((2,), F32),), named("v5e"))
    with Worker() as worker:
        worker.run(FunctionJob(functions.softmax, (Spec((2,), F32),), named("v5e")))
        start = time.monotonic()
        record = worker.run(job, limit=0.5)
        assert time.monotonic() - start < 20
    assert record.outcome == TIMED_OUT
    assert record.reason == "It took more than 0.5 seconds while it compiled sleeping."


def test_a_process_that_was_killed_between_jobs_is_replaced(target_worker: Worker) -> None:
    job = FunctionJob(functions.softmax, (Spec((4, 4), F32),), named("h100"))
    assert target_worker.run(job).is_compiled
    child = target_worker._child
    assert child is not None
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.wait()
    assert target_worker.run(job).is_compiled


def test_memory_beyond_the_chips_is_refused(target_worker: Worker) -> None:
    huge = Spec((70_000, 70_000), F32)
    record = target_worker.run(FunctionJob(functions.product, (huge, huge), named("v5e")))
    assert record.outcome == REFUSED
    assert "hbm" in record.reason.lower()


def test_functions_that_no_module_defines_are_refused(target_worker: Worker) -> None:
    with pytest.raises(InvalidInput, match="a function that a module defines"):
        target_worker.run(FunctionJob(lambda x: x, (Spec((2,), F32),), named("v5e")))


@pytest.mark.parametrize("target", TARGETS)
def test_facts_of_a_product(target_worker: Worker, target: str) -> None:
    x, y = Spec((32, 100), F32), Spec((100, 200), F32)
    facts = compiled(target_worker, functions.product, x, y, target=target)
    assert facts.products == {"float32 highest": 2 * 32 * 100 * 200}
    assert facts.plain_arguments == 4 * (32 * 100 + 100 * 200)
    assert facts.least_moved == facts.plain_arguments + 4 * 32 * 200
    assert facts.kernels >= 1
    assert facts.peak >= facts.arguments + facts.outputs
    assert not facts.host_calls
    assert not facts.wide_values
    assert not facts.collectives
    # A TPU's tiles have 128 columns.
    padded = {"v5e": 4 * (32 * 128 + 200 * 128), "h100": facts.plain_arguments}
    assert facts.arguments == padded[target]
    assert bool(facts.cycles) == (target == "v5e")


@pytest.mark.parametrize("target", TARGETS)
def test_products_of_a_scan_count_as_often_as_it_runs(target_worker: Worker, target: str) -> None:
    x, weights = Spec((16, 64), F32), Spec((10, 64, 64), F32)
    facts = compiled(target_worker, functions.layers, x, weights, target=target)
    assert facts.products == {"float32 default": 10 * 2 * 16 * 64 * 64}
    assert facts.loops == 1


@pytest.mark.parametrize("target", TARGETS)
def test_products_of_another_platform_do_not_count(target_worker: Worker, target: str) -> None:
    facts = compiled(target_worker, functions.by_platform, Spec((8, 8), F32), target=target)
    assert not facts.products


def test_work_of_64_bits_and_calls_of_the_host_are_seen(target_worker: Worker) -> None:
    numbers = Spec((64,), np.dtype(np.int32))
    assert compiled(target_worker, functions.widened, numbers, target="h100").wide_values["s64"]
    assert not compiled(target_worker, functions.softmax, Spec((8, 64), F32)).wide_values
    facts = compiled(target_worker, functions.called_back, Spec((8,), F32))
    assert facts.host_calls == ("recv", "send")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", TARGETS)
def test_models_in_each_form(target_worker: Worker, form: str, target: str) -> None:
    name = {"v5e": "v5e:2x2", "h100": "h100:4"}[target] if form == SHARDED else target
    job = ModelJob(ENCODER, named(name), form, {"x": (4, 8, 48)})
    record = target_worker.run(job)
    assert record.outcome == COMPILED, record.reason
    (program,) = record.programs
    assert program.facts is not None
    assert sum(program.facts.products.values()) > 1e6
    assert not record.host
    if form == SHARDED:
        assert "weights per device" in record.notes[0]


def test_a_divided_model_says_what_its_devices_exchange(target_worker: Worker) -> None:
    whole = target_worker.run(ModelJob(ENCODER, named("v5e"), shapes={"x": (4, 8, 48)}))
    job = ModelJob(
        ENCODER,
        named("v5e:2x2"),
        SHARDED,
        {"x": (4, 8, 48)},
        options={"rules": "tensor"},
        mesh={"model": 4},
    )
    record = target_worker.run(job)
    assert record.outcome == COMPILED, record.reason
    facts, before = record.programs[0].facts, whole.programs[0].facts
    assert facts is not None
    assert before is not None
    assert facts.plain_arguments < before.plain_arguments
    # Two products with a matrix divided by rows in each of the two layers, each of 4 x 8 x 48.
    (sums,) = [each for each in facts.collectives if each.kind == "all-reduce"]
    assert sums.nbytes >= 4 * 4 * 8 * 48 * 4 / 4
    assert sums.count >= 4


def test_steps_on_the_host_are_named(target_worker: Worker) -> None:
    source = model("g (float[4] x) => (float[n] y) { i = NonZero(x) j = Transpose(i) "
                   "y = GatherND(x, j) }")  # fmt: skip
    record = target_worker.run(ModelJob(source, named("v5e")))
    assert record.outcome == COMPILED, record.reason
    (host,) = record.host
    assert host.nodes == ("NonZero",)
    assert "depends on data" in host.reason
    assert "zeros" in record.notes[0]


def test_inputs_with_values_decide_the_program(target_worker: Worker) -> None:
    source = model("g (float[4] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    job = ModelJob(source, named("h100"), inputs={"s": np.array([2, 2])})
    record = target_worker.run(job)
    assert record.outcome == COMPILED, record.reason


@pytest.mark.parametrize(
    ("source", "shapes", "reason"),
    [
        ("nowhere.onnx", {}, "no file"),
        (ENCODER, {"z": (1,)}, "No input is called 'z'"),
        (ENCODER, {"x": (1, 8, 7)}, "'x'"),
        (model("g (float[2] x) => (float[2] y) { y = Bogus(x) }"), {}, "Bogus"),
        (b"no model", {}, "ONNX"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_wrong_with_a_model_is_a_sentence(
    target_worker: Worker, form: str, source: Any, shapes: dict[str, Any], reason: str
) -> None:
    name = "v5e:2x2" if form == SHARDED else "v5e"
    record = target_worker.run(ModelJob(source, named(name), form, shapes))
    assert record.outcome == REFUSED
    assert reason in record.reason


def test_inputs_beyond_this_machines_memory_take_none(target_worker: Worker) -> None:
    source = model("g (float[n, 1000000] x) => (float[n] y) { y = ReduceSum<keepdims=0>(x, a) }"
                   .replace("{", "<int64[1] a = {1}> {"))  # fmt: skip
    record = target_worker.run(ModelJob(source, named("v5p"), shapes={"x": (20_000, 1_000_000)}))
    assert record.outcome == COMPILED, record.reason
    facts = record.programs[0].facts
    assert facts is not None
    assert facts.plain_arguments == 4 * 20_000 * 1_000_000


def with_sparse_weight(folder: Path, rows: int, columns: int) -> Path:
    """A model of one product, whose weight is a file that takes no space."""
    weight = TensorProto(
        name="w",
        data_type=TensorProto.FLOAT,
        dims=[rows, columns],
        data_location=TensorProto.EXTERNAL,
    )
    weight.external_data.add(key="location", value="w.data")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, rows])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, columns])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y])
    graph.initializer.append(weight)
    with (folder / "w.data").open("wb") as file:
        file.truncate(4 * rows * columns)
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("form", FORMS)
def test_weights_beyond_this_machines_memory_stay_unread(
    target_worker: Worker, form: str, tmp_path: Path
) -> None:
    path = with_sparse_weight(tmp_path, 100_000, 100_000)
    name = "v5p:2x2x1" if form == SHARDED else "v5p"
    options = {"rules": "tensor"} if form == SHARDED else {}
    start = time.monotonic()
    record = target_worker.run(ModelJob(str(path), named(name), form, options=options))
    assert record.outcome == COMPILED, record.reason
    assert time.monotonic() - start < 60
    facts = record.programs[0].facts
    assert facts is not None
    parts = named(name).devices
    assert facts.plain_arguments == 4 * 100_000 * (100_000 // parts + 8)


def test_empty_arrays_and_single_numbers(target_worker: Worker) -> None:
    for shape in ((), (0,), (3, 0, 2)):
        for target in TARGETS:
            facts = compiled(target_worker, functions.widened, Spec(shape, F32), target=target)
            assert facts.plain_arguments == 4 * int(np.prod(shape))


def test_threads_share_a_worker(target_worker: Worker) -> None:
    jobs = [
        FunctionJob(functions.softmax, (Spec((8, n), F32),), named("h100")) for n in range(1, 7)
    ]
    with ThreadPoolExecutor(3) as pool:
        records = list(pool.map(target_worker.run, jobs))
    sizes = [r.programs[0].facts.plain_arguments for r in records if r.programs[0].facts]
    assert sizes == [32 * n for n in range(1, 7)]


def test_arguments_that_nothing_reads_are_not_passed(target_worker: Worker) -> None:
    specs = (Spec((8, 8), F32), Spec((64, 64), F32))
    facts = compiled(target_worker, functions.first, *specs, target="h100")
    assert facts.plain_arguments == facts.arguments == 256


def test_the_environment_of_the_caller_stays(target_worker: Worker) -> None:
    before = dict(os.environ)
    job = FunctionJob(functions.softmax, (Spec((2, 2), F32),), named("v5e"))
    assert target_worker.run(job).is_compiled
    assert dict(os.environ) == before


def test_the_worst_outcome_is_that_of_a_job() -> None:
    assert worst([]) == worst([COMPILED]) == COMPILED
    assert worst([COMPILED, FAILED, REFUSED]) == FAILED
    assert Record("v5e", ABORTED).is_compiled is False

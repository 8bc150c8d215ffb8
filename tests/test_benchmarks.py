"""What the benchmarks compute from what they measure; measuring itself needs torch, and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import parser

import sardonyx
from benchmarks import gate, growth, new_sizes, service, shapes, small_networks
from benchmarks.decoding import SIZE, copied_inside
from benchmarks.models import HEAD_SIZE, HEADS, NETWORKS
from benchmarks.page import BEGIN, END, fill
from benchmarks.results import Record, Results, geometric_mean, lines, processor_of
from benchmarks.roofline import Rates, Work, needed, work_of, work_of_jitted
from benchmarks.small_written import WRITTEN

BUFFER = jax.ShapeDtypeStruct((1, HEADS, SIZE, HEAD_SIZE), np.float32)
TOKEN = jax.ShapeDtypeStruct((1, HEADS, 1, HEAD_SIZE), np.float32)


def record(network: str, peer: str, value: float | None, **more: Any) -> Record:
    base = None if value is None else 2.0
    return Record("calls", "ms", network, 1, peer, value, value, base, base, **more)


def test_a_mean_is_geometric_and_leaves_out_what_cannot() -> None:
    records = [
        record("resnet50", "sardonyx", 1.0),
        record("vit_b16", "sardonyx", 4.0),
        record("bert_base", "sardonyx", None, note="it cannot"),
    ]
    assert geometric_mean(records, "sardonyx") == pytest.approx(1.0)
    rows = list(lines(records, ["sardonyx"]))
    assert rows[0] == ["ResNet-50", "1", "0.50 (0.50)"]
    assert rows[2] == ["BERT-base, 128 tokens", "1", "cannot"]
    assert rows[-1] == ["geometric mean", "", "1.00"]


def test_the_gate_names_what_lost_a_tenth_of_its_ratio() -> None:
    before = Results([record("resnet50", "sardonyx", 2.0), record("vit_b16", "sardonyx", 2.0)])
    now = Results(
        [
            record("resnet50", "sardonyx", 2.1),
            record("vit_b16", "sardonyx", 2.3),
            record("bert_base", "sardonyx", 9.0),
            record("vit_b16", "onnxruntime", 9.0),
        ]
    )
    found = list(gate.changes(before, now))
    assert [(change.network, change.is_loss) for change in found] == [
        ("resnet50", False),
        ("vit_b16", True),
    ]
    assert gate.file_of({"cpu": "A (R) CPU @ 2 GHz"}).name == "a-r-cpu-2-ghz.json"


def test_processors_of_one_name_are_told_apart() -> None:
    each = "cpu family\t: {}\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\n"
    first, other = each.format(25, 17), each.format(26, 2)
    assert processor_of(first + other) == "AMD EPYC, family 25, model 17"
    assert processor_of(other) == "AMD EPYC, family 26, model 2"
    assert processor_of("model name\t: ARM\n") == "ARM"
    assert processor_of("")


def test_results_are_added_to_a_file_and_to_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    Results([record("resnet50", "sardonyx", 1.0), record("vit_b16", "torch", 3.0)]).write(file)
    Results([record("resnet50", "sardonyx", 5.0)], {"cpu": "one"}).write(file)
    results = Results.read(file)
    assert {(r.network, r.value) for r in results.records} == {("resnet50", 5.0), ("vit_b16", 3.0)}

    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    for _ in range(2):
        fill(page, results)
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert text.count("| ResNet-50 | 1 | 2.50 (2.50) |") == 1


def test_new_sizes_are_counted_by_their_place_in_the_series() -> None:
    first = [99.0, 4.0, 1.0, *[2.0] * 6, 1.0, 1.4, 1.6]
    times = {"sizes": [*range(20, 32)], "first": first, "repeated": [1.0] * 12}
    assert new_sizes.cells(times)[:5] == [
        *("2.00 (4.00)", "1 of 8: 21"),
        *("1.40 (1.60)", "1 of 3: 31"),
        "120.0",
    ]
    assert new_sizes.cells({**times, "first": [4.0] * 12})[1] == "8 of 8"


def test_a_size_has_the_least_times_of_several_processes() -> None:
    starts = [
        {"sizes": [8, 9], "first": first, "repeated": repeated, "traces": traces}
        for first, repeated, traces in (([3, 2], [1, 2], 5), ([2, 4], [2, 1], 7))
    ]
    assert new_sizes.least(starts) == {
        "sizes": [8, 9], "first": [2, 2], "repeated": [1, 1], "traces": 7,
    }  # fmt: skip


@pytest.mark.parametrize("series", new_sizes.SERIES.values(), ids=lambda series: series.title)
def test_inputs_of_a_series_have_the_size_and_repeat(series: Any) -> None:
    for size in (series.sizes[0], 13):
        feeds, again = series.feeds(size), series.feeds(size)
        assert all(size in array.shape for array in feeds.values())
        assert all(np.array_equal(array, again[name]) for name, array in feeds.items())


@pytest.mark.parametrize("network", NETWORKS.values(), ids=lambda network: network.name)
def test_inputs_have_the_batch_and_repeat(network: Any) -> None:
    first, again = network.feeds(3), network.feeds(3)
    for name, array in first.items():
        assert array.shape[0] == 3
        np.testing.assert_array_equal(array, again[name])


@pytest.mark.parametrize(
    ("written", "donated", "copies"),
    [
        (lambda past, new: jax.lax.dynamic_update_slice_in_dim(past, new, 5, 2), True, 0),
        (lambda past, new: jax.lax.dynamic_update_slice_in_dim(past, new, 5, 2), False, 1),
        (lambda past, new: past + new, True, 1),
    ],
    ids=["in place", "into a copy", "all of it"],
)
def test_copies_of_a_cache_are_counted(written: Any, donated: bool, copies: int) -> None:
    compiled = jax.jit(written, donate_argnums=0 if donated else ()).lower(BUFFER, TOKEN).compile()
    assert copied_inside(compiled.as_text()) == copies * 4 * HEADS * SIZE * HEAD_SIZE


def test_the_roofline_is_the_narrower_of_two_bounds() -> None:
    rates = Rates(bandwidth=10.0, operations=100.0)
    assert rates.least_seconds(Work(operations=1000.0, moved=20.0)) == 10.0
    assert rates.least_seconds(Work(operations=10.0, moved=20.0)) == 2.0


def test_work_is_what_the_compiler_counts() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    g (float[n] a, float[n] b) => (float[n] y) { c = Mul (a, b) y = Add (c, a) }"""
    model = sardonyx.load(parser.parse_model(text), backend="jax")
    array = np.zeros(1000, np.float32)
    work = work_of(model, {"a": array, "b": array})
    assert (work.operations, work.moved) == (2000.0, 12000.0)

    square = np.zeros((100, 100), np.float32)
    jitted = work_of_jitted(jax.jit(lambda x, y: x @ y), square, square)
    assert (jitted.operations, jitted.moved) == (2e6, 120000.0)
    assert needed([work, jitted]) == Work(2e6, 12000.0)


@pytest.mark.slow
@pytest.mark.parametrize("title", shapes.MODELS)
@pytest.mark.parametrize(("kind", "most"), [("with buckets", 4), ("by default", 16)])
def test_buckets_bound_the_number_of_compiles(title: str, kind: str, most: int) -> None:
    assert shapes.run(title, kind)["compiles"] <= most


def test_an_exponent_is_the_slope_between_the_largest_sizes() -> None:
    points = [
        growth.Point("chain", "numpy", size, {"load": size**1.5}, 10.0 * size)
        for size in (1000, 10, 100)
    ]
    assert growth.exponents(points) == pytest.approx({"load": 1.5, "memory": 1.0})
    assert growth.exponents(points[:1]) == {}


@pytest.mark.parametrize("case", sorted(growth.CASES))
def test_the_models_that_grow_give_the_results_that_they_name(case: str, tmp_path: Path) -> None:
    sized = growth.CASES[case](10, tmp_path)
    loaded = sardonyx.load(sized.model, backend="numpy", **sized.options)
    results = loaded.run(None, sized.feeds)
    np.testing.assert_allclose(results[0], sized.expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_the_small_graphs_agree_with_onnxruntime(name: str) -> None:
    model, feeds = WRITTEN[name]()
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    results = sardonyx.load(model, backend="numpy").run(None, feeds)
    small_networks.require_equal(results, expected, small_networks.TOLERANCE)


def test_results_that_differ_are_refused() -> None:
    one, names = np.ones(3, np.float32), np.array(["a", "b"], object)
    small_networks.require_equal([one, names], [one, names], 1e-4)
    infinite = np.array([np.inf, 1.0, 1.0], np.float32)
    for other in (one * 1.01, one[:2], infinite):
        with pytest.raises((ValueError, AssertionError)):
            small_networks.require_equal([one], [other], 1e-4)
    with pytest.raises(ValueError, match=r"differs in 50.0%"):
        small_networks.require_equal([names], [np.array(["a", "c"], object)], 1e-4)


def test_a_network_that_takes_too_long_is_marked() -> None:
    records = [record("unique", "sardonyx", value) for value in (10.0, 2.0)]
    assert small_networks.table(records).row_count == 3
    assert ["!" in small_networks.cell(each) for each in records] == [True, False]


def test_networks_have_the_least_of_several_starts_that_begin_with_different_ones() -> None:
    names = ["a", "b", "c", "d"]
    orders = [small_networks.turned(names, start / 3) for start in range(3)]
    assert orders == [names, ["b", "c", "d", "a"], ["c", "d", "a", "b"]]
    starts = [
        [record("unique", "sardonyx", 9.0), record("nonzero", "sardonyx", 2.0)],
        [record("nonzero", "sardonyx", 4.0), record("unique", "sardonyx", 1.0)],
        [record("nonzero", "sardonyx", 3.0), record("unique", "sardonyx", 8.0)],
    ]
    found = small_networks.of_starts(starts)
    figures = [(each.network, each.value, each.median) for each in found]
    assert figures == [("unique", 1.0, 8.0), ("nonzero", 2.0, 3.0)]


def test_a_service_counts_every_call_and_load() -> None:
    loads: list[str] = []

    def load(each: service.Service) -> service.Call:
        loads.append(each.title)
        return len

    measured = service.measured(load, service.classifier(), threads=2, seconds=0.3, reloads=2)
    assert loads == ["classifier with names"] * 3 == ["classifier with names"] * len(measured.loads)
    assert list(measured.calls) == sorted(measured.calls)
    assert 0 <= measured.at(50) <= measured.at(99) <= measured.at(100) == measured.calls[-1]
    twice = service.joined([measured, measured])
    assert len(twice.calls) == 2 * len(measured.calls)
    assert twice.at(50) == measured.at(50)


def test_a_service_that_fails_is_no_result() -> None:
    def load(each: service.Service) -> service.Call:
        def call(feeds: service.Feeds) -> None:
            raise ValueError("wrong")

        return call

    with pytest.raises(ValueError, match="wrong"):
        service.measured(load, service.classifier(), threads=2, seconds=0.1, reloads=0)

"""Reports: the bounds that follow from facts and rates, by hand. No compiler is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sardonyx.targets.names import named
from sardonyx.targets.rates import Rates
from sardonyx.targets.records import (
    ABORTED,
    COMPILED,
    REFUSED,
    Collective,
    Compilation,
    Facts,
    HostSteps,
    Record,
)
from sardonyx.targets.report import TargetReport, duration, rate_of, short

FACTS = Facts(
    kinds={"fusion": 3, "custom-call": 1, "copy": 1, "copy-start": 2, "sort": 1},
    loops=1,
    operations=5e12,
    optimised_operations=5e12,
    accessed=3e9,
    least_moved=819_000_000,
    results=900_000,
    padding={"3 as 4": 60_000, "24 as 128": 40_000},
    arguments=1_000_000_000,
    outputs=200_000_000,
    donated=50_000_000,
    temporaries=30_000_000,
    code=1_000_000,
    plain_arguments=800_000_000,
    custom_calls={"Sharding": 1},
    host_calls=(),
    wide_values={"s64": 2},
    collectives=(),
    products={"bfloat16": 197e9, "float32 highest": 197e9 / 6},
    cycles=1000,
)


def report(target: str = "v5e", *facts: Facts, **changes: Any) -> TargetReport:
    programs = tuple(Compilation(f"segment {i}", COMPILED, facts=f) for i, f in enumerate(facts))
    record = Record(target, COMPILED, seconds=1.5, programs=programs)
    return TargetReport(named(target), replace(record, **changes))


def test_kernels_and_memory_of_a_program() -> None:
    assert FACTS.kernels == 8
    assert (FACTS.fusions, FACTS.library_calls, FACTS.copies) == (3, 1, 3)
    assert FACTS.peak == 1_181_000_000


def test_bounds_of_one_chip() -> None:
    checked = report("v5e", FACTS)
    assert checked.seconds_of_products == pytest.approx(2e-3)
    assert checked.seconds_of_memory == pytest.approx(1e-3)
    assert checked.bounds.keys() == {"products", "memory"}
    assert checked.bound == ("products", pytest.approx(2e-3))
    assert checked.padding == pytest.approx(0.2)
    assert checked.fits


def test_bounds_of_several_programs_add_up_and_the_peak_does_not() -> None:
    one, two = report("v5e", FACTS), report("v5e", FACTS, FACTS)
    assert two.bounds == {name: pytest.approx(2 * s) for name, s in one.bounds.items()}
    assert two.peak == one.peak


def test_a_mesh_divides_products_and_pays_for_its_links() -> None:
    sums = replace(FACTS, collectives=(Collective("all-reduce", 4, 400_000_000),))
    checked = report("v5e:2x2", sums)
    assert checked.seconds_of_products == pytest.approx(0.5e-3)
    assert checked.seconds_of_links == pytest.approx(2e-3)
    assert checked.bound == ("links", pytest.approx(2e-3))
    assert dict(checked.rows())["all-reduces"] == "4"


def test_a_chip_of_two_devices_is_compiled_for_one() -> None:
    facts = replace(FACTS, products={"bfloat16": 1153.5e9})
    assert report("tpu7x", facts).seconds_of_products == pytest.approx(1e-3)
    assert report("tpu7x:2x2x1", facts).seconds_of_products == pytest.approx(1e-3 / 8)


def test_unknown_rates_leave_a_bound_out() -> None:
    facts = replace(FACTS, products={"int32": 1e9})
    assert report("v5e", facts).seconds_of_products is None
    assert report("v5e", facts).bound == ("memory", pytest.approx(1e-3))
    assert report("v5e").bound is None


def test_more_than_the_memory_of_the_device_is_said() -> None:
    checked = report("h100", replace(FACTS, temporaries=80_000_000_000))
    assert checked.fits is False
    assert "It needs more memory than the device has." in str(checked)


def test_what_went_wrong_is_said() -> None:
    checked = report("v5e", outcome=REFUSED, reason="No such thing: pass another.")
    assert not checked.is_compiled
    assert "refused: No such thing: pass another." in str(checked).splitlines()
    assert "compiles  aborted" in str(report("v5e", outcome=ABORTED))


def test_what_runs_on_the_host_is_named() -> None:
    nodes = tuple(f"NonZero {i}" for i in range(5))
    steps = HostSteps(nodes, "the shape of its result depends on data")
    text = str(report("v5e", replace(FACTS, host_calls=("recv",)), host=(steps,)))
    assert "On the host: NonZero 0, NonZero 1, NonZero 2 and 2 more (the shape" in text
    assert "The programs call the host: recv." in text


def test_text_has_all_rows() -> None:
    text = str(report("v5e", FACTS))
    for row in ("of float32 highest", "bounded by", "loops", "arrays of s64", "calls of Sharding"):
        assert row in text


def test_a_model_that_needs_no_program_says_so() -> None:
    assert dict(report("v5e").rows()) == {"compiles": "in 1.5 s", "programs": "0"}
    unread = Compilation("segment 0", COMPILED, "It was compiled, but nothing is counted")
    assert "programs" not in dict(report("v5e", programs=(unread,)).rows())
    assert "programs" not in dict(report("v5e", outcome=ABORTED).rows())


def test_sizes_that_are_padded_are_named() -> None:
    checked = report("v5e", FACTS, FACTS)
    assert checked.padding_of_results == pytest.approx(0.1)
    told = (
        "Of what the kernels write 10% is padding: axes of 3 kept as 4 (6%), 24 kept as 128 (4%)."
    )
    assert told in str(checked).splitlines()
    assert dict(checked.rows())["  padding of their results"] == "10.0%"
    few = replace(FACTS, padding={"3 as 4": 100_000, "24 as 128": 40})
    assert "padding: axes of 3 kept as 4 (10%).\n" in f"{report('v5e', few)}\n"
    even = report("h100", replace(FACTS, padding={}))
    assert even.padding_of_results == 0
    assert "padding of their results" not in str(even)


def test_plain_data_can_be_written_as_json() -> None:
    sums = replace(FACTS, collectives=(Collective("all-reduce", 4, 400_000_000),))
    steps = HostSteps(("NonZero 1",), "its size depends on data")
    found = json.loads(json.dumps(report("v5e:2x2", sums, host=(steps,)).as_dict()))
    assert (found["target"], found["devices"], found["outcome"]) == ("v5e:2x2", 4, COMPILED)
    assert found["bounded_by"] == "links"
    assert found["seconds_by"]["links"] == pytest.approx(2e-3)
    assert found["programs"][0]["facts"]["collectives"][0]["nbytes"] == 400_000_000
    assert found["host"] == [{"nodes": ["NonZero 1"], "reason": "its size depends on data"}]
    nothing = json.loads(json.dumps(report("v5e", outcome=ABORTED).as_dict()))
    assert (nothing["bounded_by"], nothing["programs"]) == (None, [])


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("float32 default", 3.0), ("float32 high", 2.0), ("float32 highest", 1.0), ("float32", 3.0),
        ("bfloat16", 4.0), ("float16", 4.0), ("int8", 5.0), ("uint8", 5.0), ("int4", 5.0),
        ("float8_e4m3fn", 4.0), ("float64", None), ("int64", None), ("complex64", None),
    ],
)  # fmt: skip
def test_rates_by_type(kind: str, rate: float | None) -> None:
    rates = Rates(bfloat16=4.0, int8=5.0, float32=(3.0, 2.0, 1.0))
    assert rate_of(kind, rates) == rate


def test_rates_that_are_unknown() -> None:
    assert rate_of("float32 highest", Rates()) is None
    assert rate_of("int8", Rates()) is None


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (999.7, "1 k"), (1e6, "1 M"), (1e25, "1e+07 E")]
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 us"), (1e-6, "1 us"), (0.5, "500 ms"), (90, "90 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text

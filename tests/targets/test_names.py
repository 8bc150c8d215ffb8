"""The names of targets, and what is said of others. No compiler is needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.targets.jobs import FunctionJob
from sardonyx.targets.names import GENERATIONS, GPUS, Target, named
from sardonyx.targets.rates import RATES
from sardonyx.targets.worker import Worker


@pytest.mark.parametrize("name", [*GENERATIONS, *GPUS])
def test_each_name_is_one_chip_with_published_rates(name: str) -> None:
    target = named(name)
    assert target.chips == 1
    assert not target.is_mesh
    assert target.kind in RATES
    rates = target.rates
    assert rates.float32 is not None
    assert rates.bfloat16 is not None
    default, high, highest = rates.float32
    assert rates.bfloat16 >= default >= high >= highest > 1e12
    assert 1e10 < (rates.memory or 0) < 1e12
    assert 1e11 < (rates.bandwidth or 0) < 1e13


@pytest.mark.parametrize(
    ("name", "chips", "devices", "topology"),
    [
        ("v5e:2x2", 4, 4, "v5e:2x2"),
        ("v5e", 1, 1, "v5e:1x1"),
        ("v6e:16x16", 256, 256, "v6e:16x16"),
        ("v5p:2x2x4", 16, 16, "v5p:2x2x4"),
        ("v4:2x2x1", 4, 8, "v4:2x2x1"),
        ("tpu7x:2x2x1", 4, 8, "tpu7x:2x2x1"),
        ("h100:8", 8, 8, "1x1x8"),
        ("a100", 1, 1, "1x1x1"),
    ],
)
def test_sizes(name: str, chips: int, devices: int, topology: str) -> None:
    target = named(name)
    assert (target.chips, target.devices, target.topology) == (chips, devices, topology)
    assert target.is_mesh == (chips > 1)
    assert str(target) == name


@pytest.mark.parametrize(
    "name",
    ["", "v5", "v5e:", "v5e:2", "v5e:2x2x1", "v5e:0x2", "v5e:2x", "v5e:²x2", "v4:2x2", "h100:",
     "h100:0", "h100:two", "H100", "v5e:2x2:1", "nowhere.txtpb", 5, None],
)  # fmt: skip
def test_other_names_are_refused_with_the_way_out(name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"pass|write|cannot be read"):
        named(name)


def test_a_file_describes_a_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "with:colon"
    folder.mkdir()
    path = folder / "other.txtpb"
    path.write_text(
        'device_description_str: "NVIDIA Other"\n'
        "gpu_device_info { memory_bandwidth: 1000000000000 device_memory_size: 24000000000 }\n"
    )
    target = named(f"{path}:2")
    assert (target.kind, target.chips, target.platform) == ("NVIDIA Other", 2, "cuda")
    assert (target.rates.memory, target.rates.bandwidth) == (24e9, 1e12)
    assert target.rates.bfloat16 is None
    assert named(str(path)).chips == 1


def test_a_file_without_a_description_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.txtpb"
    path.write_text("gpu_device_info {}\n")
    with pytest.raises(InvalidInput, match="device_description_str"):
        named(str(path))


@pytest.mark.parametrize(("name", "package"), [("v5e", "libtpu"), ("h100", "jax-cuda13-plugin")])
def test_a_compiler_that_is_absent_is_named(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sardonyx.targets.names.find_spec", lambda module: None)
    with (
        Worker() as worker,
        pytest.raises(BackendUnavailable, match=rf"{package}.*sardonyx\[aot\]"),
    ):
        worker.run(FunctionJob(abs, (), named(name)))


def test_the_package_has_a_description_of_each_gpu() -> None:
    for name in GPUS:
        target = named(name)
        assert isinstance(target, Target)
        assert target.specification.count("{") == target.specification.count("}")


def test_the_extra_names_packages_that_have_these_modules() -> None:
    """Where the extra is installed, the modules that are looked for are there."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("no libtpu; pip install 'sardonyx[aot]'")
    assert importlib.util.find_spec("jax_cuda13_plugin") is not None

"""How many processors there are for this process, also where the system states nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from sardonyx.backends import processors
from tests.support.onnx_builders import model, node, value, weight

HAS_AFFINITY = hasattr(os, "sched_setaffinity")


def outcome(code: str, *arguments: str) -> str:
    """What a fresh process prints."""
    run = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


# -- what Linux alone has -------------------------------------------------------------------------

ELSEWHERE = """
import ctypes, mmap, os, sys

# As on Windows, where the file of a descriptor cannot be opened relative to a folder's either.
missing = "sched_getaffinity sched_setaffinity process_cpu_count register_at_fork getuid geteuid"
missing += " fork O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_NOCTTY"
for name in missing.split():
    if hasattr(os, name):
        delattr(os, name)
for name in [name for name in vars(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)

import numpy as np
import sardonyx
from sardonyx.backends import processors

for backend in ("jax", "numpy"):
    model = sardonyx.load(sys.argv[1], backend=backend, cache=sys.argv[2], retain_freed_memory=True)
    model.compile({"x": (3, 300)}, {"x": (4, 300)})
    y = np.asarray(model(np.ones((2, 300), np.float32)))
    assert (y == 2).all()
print(processors.available() == os.cpu_count() or processors.available())
"""


@pytest.fixture
def product_of_external_data(tmp_path: Path) -> Path:
    doubled = weight("w", 2 * np.eye(300, dtype=np.float32))
    product = node("MatMul", ["x", "w"], ["y"])
    proto = model([product], [value("x", ["n", 300])], ["y"], [doubled])
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=0)
    return path


@pytest.mark.slow
def test_a_system_that_has_none_of_linux_extras(
    product_of_external_data: Path, tmp_path: Path
) -> None:
    assert outcome(ELSEWHERE, str(product_of_external_data), str(tmp_path / "cache"))


# -- affinity and quotas --------------------------------------------------------------------------

ONE_OF_THEM = """
import os
from sardonyx.backends import processors
from sardonyx.backends.jax.onednn.threads import threads_of_process

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
print(processors.available(), threads_of_process())
"""


@pytest.mark.skipif(not HAS_AFFINITY, reason="the system has no affinity of processes")
def test_an_affinity_of_one_processor() -> None:
    assert outcome(ONE_OF_THEM) == "1 1"


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_schedulable", lambda: 64)


def system(root: Path, files: dict[str, str]) -> Path:
    """A system's root folder with these files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("200000 100000\n", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("max 100000", 64),
        ("9900000 100000", 64),
        ("", 64),
        ("some nonsense", 64),
        ("100000 0", 64),
        ("-1 -1", 64),
    ],
)
def test_quotas_of_control_groups(content: str, expected: int, tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": content}
    assert processors.available(system(tmp_path, files)) == expected


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("outer", "inner"), [("300000", "max"), ("400000", "300000")])
def test_the_least_quota_on_the_way_up_counts(outer: str, inner: str, tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/cpu.max": f"{outer} 100000",
        "sys/fs/cgroup/outer/inner/cpu.max": f"{inner} 100000",
    }
    assert processors.available(system(tmp_path, files)) == 3


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("quota", "expected"), [("250000", 3), ("-1", 64)])
def test_quotas_of_version_1(quota: str, expected: int, tmp_path: Path) -> None:
    group = "sys/fs/cgroup/cpu/docker/abc"
    files = {
        "proc/self/cgroup": "7:memory:/a\n3:cpu,cpuacct:/docker/abc\n",
        f"{group}/cpu.cfs_quota_us": f"{quota}\n",
        f"{group}/cpu.cfs_period_us": "100000\n",
    }
    assert processors.available(system(tmp_path, files)) == expected


@pytest.mark.usefixtures("many")
def test_the_group_of_a_container_has_the_path_of_its_host(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/cpu.max": "400000 100000"}
    assert processors.available(system(tmp_path, files)) == 4


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("groups", ["", "nonsense", "0:\n:\n", "1:name=systemd:/a\n"])
def test_without_quotas_only_the_scheduler_counts(groups: str, tmp_path: Path) -> None:
    assert processors.available(tmp_path) == 64
    assert processors.available(system(tmp_path, {"proc/self/cgroup": groups})) == 64

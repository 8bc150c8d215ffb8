from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

import sardonyx
from sardonyx.backends import available, find
from sardonyx.backends.base import Backend
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.learned_calls import Pace
from sardonyx.graph.programs.compiler import MODES, NOW
from sardonyx.targets.worker import Worker
from tests.support.background import wait_for_background
from tests.support.strict_backend import StrictBackend
from tests.support.turns import turn_on_gpu

# Each operator has cases for its opsets, dtypes and backends, of which a thirtieth run by default,
# and of com.microsoft one in ninety. Compilers of other hardware get every case.
TESTS = Path(__file__).parent
ONE_IN_OF_FOLDERS = {TESTS / "ops" / "microsoft": 90, TESTS / "ops": 30, TESTS / "aot": 1}
# Of any other test with more cases than a few, one in so many.
FEW, ONE_IN_OF_MANY = 5, 9


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--compile",
        choices=MODES,
        default=NOW,
        help="when models compile unless a test says it: by default compiled programs are tested",
    )
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="of the cases of each test run about one in N",
    )
    parser.addoption(
        "--part",
        type=int,
        default=0,
        metavar="K",
        help="which of the N parts `--one-in` runs: K modulo N",
    )


def pytest_configure(config: pytest.Config) -> None:
    sardonyx.load.__kwdefaults__["compile"] = config.getoption("--compile")


@cache
def backends_present() -> tuple[Backend, ...]:
    """Every array library that can be used here, and the one that has nothing but the standard."""
    return (*(find(name).for_ops for name in available()), StrictBackend())


def as_parameter(
    backend: Backend, *values: object, name: str = "", label: str = "", slow: bool = False
) -> object:
    """A test's parameters on this backend; what runs on CuPy is a GPU test."""
    marks = [pytest.mark.gpu] if backend.name == "cupy" else []
    marks += [pytest.mark.slow] if slow else []
    label = label or backend.name
    label = f"{name}-{label}" if name else label
    return pytest.param(*values, backend, marks=marks, id=label)


@pytest.fixture(params=[as_parameter(backend) for backend in backends_present()])
def xp(request: pytest.FixtureRequest) -> Backend:
    """Each array library in turn; ops are functions of it."""
    backend: Backend = request.param
    return backend


@pytest.fixture(params=[1, 3], ids=lambda count: f"{count}-threads")
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Into how many pieces oneDNN divides a product, whatever has been asked of XLA."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("NPROC", str(request.param))
    count: int = request.param
    return count


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of cases that are many and alike leave most to the slow tests; which ones, never changes."""
    rest = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        one_in = _one_in(item)
        if one_in is None:
            rest[item.nodeid.partition("[")[0]].append(item)
        elif _number_of(item) % one_in:
            item.add_marker(pytest.mark.slow)
    for cases in rest.values():
        chosen = len(cases) if len(cases) <= FEW else math.ceil(len(cases) / ONE_IN_OF_MANY)
        for item in sorted(cases, key=_number_of)[chosen:]:
            item.add_marker(pytest.mark.slow)
    _thin_out(config, items)


def _number_of(item: pytest.Item) -> int:
    return crc32(item.name.encode())


def _thin_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `--one-in` leaves out; the path makes the choice another than that above."""
    one_in: int = config.getoption("--one-in")
    part = config.getoption("--part") % one_in
    left_out = [
        item
        for item in items
        if hasattr(item, "callspec") and crc32(item.nodeid.encode()) % one_in != part
    ]
    config.hook.pytest_deselected(items=left_out)
    chosen = set(items).difference(left_out)
    items[:] = [item for item in items if item in chosen]


def _one_in(item: pytest.Item) -> int | None:
    """Return n if about one in n of the test's cases runs by default; None if that is not said."""
    mark = item.get_closest_marker("sampled")
    if mark is not None:
        return int(mark.args[0])
    parents = item.path.parents
    one_in = next((one for folder, one in ONE_IN_OF_FOLDERS.items() if folder in parents), None)
    return one_in if hasattr(item, "callspec") else 1


@pytest.fixture(autouse=True)
def _turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Tests marked `whole_gpu` leave no memory to others, which wait until they are over."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    alone = request.node.get_closest_marker("whole_gpu") is not None
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # One of several workers, whose folders lie in one.
        folder = folder.parent
    with turn_on_gpu(folder, alone=alone):
        yield


@pytest.fixture(autouse=True)
def _background_ends() -> Iterator[None]:
    """What one test compiles in the background slows no other one down, nor makes its jobs wait."""
    yield
    wait_for_background()


@pytest.fixture
def compiles_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA compiles small segments too, which would otherwise run as calls of NumPy.

    So it does the programs of buckets, in place of one function for all sizes, and these run even
    where single steps take less time.
    """
    from sardonyx.backends.jax.xla_cpu import small_programs  # noqa: PLC0415  (JAX may be absent)

    monkeypatch.setattr(small_programs, "CALL", -1e6)
    monkeypatch.setattr(learned_calls, "SECONDS", 0.0)
    monkeypatch.setattr(Derivation, "write_out", lambda self: None)
    monkeypatch.setattr(Pace, "at", lambda self, count: math.inf)


@pytest.fixture(scope="session")
def target_worker() -> Iterator[Worker]:
    """A process that compiles for TPUs and GPUs that are not here, for tests marked `aot`."""
    for module in ("libtpu", "jax_cuda13_plugin"):
        pytest.importorskip(module, reason=f"no {module}; pip install 'sardonyx[aot]'")
    with Worker() as worker:
        yield worker

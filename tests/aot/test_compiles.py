"""Every operator and every model compiles for TPUs and GPUs, by XLA's own compilers."""

from __future__ import annotations

import pytest

pytest.importorskip("libtpu", reason="no libtpu; pip install 'sardonyx[aot]'")
pytest.importorskip("jax_cuda13_plugin", reason="no jax_cuda13_plugin; pip install 'sardonyx[aot]'")

from sardonyx.targets.jobs import LOADED, PURE
from sardonyx.targets.records import COMPILED
from sardonyx.targets.worker import Worker
from tests.aot import cases
from tests.aot.cases import Case
from tests.aot.outcomes import INVALID, ON_HOST, Outcome, outcome_of

pytestmark = pytest.mark.aot

# What programs are compiled for by default, and with the slow tests.
TARGETS = ("v5e", "h100")
OTHER_TARGETS = ("v4", "v5p", "v6e", "tpu7x", "a100")


def on_targets(*targets: str, slow: bool = False) -> pytest.MarkDecorator:
    marks = [pytest.mark.slow] if slow else []
    return pytest.mark.parametrize("target", [pytest.param(t, marks=marks) for t in targets])


def each(*chosen: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


def check(worker: Worker, case: Case, target: str, form: str = LOADED) -> None:
    """Compile a case, and check how that ends."""
    check_outcome(outcome_of(worker, case, target, form))


def check_outcome(outcome: Outcome) -> None:
    """A case may run on the host instead; nothing may need what the compiler does not bring."""
    assert outcome.kind in (COMPILED, ON_HOST), outcome.reason
    assert not outcome.foreign


@on_targets(*TARGETS)
@each(*cases.operators())
def test_operators(case: Case, target: str, target_worker: Worker) -> None:
    check(target_worker, case, target)


@on_targets(*OTHER_TARGETS, slow=True)
@each(*cases.operators())
def test_operators_on_other_devices(case: Case, target: str, target_worker: Worker) -> None:
    check(target_worker, case, target)


@on_targets(*TARGETS, slow=True)
@each(*cases.operators_by_type())
def test_operators_by_type(case: Case, target: str, target_worker: Worker) -> None:
    outcome = outcome_of(target_worker, case, target)
    if outcome.kind == INVALID:
        pytest.skip(f"refused on every platform: {outcome.reason}")
    check_outcome(outcome)


@on_targets(*TARGETS, slow=True)
@each(*cases.node_cases())
def test_node_cases(case: Case, target: str, target_worker: Worker) -> None:
    check(target_worker, case, target)


@on_targets(*TARGETS)
@pytest.mark.parametrize("form", [LOADED, PURE])
@each(*cases.exporters_models())
def test_exporters_models(case: Case, form: str, target: str, target_worker: Worker) -> None:
    check(target_worker, case, target, form)


@pytest.mark.slow
@on_targets(*TARGETS)
@each(*cases.networks())
def test_networks(case: Case, target: str, target_worker: Worker) -> None:
    check(target_worker, case, target)

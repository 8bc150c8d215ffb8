"""Operators without a definition here run by the body that the standard gives them."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from sardonyx.backends.base import Backend
from sardonyx.graph import ir as structure
from sardonyx.graph.checking import audit
from sardonyx.ops import OPS
from tests.conftest import as_parameter, backends_present
from tests.support.official import Case, cases, run, runs_on

# As if these had no definition. Their bodies use many others, and depend on types and attributes.
UNDEFINED = {
    "AffineGrid": "test_affine_grid",
    "BlackmanWindow": "test_blackmanwindow",
    "CenterCropPad": "test_center_crop_pad",
    "NegativeLogLikelihoodLoss": "test_nllloss",
    "RotaryEmbedding": "test_rotary_embedding",
    "SoftmaxCrossEntropyLoss": "test_sce_mean",
}


def cases_of_undefined() -> list[Case]:
    prefixes = tuple(UNDEFINED.values())
    return [c for c in cases() if c.name.startswith(prefixes) and "expanded" not in c.name]


@pytest.mark.parametrize(
    ("case", "backend"),
    [
        as_parameter(backend, case, name=case.name, slow=backend.compiled)
        for case in cases_of_undefined()
        for backend in backends_present()
        if runs_on(case, backend)
    ],
)
def test_case_by_expansion(case: Case, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = MappingProxyType({key: op for key, op in OPS.items() if key[1] not in UNDEFINED})
    monkeypatch.setattr(structure, "OPS", rest)
    monkeypatch.setattr(audit, "OPS", rest)
    run(case, backend)

"""The words of `precision=` in programs that the compilers for v5e and H100 accept."""

from __future__ import annotations

import pytest
from onnx import parser

from sardonyx.arguments import PRECISIONS
from sardonyx.targets.jobs import FORMS, SHARDED, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.worker import Worker

pytestmark = pytest.mark.aot

TEXT = """
<ir_version: 10, opset_import: ["": 22]>
g (float[1, 8, 16, 16] x, float[64, 64] a) => (float y, float z)
<float[8, 8, 3, 3] filters = {ZEROS}> {
    y = Conv <pads = [1, 1, 1, 1]> (x, filters)
    z = MatMul (a, a)
}
""".replace("ZEROS", ", ".join(["0"] * 576))
LEVELS = {
    "highest": ("highest", "highest"),
    "high": ("high", "high"),
    "tensorfloat32": ("high", "default"),
    "default": ("default", "default"),
    "bfloat16": ("default", "default"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("word", PRECISIONS)
@pytest.mark.parametrize("target", ["v5e", "h100"])
def test_each_word_reaches_the_programs(
    target_worker: Worker, target: str, word: str, form: str
) -> None:
    mesh = {"data": 1} if form == SHARDED else {}
    options = {"precision": word}
    proto = parser.parse_model(TEXT).SerializeToString()
    job = ModelJob(proto, named(target), form=form, options=options, mesh=mesh)
    record = target_worker.run(job)
    assert record.is_compiled, record.reason
    kinds = {kind for each in record.programs if each.facts for kind in each.facts.products}
    level = LEVELS[PRECISIONS[word]][target == "h100"]
    # `load` and `shard` round factors of matrices to bfloat16 itself, and those of windows in
    # their own type, which is what `to_jax` does with both.
    expected = {f"float32 {level}"}
    if word == "bfloat16" and form != "to_jax":
        expected.add("bfloat16")
    assert kinds == expected


PRODUCT = """
<ir_version: 10, opset_import: ["": 22]>
g (TYPE[512, 512] a) => (TYPE z) { z = MatMul (a, a) }
"""


def cycles(worker: Worker, kind: str, word: str) -> int:
    proto = parser.parse_model(PRODUCT.replace("TYPE", kind)).SerializeToString()
    record = worker.run(ModelJob(proto, named("v5e"), options={"precision": word}))
    assert record.is_compiled, record.reason
    facts = record.programs[0].facts
    assert facts is not None
    return facts.cycles


def test_only_products_of_float32_depend_on_the_precision(target_worker: Worker) -> None:
    """By the compiler's own estimates."""
    wide = [cycles(target_worker, "float", word) for word in ("default", "high", "highest")]
    assert wide[0] < wide[1] < wide[2]
    narrow = {cycles(target_worker, "bfloat16", word) for word in ("default", "high", "highest")}
    assert len(narrow) == 1

"""Calls of cuDNN's attention in programs for GPUs that are not here; nothing is run.

JAX writes such calls only where it finds cuDNN, which the extra `aot` does not install.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH
from sardonyx.targets.jobs import LOADED, PURE, FunctionJob, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.records import Compilation
from sardonyx.targets.worker import Worker
from tests.aot import cudnn_functions as functions

pytestmark = pytest.mark.aot

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TYPES = {"float16": F16, "bfloat16": BF16}
_CALL = re.compile(
    r'custom_call_target="(?P<name>__cudnn\$\w+)".*backend_config=(?P<config>\{.*\})'
)


@pytest.fixture(scope="module")
def asking(target_worker: Worker) -> Iterator[Worker]:
    """A process that asks for cuDNN."""
    assert target_worker is not None
    with Worker() as worker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SWITCH, "1")
            # The process starts with its first job.
            compiled(worker, model("float[1,2,8,8]", "y = Attention (q, k, v)"))
        yield worker


@pytest.fixture(scope="module")
def finding(asking: Worker) -> Worker:
    """The same process, where JAX finds cuDNN."""
    record = asking.run(model("bfloat16[1,2,64,64]", "y = Attention (q, k, v)"))
    if "cuDNN" in record.reason:
        pytest.skip("no cuDNN; pip install nvidia-cudnn-cu13")
    return asking


def model(shape: str, node: str, target: str = "h100", **options: Any) -> ModelJob:
    inputs = ", ".join(f"{shape} {name}" for name in "qkv")
    text = f'<ir_version: 11, opset_import: ["": 26]> g ({inputs}) => (y) {{ {node} }}'
    proto = parser.parse_model(text).SerializeToString()
    return ModelJob(proto, named(target), keeps_text=True, **options)


def compiled(worker: Worker, job: Any) -> Compilation:
    record = worker.run(job)
    assert record.is_compiled, record.reason
    (program,) = record.programs
    return program


def calls(program: Compilation) -> dict[str, dict[str, Any]]:
    """The configuration of each call of cuDNN, by name."""
    found = [match for line in program.text.splitlines() if (match := _CALL.search(line))]
    config = "cudnn_fmha_backend_config"
    return {match["name"]: json.loads(match["config"])[config] for match in found}


def test_without_cuDNN_it_is_refused_with_a_sentence(asking: Worker) -> None:
    record = asking.run(model("float16[1,2,64,64]", "y = Attention (q, k, v)"))
    if not record.is_compiled:
        assert f"{SWITCH}=1 asks for attention by cuDNN" in record.reason
        assert "pip install" in record.reason
    # What cuDNN does not compute needs none.
    softcap = model("float16[1,2,64,64]", "y = Attention <softcap = 2.0> (q, k, v)")
    assert not calls(compiled(asking, softcap))


# -- by default -----------------------------------------------------------------------------------


# 16 MiB of scores, as many as it takes, and fewer.
LARGE, SMALL = "bfloat16[1,4,1024,64]", "bfloat16[1,4,960,64]"


@pytest.mark.parametrize("target", ["h100", "a100"])
def test_large_attention_goes_to_cuDNN(target_worker: Worker, target: str) -> None:
    """As `load` on that device decides, with the cuDNN of this machine."""
    program = compiled(target_worker, model(LARGE, "y = Attention (q, k, v)", target))
    if program.reason:
        assert program.reason == "attention without cuDNN, which JAX does not find here"
        assert not calls(program)
    else:
        assert program.reason == ""
        assert list(calls(program)) == ["__cudnn$fmhaSoftmax"]


@pytest.mark.parametrize("shape", [SMALL, "float[1,4,1024,64]", "float16[1,4,1024,32]"])
def test_other_attention_does_not(target_worker: Worker, shape: str) -> None:
    program = compiled(target_worker, model(shape, "y = Attention (q, k, v)"))
    assert (calls(program), program.reason) == ({}, "")


def test_functions_of_to_jax_do_not_ask(target_worker: Worker) -> None:
    program = compiled(target_worker, model(LARGE, "y = Attention (q, k, v)", form=PURE))
    assert (calls(program), program.reason) == ({}, "")


def test_it_can_be_switched_off(target_worker: Worker) -> None:
    assert target_worker is not None
    with Worker() as worker, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        program = compiled(worker, model(LARGE, "y = Attention (q, k, v)"))
        assert (calls(program), program.reason) == ({}, "")


# -- where it is asked for ------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["h100", "a100"])
@pytest.mark.parametrize("dtype", TYPES)
def test_an_attention_is_one_call(finding: Worker, target: str, dtype: str) -> None:
    node = "y = Attention <is_causal = 1, scale = 0.5> (q, k, v)"
    program = compiled(finding, model(f"{dtype}[2,4,256,64]", node, target))
    ((name, config),) = calls(program).items()
    assert name == "__cudnn$fmhaSoftmax"
    assert (config["mask_type"], config["fmha_scale"]) == ("CAUSAL", 0.5)
    assert config["dropout_rate"] == 0
    shape = config["intermediate_tensor_shape"]
    assert shape["dimensions"] == ["2", "4", "256", "256"]
    assert shape["element_type"] == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    assert program.facts is not None
    # Two products of 4 x 256 x 256 x 64 for each sample.
    assert program.facts.products == {dtype: 2 * 2 * 2 * 4 * 256 * 256 * 64}


@pytest.mark.parametrize("form", [LOADED, PURE])
def test_in_the_layout_of_exporters_nothing_else_runs(finding: Worker, form: str) -> None:
    node = "y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v)"
    facts = compiled(finding, model("bfloat16[2,256,256]", node, form=form)).facts
    assert facts is not None
    assert facts.kinds == {"custom-call": 1}
    # Two products of 256 x 256 x 64 for each of four heads of two samples.
    assert facts.operations == 2 * 2 * 256 * 256 * 64 * 4 * 2
    assert facts.accessed == 4 * 2 * (2 * 256 * 256)
    assert facts.temporaries < 1024


def test_long_attention_has_no_scores(finding: Worker) -> None:
    job = model("bfloat16[1,8,32768,64]", "y = Attention <is_causal = 1> (q, k, v)")
    program = compiled(finding, job)
    assert list(calls(program)) == ["__cudnn$fmhaSoftmax"]
    assert program.facts is not None
    # Four arrays of the size of the queries; the scores of one head have 2 GB.
    assert program.facts.temporaries < 4.1 * 2 * 8 * 32768 * 64


@pytest.mark.parametrize("node", [
    "y = Attention <softcap = 2.0> (q, k, v)",
    "y = Attention (q, k, v, v)",
    "y = Attention <left_window_size = 4> (q, k, v)",
    "s = Attention (q, k, v) y = Softmax (s)",
])  # fmt: skip
def test_what_cuDNN_gets_and_what_not(finding: Worker, node: str) -> None:
    found = calls(compiled(finding, model("float16[2,4,64,64]", node)))
    assert list(found) == ["__cudnn$fmhaSoftmax"] * ("Softmax" in node)


@pytest.mark.parametrize("shape", ["float[2,4,64,64]", "float16[2,4,64,60]", "float16[2,4,1,64]"])
def test_other_types_and_sizes_keep_their_form(finding: Worker, shape: str) -> None:
    assert not calls(compiled(finding, model(shape, "y = Attention (q, k, v)")))


def test_prompts_of_several_lengths(finding: Worker) -> None:
    q, k = (Spec((2, 256, 64 * heads), BF16) for heads in (8, 2))
    specs = q, k, k, Spec((2,), np.dtype(np.int32))
    job = FunctionJob(functions.prompt, specs, named("h100"), keeps_text=True)
    ((_, config),) = calls(compiled(finding, job)).items()
    assert config["mask_type"] == "PADDING_CAUSAL"


def test_functions_of_to_jax_and_their_gradients(finding: Worker) -> None:
    job = model("bfloat16[2,4,256,64]", "y = Attention (q, k, v)", form=PURE)
    assert list(calls(compiled(finding, job))) == ["__cudnn$fmhaSoftmax"]
    for length, mask_type in ((256, "CAUSAL"), (96, "PADDING_CAUSAL")):
        specs = (Spec((2, 4, length, 64), BF16),) * 3
        job = FunctionJob(functions.gradients, specs, named("h100"), keeps_text=True)
        found = calls(compiled(finding, job))
        assert set(found) == {"__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"}
        assert {config["mask_type"] for config in found.values()} == {mask_type}


def test_under_vmap(finding: Worker) -> None:
    specs = (Spec((3, 2, 4, 128, 64), BF16),) * 3
    job = FunctionJob(functions.in_samples, specs, named("h100"), keeps_text=True)
    ((_, config),) = calls(compiled(finding, job)).items()
    assert config["intermediate_tensor_shape"]["dimensions"] == ["6", "4", "128", "128"]

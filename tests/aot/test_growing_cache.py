"""A step of attention with a cache that grows by one token, as exporters write decoders."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import numpy_helper, parser

from sardonyx.backends.executable import Spec
from sardonyx.targets.jobs import FunctionJob, Job, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.worker import Worker

pytestmark = pytest.mark.aot

BATCH, HEADS, PAST, SIZE = 8, 12, 128, 64
WIDTH = HEADS * SIZE
# Of the bytes of hand-written JAX.
MOST_BYTES = 1.1

STEP = f"""<ir_version: 10, opset_import: ["": 18]>
step (float[{BATCH},1,{WIDTH}] x, float[{WIDTH},{3 * WIDTH}] weight,
      float[{BATCH},{HEADS},{PAST},{SIZE}] past_key,
      float[{BATCH},{HEADS},{PAST},{SIZE}] past_value)
  => (y, key, value) {{
  joined = MatMul(x, weight)
  q, k, v = Split <axis = 2, num_outputs = 3> (joined)
  by_head = Constant <value_ints = [0, 0, {HEADS}, {SIZE}]> ()
  q_split = Reshape(q, by_head)
  k_split = Reshape(k, by_head)
  v_split = Reshape(v, by_head)
  query = Transpose <perm = [0, 2, 1, 3]> (q_split)
  new_key = Transpose <perm = [0, 2, 1, 3]> (k_split)
  new_value = Transpose <perm = [0, 2, 1, 3]> (v_split)
  key = Concat <axis = -2> (past_key, new_key)
  value = Concat <axis = -2> (past_value, new_value)
  turned = Transpose <perm = [0, 1, 3, 2]> (key)
  scores = MatMul(query, turned)
  weights = Softmax <axis = -1> (scores)
  y = MatMul(weights, value)
}}"""


@jax.default_matmul_precision("highest")
def step(x: Any, weight: Any, past_key: Any, past_value: Any) -> tuple[Any, Any, Any]:
    """The same by hand, with the heads divided before queries, keys and values are."""
    joined = (x @ weight).reshape(BATCH, 1, 3, HEADS, SIZE).transpose(2, 0, 3, 1, 4)
    key = jnp.concatenate([past_key, joined[1]], 2)
    value = jnp.concatenate([past_value, joined[2]], 2)
    return jax.nn.softmax(joined[0] @ key.swapaxes(2, 3)) @ value, key, value


@pytest.mark.parametrize("target", ["v5e", "v6e"])
def test_the_cache_is_read_and_written_once(target: str, target_worker: Worker) -> None:
    model = parser.parse_model(STEP)
    weight = np.random.default_rng(0).standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    float32, cache = np.dtype(np.float32), (BATCH, HEADS, PAST, SIZE)
    shapes = (BATCH, 1, WIDTH), weight.shape, cache, cache
    by_hand = FunctionJob(step, tuple(Spec(s, float32) for s in shapes), named(target), wide=False)
    ours = accessed(target_worker, ModelJob(model.SerializeToString(), named(target)))
    assert ours <= MOST_BYTES * accessed(target_worker, by_hand)


def accessed(worker: Worker, job: Job) -> float:
    """The bytes that a program of one segment reads and writes."""
    record = worker.run(job)
    assert record.is_compiled, record.reason
    (program,) = record.programs
    assert program.facts is not None
    return program.facts.accessed

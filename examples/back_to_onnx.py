"""Train an ONNX model on JAX and return to ONNX: `python examples/back_to_onnx.py [out.onnx]`.

A small classifier learns which of its first three inputs is the largest. It computes in bfloat16;
its weights and the optimizer stay float32. The result is an ONNX file, which onnxruntime runs. The
script needs optax and onnxruntime.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import optax

import sardonyx

CLASSIFIER = Path(__file__).parents[1] / "tests" / "models" / "mlp_dynamo.onnx"
STEPS, BATCH = 300, 64


def examples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and their labels."""
    x = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    return x, x[:, :3].argmax(1)


def trained(model: sardonyx.Model) -> dict[str, Any]:
    """Return the params of the model after training."""
    fn, _ = sardonyx.to_jax(model, dtype="bfloat16")
    _, params = sardonyx.to_jax(model)  # in float32
    optimizer = optax.adam(1e-2)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        logits = fn(params, x).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params, x, labels), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for number in range(STEPS):
        params, state = step(params, state, *examples(number, BATCH))
    return params


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/trained.onnx"
    model = sardonyx.load(CLASSIFIER)
    sardonyx.save(model, path, params=trained(model))

    x, labels = examples(STEPS, 1000)
    (theirs,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    ours = sardonyx.load(path)(x)
    for title, logits in (("before", model(x)), ("after, in onnxruntime", theirs)):
        print(f"{title}: {(logits.argmax(1) == labels).mean():.0%} of new inputs are correct")
    print(f"largest difference from sardonyx: {np.abs(theirs - ours).max():.1e}")


if __name__ == "__main__":
    main()

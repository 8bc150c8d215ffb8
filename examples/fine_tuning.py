"""Fine-tune an exported classifier on JAX: `python examples/fine_tuning.py [--plot file.svg]`.

The network was exported by torch with random weights. It learns to classify five patterns in noisy
pictures. The script trains it in three ways: all params, the last layer only, and low-rank
overlays. It needs optax, and matplotlib for the plot.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sardonyx

CLASSIFIER = Path(__file__).parents[1] / "tests" / "models" / "cnn_dynamo.onnx"
HEIGHT, WIDTH = 18, 22
STEPS, BATCH = 150, 64

Params = dict[str, Any]
Put = Callable[[Any, Params], Params]


def pictures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy pictures and their labels.

    Each shows horizontal or vertical bars, a disc, a ring or a chessboard, in a random place and
    colour.
    """
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    labels = rng.integers(0, 5, count)
    images = np.empty((count, 3, HEIGHT, WIDTH), np.float32)
    for picture, label in zip(images, labels, strict=True):
        down, right = rng.integers(5, HEIGHT - 5), rng.integers(5, WIDTH - 5)
        distance = np.hypot(y - down, x - right)
        shapes = (
            (y + down) % 6 < 3,
            (x + right) % 6 < 3,
            distance < 4.5,
            np.abs(distance - 4) < 1.2,
            ((y + down) // 3 + (x + right) // 3) % 2 == 0,
        )
        picture[:] = rng.uniform(0.5, 1.5, (3, 1, 1)) * shapes[label]
    return images + rng.normal(0, 0.5, images.shape).astype(np.float32), labels


def fine_tuned(trained: Any, params: Params, put: Put) -> tuple[Params, list[float]]:
    """Train, and return the tuned params and the loss of each step."""
    fn, _ = sardonyx.to_jax(CLASSIFIER, training=True)
    optimizer = optax.adam(3e-3)

    def loss(trained: Any, params: Params, images: Any, labels: Any) -> tuple[Any, Params]:
        logits, renewed = fn(put(trained, params), images)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), params | renewed

    @jax.jit
    def step(trained: Any, params: Params, state: Any, images: Any, labels: Any) -> Any:
        slope = jax.value_and_grad(loss, has_aux=True)
        (value, params), slopes = slope(trained, params, images, labels)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(trained, updates), params, state, value

    rng, state, losses = np.random.default_rng(0), optimizer.init(trained), []
    for _ in range(STEPS):
        trained, params, state, value = step(trained, params, state, *pictures(rng, BATCH))
        losses.append(float(value))
    return put(trained, params), losses


def all_ways() -> dict[str, tuple[list[float], float]]:
    """Train in each way, and return the losses and the accuracy on new pictures."""
    fn, params = sardonyx.to_jax(CLASSIFIER)
    everything, _ = sardonyx.split_params(params, fn.trainable)
    last, _ = sardonyx.split_params(params, "classify.*")
    adapters = sardonyx.lora_init(params, 2, sorted(fn.trainable), key=0)
    laid_over: Put = lambda trained, params: params | trained  # noqa: E731
    ways: dict[str, tuple[Any, Put]] = {
        "everything": (everything, laid_over),
        "the last layer": (last, laid_over),
        "overlays of rank 2": (adapters, lambda own, params: sardonyx.apply_overlays(params, own)),
    }
    images, labels = pictures(np.random.default_rng(1), 500)
    results = {}
    for title, (trained, put) in ways.items():
        tuned, losses = fine_tuned(trained, params, put)
        right = jnp.argmax(jax.jit(fn)(tuned, images), 1) == labels
        numbers = sum(leaf.size for leaf in jax.tree.leaves(trained))
        results[f"{title} ({numbers:,} numbers)"] = losses, float(right.mean())
    return results


def plot(results: dict[str, tuple[list[float], float]], path: Path) -> None:
    """Write a plot of the losses."""
    import matplotlib as mpl  # noqa: PLC0415  (needed only for a plot)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for (title, (losses, right)), colour in zip(
        results.items(), ("#b5452c", "#4c78a8", "#6b8e6b"), strict=True
    ):
        axes.plot(losses, color=colour, linewidth=1.3, label=f"{title}: {right:.0%} correct")
    axes.set_xlabel("step")
    axes.set_ylabel("loss of a batch")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with mpl.rc_context({"svg.hashsalt": "sardonyx", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune an exported classifier on JAX.")
    parser.add_argument("--plot", type=Path, help="where to write a plot of the losses")
    arguments = parser.parse_args()
    results = all_ways()
    for title, (losses, right) in results.items():
        first, last = np.mean(losses[:5]), np.mean(losses[-5:])
        print(f"{title}: loss {first:.2f} -> {last:.2f}, {right:.0%} of new pictures correct")
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()

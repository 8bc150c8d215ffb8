"""What a model is inside of JAX, in numbers: `python -m benchmarks.inside_jax`.

Gradients against torch's on ten exported networks, the operators whose gradients are checked, and
transformations against plain loops. All on the CPU, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sardonyx
from tests.support.gradient_cases import CASES, WITHOUT
from tests.support.jax_models import drawn, mixed, perceptrons, recurrent

NETWORKS = Path(__file__).parents[1] / "tests" / "models" / "gradients"


def main() -> None:
    gradients()
    operators()
    transformations()
    print(f"\nThe jaxpr of an imported perceptron is a person's: {is_as_written()}")


def gradients() -> None:
    print("Gradients against torch's, largest difference by the largest slope of each weight")
    worst = 0.0
    for path in sorted(NETWORKS.glob("*.onnx")):
        count, error = worst_of(path)
        worst = max(worst, error)
        print(f"  {path.stem:15} {count:3} arrays   {error:.1e}")
    print(f"  {'worst':15} {'':10}   {worst:.1e}")


def worst_of(path: Path) -> tuple[int, float]:
    """By how many arrays there are slopes but zero, and the worst relative error among them."""
    fn, params = sardonyx.to_jax(path)
    kept = np.load(path.with_suffix(".npz"))
    slopes = {key.removeprefix("slope/"): kept[key] for key in kept if key.startswith("slope/")}
    by_params, by_input = jax.jit(
        jax.grad(lambda p, x: (fn(p, x) * kept["factors"]).sum(), (0, 1), allow_int=True)
    )(params, kept["in"])
    made = {**by_params, "in": by_input}
    steepest = max(np.abs(slope).max() for slope in slopes.values())
    # What a normalisation cancels has a slope of zero, of which only rounding is left.
    compared = {n: s for n, s in slopes.items() if np.abs(s).max() > 1e-9 * steepest}
    errors = [np.abs(made[n] - slope).max() / np.abs(slope).max() for n, slope in compared.items()]
    return len(compared), float(max(errors))


def operators() -> None:
    checked = {parameter.values[0].op for parameter in CASES}
    without = {name for names in WITHOUT.values() for name in names.split()}
    print(
        f"\nOperators whose gradients are checked against numeric differences: {len(checked)}, "
        f"in {len(CASES)} cases; without any: {len(without)}"
    )


def transformations() -> None:
    print("\nTransformations against the plain loop, largest difference of a result")
    for title, build, x in (("mixed", mixed, drawn(4, 5)), ("LSTM", recurrent, drawn(6, 4, 3))):
        fn, params = sardonyx.to_jax(build())
        several = jnp.stack([x, x + 1, 2 * x])
        scaled = [jax.tree.map(lambda a, by=by: a * by, params) for by in (1, 2, -1)]

        def loss(params: Any, x: Any, fn: Callable[..., Any] = fn) -> Any:
            return sum(jnp.sum(out**2) for out in fn(params, x) if out.dtype.kind == "f")

        def step(carried: Any, x: Any, fn: Callable[..., Any] = fn, params: Any = params) -> Any:
            return carried, fn(params, x)

        slopes = [jax.grad(loss)(params, one) for one in several]
        of_all = jax.grad(lambda p: jax.vmap(loss, (None, 0))(p, several).sum())  # noqa: B023
        pairs = {
            "vmap over inputs": (
                jax.vmap(fn, (None, 0))(params, several),
                stacked([fn(params, one) for one in several]),
            ),
            "vmap over params": (
                jax.vmap(fn, (0, None))(stacked(scaled), x),
                stacked([fn(one, x) for one in scaled]),
            ),
            "jit(grad(vmap))": (
                jax.jit(of_all)(params),
                jax.tree.map(lambda *a: sum(a), *slopes),
            ),
            "lax.scan": (
                jax.lax.scan(step, 0, several)[1],
                stacked([fn(params, one) for one in several]),
            ),
        }
        for name, (made, looped) in pairs.items():
            print(f"  {title:6} {name:17} {difference(made, looped):.1e}")


def stacked(results: list[Any]) -> Any:
    return jax.tree.map(lambda *a: jnp.stack(a), *results)


def difference(made: Any, looped: Any) -> float:
    """The largest by which two results differ, by the largest number in them."""
    pairs = list(zip(jax.tree.leaves(made), jax.tree.leaves(looped), strict=True))
    largest = max(float(jnp.abs(b).max()) for _, b in pairs)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs) / largest


def is_as_written() -> bool:
    """Whether JAX sees in an imported perceptron what a person would have written."""
    imported, written, params = perceptrons()
    one, other = (jax.make_jaxpr(fn)(params, drawn(4, 6)) for fn in (imported, written))
    return str(one) == str(other)


if __name__ == "__main__":
    main()

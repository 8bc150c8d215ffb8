"""One model in many threads that call it, change it and ask it, all at once.

    python -m tests.support.stress --seconds 20 --threads 16

prints the calls, the threads and the errors on each backend. Every result is compared: the model
is y = (x + state) * w * scale, in which all that threads change are powers of two, so that each
result is exact and tells which weight the call has seen.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

import numpy as np
import onnx

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.arrays import on_host
from tests.support.onnx_builders import model, node, value, weight

WIDTH = 8
WEIGHTS = (1.0, 2.0, 4.0)
SHIFTS = (0, 1, 2)
BATCHES = (1, 2, 3, 5, 7)


def changing() -> onnx.ModelProto:
    """y = (x + state) * w * scale, shifted along its last axis by a param that is static."""
    return model(
        [
            node("Add", ["x", "state"], ["next"]),
            node("Mul", ["w", "w"], ["squared"]),
            node("MatMul", ["squared", "unit"], ["rows"]),
            node("Mul", ["next", "rows"], ["weighted"]),
            node("Mul", ["weighted", "scale"], ["scaled"]),
            node("Sub", ["width", "shift"], ["start"]),
            node("Slice", ["scaled", "start", "width", "axis"], ["tail"]),
            node("Slice", ["scaled", "zero", "start", "axis"], ["head"]),
            node("Concat", ["tail", "head"], ["y"], axis=1),
        ],
        [value("x", ["n", WIDTH]), value("state", ["n", WIDTH]), value("scale", [1])],
        ["y", "next"],
        [
            weight("w", np.ones((1, WIDTH), np.float32)),
            weight("unit", np.eye(WIDTH, dtype=np.float32)),
            weight("scale", np.ones(1, np.float32)),
            weight("shift", np.array([0])),
            weight("width", np.array([WIDTH])),
            weight("axis", np.array([1])),
            weight("zero", np.array([0])),
        ],
    )


@dataclass
class Stress:
    """Threads that use one model for some time."""

    backend: Backend
    seconds: float
    threads: int
    compile: str = "now"
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def run(self) -> Stress:
        self.loaded = sardonyx.load(
            changing(), backend=self.backend, max_signatures=6, compile=self.compile
        )
        self.end = time.monotonic() + self.seconds
        workers = [Thread(target=self._work, args=(seed,)) for seed in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return self

    def _work(self, seed: int) -> None:
        drawn = random.Random(seed)
        # What makes programs anew is rare, so that most of the time calls meet replacements.
        duties: list[tuple[Callable[[random.Random], None], float]] = [
            (self._call, 60),
            (self._call_with_scale, 10),
            (self._call_with_key_and_donation, 10),
            (self._replace_weight, 18),
            (self._ask, 2),
            (self._replace_shift, 0.1),
            (self._release, 0.1),
        ]
        chosen, chances = zip(*duties, strict=True)
        while time.monotonic() < self.end:
            (duty,) = drawn.choices(chosen, chances)
            try:
                duty(drawn)
            except Exception as error:
                with self.lock:
                    self.errors.append(f"{duty.__name__}: {type(error).__name__}: {error}")
            with self.lock:
                self.counts[duty.__name__] += 1

    def _inputs(self, drawn: random.Random) -> tuple[Any, Any]:
        shape = drawn.choice(BATCHES), WIDTH
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        return x, np.full(shape, drawn.randrange(8), np.float32)

    def _check(self, outputs: Any, x: Any, state: Any, scale: float = 1) -> None:
        y, following = map(on_host, outputs)
        np.testing.assert_array_equal(following, x + state)
        possible = [
            np.roll((x + state) * w * w * scale, shift, axis=1) for w in WEIGHTS for shift in SHIFTS
        ]
        assert any(np.array_equal(y, one) for one in possible), f"a result of no moment: {y}"

    def _call(self, drawn: random.Random) -> None:
        x, state = self._inputs(drawn)
        self._check(self.loaded(x, state), x, state)

    def _call_with_scale(self, drawn: random.Random) -> None:
        x, state = self._inputs(drawn)
        scale = np.array([drawn.choice((0.5, 8))], np.float32)
        self._check(self.loaded(x, state, scale=scale), x, state, float(scale[0]))

    def _call_with_key_and_donation(self, drawn: random.Random) -> None:
        x, state = self._inputs(drawn)
        self._check(self.loaded.bind(key=drawn.randrange(9))(x, state), x, state)
        with self.backend.scope():
            given = self.backend.put(state.copy())
        self._check(self.loaded.bind(donate=["state"])(x, given), x, state)

    def _replace_weight(self, drawn: random.Random) -> None:
        self.loaded.params["w"] = np.full((1, WIDTH), drawn.choice(WEIGHTS), np.float32)

    def _replace_shift(self, drawn: random.Random) -> None:
        self.loaded.params["shift"] = np.array([drawn.choice(SHIFTS)])

    def _ask(self, drawn: random.Random) -> None:
        x, state = self._inputs(drawn)
        stats = self.loaded.stats()
        assert stats.calls >= stats.hits >= 0
        assert str(self.loaded.trace(x, state))
        assert repr(self.loaded.params)

    def _release(self, drawn: random.Random) -> None:
        self.loaded.release()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=16)
    asked = parser.parse_args()
    for name, compiles in (("numpy", "now"), ("jax", "now"), ("jax", "background")):
        backend = sardonyx.backends.find(name)
        done = Stress(backend, asked.seconds, asked.threads, compiles).run()
        calls = sum(done.counts[duty] for duty in done.counts if duty.startswith("_call"))
        title = f"{name}, compile={compiles}"
        print(f"{title}: {calls:,} calls, {asked.threads} threads, {len(done.errors)} errors")
        print(
            "   ", ", ".join(f"{n:,} {duty.strip('_')}" for duty, n in sorted(done.counts.items()))
        )
        for error, count in Counter(done.errors).most_common(10):
            print(f"    {count:,} times {error[:300]}")


if __name__ == "__main__":
    main()

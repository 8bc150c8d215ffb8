"""What tests of logging share: a handler that collects records, and small models."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import onnx
import pytest

from sardonyx.backends import available
from tests.support.onnx_builders import INT64, model, node, value, weight

H = TypeVar("H", bound=logging.Handler)

X = np.ones((2, 3), np.float32)
BACKENDS = [
    pytest.param(name, marks=[pytest.mark.gpu] if name == "cupy" else []) for name in available()
]
# Seconds after which a call is taken to wait forever.
FOREVER = 60.0


def doubled(*, name: str = "x") -> onnx.ModelProto:
    return model([node("Add", [name, name], ["y"])], [value(name, ["n", 3])], ["y"])


def product() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    return model(nodes, [value("x", ["n", 3])], ["y"], [weight("w", np.eye(3, dtype=np.float32))])


def reshaped() -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("Neg", ["r"], ["y"])]
    return model(nodes, [value("x", ["n", 3]), value("shape", [1], INT64)], ["y"])


class Records(logging.Handler):
    """Collects records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, name: str = "", level: int = logging.DEBUG) -> list[str]:
        """The messages of a logger from a level on."""
        chosen = [r for r in self.records if r.levelno >= level]
        return [r.getMessage() for r in chosen if r.name.startswith(f"sardonyx.{name}")]

    def one(self, name: str, words: str) -> logging.LogRecord:
        """The only record of a logger with these words."""
        (record,) = [
            r for r in self.records if r.name == f"sardonyx.{name}" and words in r.getMessage()
        ]
        return record


@contextmanager
def listening(handler: H) -> Iterator[H]:
    """Let a handler get all records of sardonyx."""
    logger = logging.getLogger("sardonyx")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_subprocess(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, *options, "-c", code]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run(run, env=env, capture_output=True, text=True, check=False)

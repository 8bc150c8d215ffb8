"""Compiles several stages at once, since XLA spends much of its time in one thread per program."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from sardonyx.backends import processors
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.values.params import Weights


def compile_stages(stages: Sequence[Stage], compiler: Compiler, weights: Weights) -> None:
    """Compile the stages, and prepare their weights. Equal stages are compiled once."""
    if len(stages) < 2 or not compiler.backend.compiled:
        for stage in stages:
            stage.compile(compiler, weights)
        return
    with ThreadPoolExecutor(min(len(stages), processors.available())) as pool:
        started = [
            pool.submit(copy_context().run, stage.compile, compiler, weights) for stage in stages
        ]
        for compilation in started:
            compilation.result()

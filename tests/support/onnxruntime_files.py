"""Files that onnxruntime's own tools write from the recorded models, and what becomes of them here.

`python -m tests.support.onnxruntime_files` prints a table: for each tool, how many of the files
that onnxruntime runs sardonyx runs too, with equal results. Arguments name other models: those of
tests/models, a family of the zoo such as `zoo/text_decoders`, or one graph of it.
"""

from __future__ import annotations

import logging
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnxruntime import GraphOptimizationLevel as Level
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.float16 import convert_float_to_float16

import sardonyx
from tests.support.agreement import COARSE, EXACT, of_all
from tests.support.byte_products import are_exact
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls
from tests.zoo import recording

# Writes a file from the path of a model to a new path; the name says which recorded calls fit.
Tool = Callable[[str, Path, Path], None]


# -- tools ----------------------------------------------------------------------------------------


def optimized(level: Level, name: str, source: Path, target: Path) -> None:
    options = quiet(level)
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def dynamic(weights: QuantType, name: str, source: Path, target: Path) -> None:
    quantize_dynamic(source, target, weight_type=weights, reduce_range=not are_exact())


def static(form: QuantFormat, types: tuple[QuantType, ...], *task: Any, **options: Any) -> None:
    name, source, target = task
    activations, weights = types
    quantize_static(
        source,
        target,
        Recorded(name),
        quant_format=form,
        activation_type=activations,
        weight_type=weights,
        # As onnxruntime advises for processors without products of bytes.
        reduce_range=weights == QuantType.QInt8 and not are_exact(),
        **options,
    )


class Recorded(CalibrationDataReader):
    """The recorded inputs of a model, for calibration."""

    def __init__(self, name: str) -> None:
        self._feeds = iter(feeds_of(name))

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def few_bits(bits: int, name: str, source: Path, target: Path, **options: Any) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=16, **options)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def transformers(kind: str, name: str, source: Path, target: Path) -> None:
    fused = optimizer.optimize_by_fusion(onnx.load(source), kind)
    fused.save_model_to_file(str(target))


def halves(name: str, source: Path, target: Path, *, keeps_ends: bool) -> None:
    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=keeps_ends), target)


def then(first: Tool, second: Tool) -> Tool:
    """Return the tool that applies two tools, one to the file of the other."""

    def both(name: str, source: Path, target: Path) -> None:
        between = target.with_name("between.onnx")
        first(name, source, between)
        second(name, between, target)

    return both


INT8 = QuantType.QUInt8, QuantType.QInt8
INT16 = QuantType.QInt16, QuantType.QInt16
INT4 = QuantType.QInt8, QuantType.QInt4
QDQ = partial(static, QuantFormat.QDQ, INT8)
QOPERATOR = partial(static, QuantFormat.QOperator, INT8)
DYNAMIC = partial(dynamic, QuantType.QUInt8)
ALL = partial(optimized, Level.ORT_ENABLE_ALL)
TOOLS: Mapping[str, Tool] = {
    "optimizer, BASIC": partial(optimized, Level.ORT_ENABLE_BASIC),
    "optimizer, EXTENDED": partial(optimized, Level.ORT_ENABLE_EXTENDED),
    "optimizer, ALL": ALL,
    "dynamic, uint8 weights": DYNAMIC,
    "dynamic, int8 weights": partial(dynamic, QuantType.QInt8),
    "QDQ, int8": QDQ,
    "QDQ, int8 per channel": partial(QDQ, per_channel=True),
    "QDQ, int16": partial(static, QuantFormat.QDQ, INT16),
    "QDQ, int4 weights": partial(static, QuantFormat.QDQ, INT4),
    "QOperator, int8": QOPERATOR,
    "QOperator, int8 per channel": partial(QOPERATOR, per_channel=True),
    "dynamic, then optimizer, ALL": then(DYNAMIC, ALL),
    "QDQ, then optimizer, ALL": then(QDQ, ALL),
    "QOperator, then optimizer, ALL": then(QOPERATOR, ALL),
    "MatMulNBits, 4 bits": partial(few_bits, 4),
    "MatMulNBits, 4 bits symmetric": partial(few_bits, 4, is_symmetric=True),
    "MatMulNBits, 8 bits": partial(few_bits, 8),
    "MatMulNBits, 4 bits QDQ": partial(few_bits, 4, quant_format=QuantFormat.QDQ),
    "transformers.optimizer, bert": partial(transformers, "bert"),
    "transformers.optimizer, gpt2": partial(transformers, "gpt2"),
    "transformers.optimizer, bart": partial(transformers, "bart"),
    "transformers.optimizer, t5": partial(transformers, "t5"),
    "transformers.optimizer, vit": partial(transformers, "vit"),
    "float16": partial(halves, keeps_ends=False),
    "float16 inside": partial(halves, keeps_ends=True),
}
# The tools whose files compute with fewer than 16 bits.
OF_FEW_BITS = ("dynamic", "QDQ", "QOperator", "MatMulNBits", "float16")


# -- models ---------------------------------------------------------------------------------------

IN_ZOO = "zoo/"


def chosen(names: list[str]) -> list[str]:
    """Return the names of models, each family of the zoo as all of its graphs of whole floats."""
    models = []
    for name in names:
        folder = recording.FOLDER / name.removeprefix(IN_ZOO)
        if not (name.startswith(IN_ZOO) and folder.is_dir()):
            models.append(name)
            continue
        stems = [path.name.removesuffix(".onnx.xz") for path in sorted(folder.glob("*.onnx.xz"))]
        graphs = [f"{name}/{stem}" for stem in stems]
        models += [graph for graph in graphs if not in_zoo(graph).coarse]
    return models


@cache
def in_zoo(name: str) -> recording.Restored:
    """Return a graph of the zoo, with weights drawn anew."""
    return recording.restored(recording.FOLDER / f"{name.removeprefix(IN_ZOO)}.onnx.xz")


def content_of(name: str) -> bytes:
    if name.startswith(IN_ZOO):
        return in_zoo(name).content
    return (FOLDER / f"{name}.onnx").read_bytes()


def feeds_of(name: str) -> list[dict[str, Any]]:
    """Return the inputs of a model's calls."""
    if name.startswith(IN_ZOO):
        return [dict(call.feeds) for call in in_zoo(name).calls]
    return [feeds for feeds, _ in recorded_calls(name)]


# -- results --------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What became of one file: "equal", "different", "refused" or "not run by onnxruntime"."""

    kind: str
    detail: str = ""
    # The unsupported operators, for a file that is refused for them.
    missing: frozenset[str] = frozenset()


def outcomes(names: list[str] = NAMES) -> Iterator[tuple[str, str, Outcome]]:
    """Yield each tool and model with what became of the tool's file."""
    for tool in TOOLS:
        yield from ((tool, name, outcome(tool, name)) for name in names)


@cache
def outcome(tool: str, name: str) -> Outcome:
    """Write a file, run it in onnxruntime with and without optimization, and here."""
    try:
        content = written(tool, name)
        calls = [_in_its_types(content, feeds) for feeds in feeds_of(name)]
        plain = [_in_onnxruntime(content, feeds, Level.ORT_DISABLE_ALL) for feeds in calls]
        fused = [_in_onnxruntime(content, feeds, Level.ORT_ENABLE_ALL) for feeds in calls]
    except Exception as error:  # Each tool has its own exceptions for models that it cannot take.
        return Outcome("not run by onnxruntime", _first_line(error))
    try:
        loaded = sardonyx.load(content, backend="numpy")
        ours = [loaded.run(None, feeds) for feeds in calls]
    except sardonyx.SardonyxError as error:
        return Outcome("refused", _first_line(error), _missing_operators(error))
    agreed = of_all(plain, fused, ours, COARSE if tool.startswith(OF_FEW_BITS) else EXACT)
    return Outcome("different", agreed.why) if agreed.why else Outcome("equal")


def written(tool: str, name: str) -> bytes:
    """Return the content of the file that a tool writes from a recorded model."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.onnx", Path(folder) / "written.onnx"
        source.write_bytes(content_of(name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            onnxruntime.set_default_logger_severity(4)
            try:
                TOOLS[tool](name, source, target)
            finally:
                onnxruntime.set_default_logger_severity(2)
                logging.disable(logging.NOTSET)
        return target.read_bytes()


def quiet(level: Level) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    return options


def _in_onnxruntime(content: bytes, feeds: dict[str, Any], level: Level) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(content, quiet(level))
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def _in_its_types(content: bytes, feeds: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded inputs in the types that the file declares."""
    declared = {info.name: info for info in onnx.load_from_string(content).graph.input}
    types = {
        name: onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        for name, info in declared.items()
    }
    return {name: np.asarray(value).astype(types[name]) for name, value in feeds.items()}


def _missing_operators(error: Exception) -> frozenset[str]:
    """Return the operators that the error names as unsupported."""
    if not isinstance(error, sardonyx.UnsupportedModel):
        return frozenset()
    text = str(error).partition("unsupported operator")[2].partition(": ")[2]
    names = (re.match(r"[\w.]*(::)?\w+", part) for part in text.split("; "))
    return frozenset(match.group() for match in names if match)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


# -- the table ------------------------------------------------------------------------------------


def main() -> None:
    """Print a line for each tool, and every file that does not run as in onnxruntime."""
    counts: dict[str, Counter[str]] = {tool: Counter() for tool in TOOLS}
    failures = []
    for tool, name, result in outcomes(chosen(sys.argv[1:] or NAMES)):
        counts[tool][result.kind] += 1
        if result.kind in ("different", "refused"):
            why = ", ".join(sorted(result.missing)) or result.detail
            failures.append(f"{tool}, {name}: {result.kind}: {why}")
    print("| tool | files that onnxruntime runs | equal here | different | refused |")
    print("|---|---|---|---|---|")
    rows = [*counts.items(), ("all", sum(counts.values(), Counter()))]
    for tool, count in rows:
        kinds = [count[kind] for kind in ("equal", "different", "refused")]
        print(f"| {tool} | {sum(kinds)} | {' | '.join(map(str, kinds))} |")
    print("", *failures, sep="\n")


if __name__ == "__main__":
    main()

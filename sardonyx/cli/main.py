"""The command line: `sardonyx demo`, `show MODEL`, `check MODEL`, `compile MODEL` and `ops`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from sardonyx.arguments import PRECISIONS
from sardonyx.backends import find
from sardonyx.cli.check import check
from sardonyx.cli.check_targets import check_targets
from sardonyx.cli.compile_ahead import SUFFIX, compile_ahead
from sardonyx.cli.compile_for_target import compile_for_target
from sardonyx.cli.demo import demo
from sardonyx.cli.operator_page import page
from sardonyx.cli.show_html import show_html
from sardonyx.cli.tables import grid, put, screen
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph.checking.audit import all_nodes, audit
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.printable import LONGEST_NAME, printable
from sardonyx.targets.names import GENERATIONS, GPUS
from sardonyx.targets.names import SUFFIX as SUFFIX_OF_GPUS
from sardonyx.targets.worker import LIMIT

# Maximum characters of a property: exporters write whole configurations into them.
LONGEST_TEXT = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status, 1 for an error."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "demo":
            return demo(options.backend, options.device)
        if options.command == "ops":
            print(page(), end="")
            return 0
        if options.command == "compile":
            print(_compiled(options))
            return 0
        if options.command == "check":
            return _checked(options)
        _show(options)
    except SardonyxError as error:
        print(f"sardonyx: {error}", file=sys.stderr)
        return 1
    return 0


def _show(options: argparse.Namespace) -> None:
    if options.html is not None:
        print(show_html(options.model, options.html, options.shape, options.backend))
        return
    if options.shape:
        raise InvalidInput("--shape has an effect only with --html.")
    show(options.model, options.backend)


def _checked(options: argparse.Namespace) -> int:
    with_targets = {name: getattr(options, name) for name in ("precision", "rules", "mesh", "json")}
    elsewhere = {name: getattr(options, name) for name in ("backend", "device")}
    for name, value in (elsewhere if options.target else with_targets).items():
        if value:
            only = "without" if options.target else "with"
            raise InvalidInput(f"--{name} has an effect only {only} --target.")
    if not options.target:
        return check(options.model, options.shape, options.backend, options.device)
    return check_targets(
        options.model,
        options.target,
        options.shape,
        precision=options.precision,
        rules=options.rules,
        mesh=options.mesh,
        limit=options.limit,
        as_json=options.json,
    )


def _compiled(options: argparse.Namespace) -> str:
    if options.target is not None:
        if options.backend not in (None, "jax") or options.device is not None:
            raise InvalidInput(
                "--target compiles for JAX on that hardware: leave out --backend and --device."
            )
        return compile_for_target(
            options.model,
            options.shape,
            options.output,
            target=options.target,
            precision=options.precision,
            limit=options.limit,
        )
    return compile_ahead(
        options.model,
        options.shape,
        options.output,
        backend=options.backend,
        device=options.device,
        precision=options.precision,
    )


def show(path: str, backend: str | None) -> None:
    """Print a description of a model; then raise an error if the model cannot run."""
    source = load_source(*read_model(path))
    console = screen()
    put(console, _description(source))
    audit(source, strict=True)
    console.print(f"\nThe model can run; the backend is {find(backend).name}.")


def _description(source: Source) -> Table:
    graph = source.graph
    operators = Counter(node.operator for node, _ in all_nodes(source))
    counts = ", ".join(f"{count} {name}" for name, count in operators.most_common())
    opsets = ", ".join(f"{name or 'ai.onnx'} {v}" for name, v in source.opsets.items())
    sizes = [array.nbytes for array in graph.initializers.values()]
    rows = [
        ("inputs", "\n".join(map(str, graph.required_inputs))),
        ("outputs", "\n".join(map(str, graph.outputs))),
        ("opsets", printable(opsets)),
        ("params", f"{len(sizes)}, {sum(sizes):,} bytes"),
        *((printable(name, LONGEST_NAME), _abridged(t)) for name, t in source.metadata.items()),
        ("nodes", f"{operators.total()}: {printable(counts)}"),
    ]
    return grid(rows, "bold", "none")


def _abridged(text: str) -> str:
    shown = printable(text[:LONGEST_TEXT])
    return f"{shown}... ({len(text):,} characters)" if len(text) > LONGEST_TEXT else shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sardonyx", description="Runs ONNX graphs on JAX, CuPy and NumPy."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo_parser = commands.add_parser("demo", help="run the example model and print a report")
    demo_parser.add_argument("--backend", help="jax, cupy or numpy (default: the best installed)")
    demo_parser.add_argument(
        "--device", help="cpu, cuda, cuda:1 or tpu (default: the backend's default device)"
    )
    show_parser = commands.add_parser(
        "show", help="print the inputs, outputs and operators of a model"
    )
    show_parser.add_argument("model", metavar="MODEL", help="the path of an ONNX file")
    show_parser.add_argument("--backend", help="jax, cupy or numpy: the backend to check")
    show_parser.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="OUT",
        help="write the graph as an interactive page (default: MODEL with .html)",
    )
    show_parser.add_argument(
        "--shape",
        nargs="+",
        default=[],
        metavar="INPUT=SIZES",
        help="with --html, the shapes of a call, whose kinds and segments the page then shows",
    )
    _add_check(commands.add_parser("check", help="print whether a model runs, and where"))
    _add_compile(commands.add_parser("compile", help="compile a model ahead, into one file"))
    commands.add_parser("ops", help="print all operators, their types and where they run")
    return parser


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print the operators that sardonyx does not have; or the segments of a call, where each "
        "runs and what it costs by the compiler's counts. With --target the model is compiled for "
        "TPUs and GPUs that need not be here, which needs the extra 'aot'."
    )
    parser.add_argument("model", metavar="MODEL", help="the path of an ONNX file")
    parser.add_argument(
        "--shape",
        nargs="+",
        default=[],
        metavar="INPUT=SIZES",
        help="the sizes of inputs, as in --shape x=1,3,224,224 (default: the fixed ones, else 1)",
    )
    parser.add_argument("--backend", help="jax, cupy or numpy (default: the best installed)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 or tpu")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{', '.join(GENERATIONS)}, v5e:2x2, {', '.join(GPUS)}, h100:8 or a {SUFFIX_OF_GPUS} "
        "file; repeat it for others",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="with --target, as in sardonyx.load"
    )
    parser.add_argument("--rules", help="with a mesh as target: data, tensor or annotations")
    parser.add_argument(
        "--mesh",
        nargs="+",
        default=[],
        metavar="NAME=SIZE",
        help="with a mesh as target, its axes, as in --mesh data=2 model=4 (default: data)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help=f"with --target, the time for each (default: {LIMIT:g})",
    )
    parser.add_argument(
        "--json", action="store_true", help="with --target, print all figures as JSON"
    )


def _add_compile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a model for calls of some shapes, and write the programs to one file. "
        "sardonyx.load(MODEL, cache=FILE) starts from it on any machine of this kind."
    )
    parser.add_argument("model", metavar="MODEL", help="the path of an ONNX file")
    parser.add_argument(
        "--shape",
        nargs="+",
        action="append",
        default=[],
        metavar="INPUT=SIZES",
        help="the shapes of one call, as in --shape ids=1,128 mask=1,128; repeat it for others",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"where to write (default: MODEL with {SUFFIX})"
    )
    parser.add_argument("--backend", help="jax (default: the best installed)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 or tpu (default: JAX's own choice)")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="a TPU or GPU that need not be here, such as v5e or h100; it needs the extra aot",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help=f"with --target, how long the compiler may take (default: {LIMIT:g})",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="highest", help="as in sardonyx.load"
    )

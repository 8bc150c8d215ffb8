"""`sardonyx run`: the outputs of a model for files or random inputs, on one backend or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.cli.agreement import Agreement, agreement_table, agreements
from sardonyx.cli.array_files import save_outputs
from sardonyx.cli.command import command as as_command
from sardonyx.cli.inputs.feeds import Feeds, described, feeds_of
from sardonyx.cli.inputs.options import InputOptions, input_options
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    RUNTIME,
    backends_option,
    device_option,
    json_option,
    model_argument,
    output_option,
    precision_option,
    quiet_option,
    tolerance_option,
)
from sardonyx.cli.runners import Runner, declared, opened, places
from sardonyx.cli.summaries import summaries, summary_table
from sardonyx.cli.tables import put, screen
from sardonyx.printable import printable
from sardonyx.progress import working

# The name of the outputs in a folder of test data.
EXPECTED = "test data"

Outputs = Mapping[str, Any]


@as_command("run")
@model_argument
@input_options(draws=False)
@backends_option("Where to run: jax, cupy, numpy or onnxruntime; repeat it to compare several.")
@device_option
@precision_option()
@output_option("Write the outputs of the first backend to this .npz file.")
@tolerance_option
@json_option
@quiet_option
def command(
    model: str,
    inputs: InputOptions,
    backends: Sequence[str],
    device: str | None,
    precision: str,
    output: str | None,
    tolerance: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a model on files or random inputs, on one backend or several.

    Outputs of several backends are compared, as are those of a folder of ONNX test data with its
    output_0.pb. The status is 1 if they differ by more than the tolerance.

    \b
    sardonyx run model.onnx --input x=photo.jpg --pixels imagenet
    sardonyx run model.onnx --input inputs.npz --output outputs.npz
    sardonyx run model.onnx --random --shape x=1,3,224,224 --backend jax --backend onnxruntime
    sardonyx run model.onnx --input test_data_set_0
    """
    # A comparison is of compiled programs; one run alone need not wait for the compiler.
    compile_when = "now" if len(backends) > 1 else None
    wanted = places(backends, device, precision, compile_when)
    runners = [opened(model, place, key=inputs.seed % 2**64) for place in wanted]
    feeds = feeds_of(_described_model(model, runners), inputs)
    results = [(runner.title, _outputs(runner, feeds)) for runner in runners]
    differences = _agreements(results, feeds, tolerance)
    if output is not None:
        save_outputs(output, results[0][1])
    if as_json:
        _put_json(model, feeds, results, differences)
    elif not quiet:
        _put(model, feeds, results, differences, output)
    return int(any(each.difference.parts for each in differences))


def _described_model(path: str, runners: Sequence[Runner]) -> Any:
    """Return what says the inputs and outputs: a loaded model, if there is one."""
    models = [runner.model for runner in runners if runner.title != RUNTIME]
    return models[0] if models else declared(path)


def _outputs(runner: Runner, feeds: Feeds) -> Outputs:
    with working(f"running on {runner.title}"):
        return runner.run(feeds.inputs)


def _agreements(
    results: Sequence[tuple[str, Outputs]], feeds: Feeds, tolerance: float | None
) -> list[Agreement]:
    reference, *others = results
    differences = agreements(reference, others, tolerance)
    if feeds.expected:
        for result in results:
            differences += [
                Agreement(each.output, each.sides[::-1], each.difference)
                for each in agreements((EXPECTED, feeds.expected), [result], tolerance)
            ]
    return differences


def _put(
    model: str,
    feeds: Feeds,
    results: Sequence[tuple[str, Outputs]],
    differences: Sequence[Agreement],
    output: str | None,
) -> None:
    console = screen()
    console.print(f"{printable(model)} on {results[0][0]}", style="bold")
    console.print(f"{printable(described(feeds.inputs)) or 'without inputs'}\n")
    put(console, summary_table(list(summaries(results[0][1]))))
    if differences:
        sides = dict.fromkeys(each.sides for each in differences)
        for one, other in sides:
            console.print(f"\n{one} and {other}", style="bold")
            put(
                console,
                agreement_table([each for each in differences if each.sides == (one, other)]),
            )
    if output is not None:
        console.print(f"\nThe outputs are in {printable(output)}.")


def _put_json(
    model: str,
    feeds: Feeds,
    results: Sequence[tuple[str, Outputs]],
    differences: Sequence[Agreement],
) -> None:
    put_json(
        {
            "model": model,
            "inputs": [row._asdict() for row in summaries(feeds.inputs)],
            "runs": [
                {"backend": title, "outputs": [row._asdict() for row in summaries(outputs)]}
                for title, outputs in results
            ],
            "comparisons": [each.as_dict() for each in differences],
            "agrees": not any(each.difference.parts for each in differences),
        }
    )

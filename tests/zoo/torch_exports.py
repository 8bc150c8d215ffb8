"""Both of torch's exporters, for the families whose models are torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from tests.zoo.entry import Call, Entry

DYNAMO, TORCHSCRIPT = "torch dynamo", "torch torchscript"


@dataclass(frozen=True)
class Network:
    """A module, its inputs by name (the first call is traced) and the axes that may change."""

    name: str
    build: Callable[[], torch.nn.Module]
    calls: Sequence[Mapping[str, torch.Tensor]]
    outputs: Sequence[str] = ("y",)
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    exporters: Sequence[str] = (DYNAMO, TORCHSCRIPT)
    opset: int | None = None


def function(
    name: str,
    computation: Callable[..., Any],
    *calls: Mapping[str, torch.Tensor],
    exporters: Sequence[str] = (DYNAMO, TORCHSCRIPT),
    opset: int | None = None,
) -> Network:
    """Return a network without weights; the axes whose sizes differ between calls may change."""
    return Network(
        name,
        lambda: _Function(computation),
        calls,
        # A name that exporters do not use for values inside.
        outputs=("returned",),
        axes=changing_axes(calls),
        exporters=exporters,
        opset=opset,
    )


class _Function(nn.Module):
    """A function as a module whose inputs are the parameters without a default value."""

    def __init__(self, computation: Callable[..., Any]) -> None:
        super().__init__()

        def forward(*inputs: torch.Tensor, **by_name: torch.Tensor) -> Any:
            return computation(*inputs, **by_name)

        # Exporters read the inputs' names from it, and would pass default values as inputs.
        parameters = signature(computation).parameters.values()
        inputs = [each for each in parameters if each.default is Parameter.empty]
        forward.__signature__ = Signature(inputs)
        self.forward = forward


def changing_axes(calls: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, dict[int, str]]:
    """Return the axes of each input whose sizes differ between calls, with names for them."""
    shapes = {name: [call[name].shape for call in calls] for name in calls[0]}
    return {
        name: {
            axis: f"{name}_{axis}"
            for axis, sizes in enumerate(zip(*several, strict=True))
            if len(set(sizes)) > 1
        }
        for name, several in shapes.items()
    }


def exports_of(networks: Sequence[Network], *, coarse: bool = False) -> Iterator[Entry]:
    """Yield each network by each of its exporters."""
    for network in networks:
        for exporter in network.exporters:
            yield Entry(network.name, exporter, _writer(network, exporter), coarse)


def _writer(network: Network, exporter: str) -> Callable[[Path], Sequence[Call]]:
    def write(path: Path) -> Sequence[Call]:
        torch.manual_seed(0)
        # A fused kernel for which the older exporter has no operator.
        torch.backends.mha.set_fastpath_enabled(False)
        module = network.build().eval()
        with torch.no_grad():
            results = [_flat(module(**call)) for call in network.calls]
            _export(network, module, exporter, path)
        # Exporters drop inputs that nothing reads.
        names = [each.name for each in onnx.load(path).graph.input]
        return [
            Call({name: call[name].numpy() for name in names}, expected)
            for call, expected in zip(network.calls, results, strict=True)
        ]

    return write


def _export(network: Network, module: torch.nn.Module, exporter: str, path: Path) -> None:
    first = network.calls[0]
    options: dict[str, Any] = {
        "input_names": list(first),
        "output_names": list(network.outputs),
        "opset_version": network.opset,
        "verbose": False,
    }
    if exporter == DYNAMO:
        shapes = {
            name: dict.fromkeys(network.axes.get(name, {}), torch.export.Dim.AUTO) for name in first
        }
        options |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False}
        torch.onnx.export(module, (), str(path), kwargs=dict(first), **options)
    else:
        options |= {"dynamo": False, "dynamic_axes": network.axes}
        torch.onnx.export(module, (dict(first),), str(path), **options)


def _flat(results: Any) -> list[np.ndarray]:
    """Return tensors in the order in which exporters flatten tuples, lists and mappings."""
    if isinstance(results, torch.Tensor):
        return [results.numpy()]
    if results is None:
        return []
    parts = results.values() if isinstance(results, Mapping) else results
    return [array for part in parts for array in _flat(part)]

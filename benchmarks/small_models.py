"""Small networks with random weights: written by torch, by onnxruntime's quantizer, or by hand.

`small_written.py` holds those that are written by hand. All of them are for one call of batch 1.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnxruntime import quantization
from torch import nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.exports import Decoder, Logits, settle
from benchmarks.small_written import WRITTEN

Example = tuple[nn.Module, tuple[torch.Tensor, ...]]
Feeds = dict[str, np.ndarray[Any, Any]]


def names() -> list[str]:
    """The networks, by name."""
    return [*_EXPORTED, *_QUANTIZED, *WRITTEN]


def write(name: str, folder: Path) -> None:
    """Write the ONNX file of a network, and the inputs of a call beside it, unless they exist."""
    path, inputs = folder / f"{name}.onnx", folder / f"{name}.npz"
    if inputs.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if name in WRITTEN:
        model, feeds = WRITTEN[name]()
        onnx.save(model, path)
    elif name in _QUANTIZED:
        feeds = _quantize(path, **_QUANTIZED[name])
    else:
        feeds = _export(*_EXPORTED[name](), path)
    # Its presence says that the model is complete.
    unfinished = folder / f"{name}.unfinished.npz"
    np.savez(unfinished, **feeds)
    os.replace(unfinished, inputs)


def _export(network: nn.Module, inputs: Sequence[torch.Tensor], path: Path) -> Feeds:
    names = [f"x{i}" for i in range(len(inputs))]
    network.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network, tuple(inputs), input_names=names, dynamo=True, verbose=False
        )
    assert program is not None
    program.save(path, external_data=False)
    return {name: array.numpy() for name, array in zip(names, inputs, strict=True)}


# -- quantized -------------------------------------------------------------------------------------


class _OneCall(quantization.CalibrationDataReader):
    def __init__(self, feeds: Feeds) -> None:
        self._calls = iter([feeds])

    def get_next(self) -> Feeds | None:
        return next(self._calls, None)


def _quantize(path: Path, of: str, form: quantization.QuantFormat | None, **options: Any) -> Feeds:
    """Write an exported network with its convolutions or products in integers."""
    source = path.with_suffix(".float.onnx")
    feeds = _export(*_EXPORTED[of](), source)
    if form is None:
        quantization.quantize_dynamic(_without_types(source), path)
    else:
        quantization.quantize_static(source, path, _OneCall(feeds), quant_format=form, **options)
    source.unlink()
    return feeds


def _without_types(path: Path) -> onnx.ModelProto:
    """The quantizer replaces weights, but not the types that the exporter wrote beside them."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    return model


_SIGNED = {"activation_type": quantization.QuantType.QInt8, "per_channel": True}
_QUANTIZED: dict[str, dict[str, Any]] = {
    "resnet_qdq": {"of": "resnet", "form": quantization.QuantFormat.QDQ, **_SIGNED},
    "mobile_qdq": {"of": "mobile", "form": quantization.QuantFormat.QDQ},
    "mobile_qoperator": {
        "of": "mobile",
        "form": quantization.QuantFormat.QOperator,
        "op_types_to_quantize": ["Conv"],
    },
    "bert_dynamic_int8": {"of": "bert", "form": None},
}


# -- exported by torch -----------------------------------------------------------------------------


class UNet(nn.Module):
    """Two levels down and up, with skips and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double(3, 16), _double(16, 32), _double(32, 64)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)]
        )
        self.after = nn.ModuleList([_double(64, 32), _double(32, 16)])
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for up, block, skip in zip(self.up, self.after, skips[-2::-1], strict=True):
            x = block(torch.cat([up(x), skip], 1))
        made: torch.Tensor = self.head(x)
        return made


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.recurrent = kind(32, 64, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.recurrent(x)[0]
        return made


class SpatialTransformer(nn.Module):
    """An image, sampled on a grid that a network computes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(128, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.head(self.features(x).flatten(1)).reshape(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class MixtureOfExperts(nn.Module):
    """The best two of eight experts for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 8)
        self.experts = nn.Parameter(torch.randn(8, 64, 64) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, chosen = torch.topk(self.gate(x), 2)
        products = torch.einsum("td,tkde->tke", x, self.experts[chosen])
        return (torch.softmax(scores, -1)[..., None] * products).sum(1)


class Ranking(nn.Module):
    """Scores of 4,096 items: all of them sorted, and the best ten."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, order = torch.sort(x, dim=-1, descending=True)
        best, which = torch.topk(x * 2, 10)
        return values, order, best, which


class GraphNetwork(nn.Module):
    """Messages along 2,000 edges, added up at 300 nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(64, 32), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        pairs = torch.cat([x[edges[0]], x[edges[1]]], -1)
        messages = torch.relu(self.message(pairs))
        index = edges[1][:, None].expand(-1, 32)
        sums = torch.zeros_like(x).scatter_add(0, index, messages)
        made: torch.Tensor = self.update(torch.cat([x, sums], -1))
        return made


class Recommender(nn.Module):
    """Eight embedding tables, their pairwise products, and a small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 16) for _ in range(8))
        self.dense = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.triu_indices(9, 9, 1))

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        rows = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack([*rows, x], 1)
        products = stacked @ stacked.transpose(1, 2)
        made: torch.Tensor = self.dense(products[:, self.pairs[0], self.pairs[1]])
        return made


def _double(inputs: int, outputs: int) -> nn.Sequential:
    first, second = (
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.Conv2d(outputs, outputs, 3, padding=1),
    )
    return nn.Sequential(first, nn.BatchNorm2d(outputs), nn.ReLU(), second, nn.ReLU())


def _mobile() -> nn.Module:
    """Depthwise and pointwise convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6()]
    for inputs, outputs, stride in (
        (16, 32, 1),
        (32, 64, 2),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
    ):
        layers += [nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs), nn.ReLU6()]
        layers += [nn.Conv2d(inputs, outputs, 1), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def _generator() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((64, 64), (64, 32), (32, 16)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.InstanceNorm2d(outputs)]
        layers += [nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())


def _super_resolution() -> nn.Module:
    body = [nn.Conv2d(3, 32, 3, padding=1), nn.PReLU(32), nn.Conv2d(32, 48, 3, padding=1)]
    return nn.Sequential(*body, nn.PixelShuffle(4), nn.Upsample(scale_factor=2, mode="bilinear"))


def _waveform() -> nn.Module:
    """Dilated one-dimensional convolutions."""
    layers: list[nn.Module] = [nn.Conv1d(1, 32, 5, padding=2)]
    for dilation in (1, 2, 4, 8):
        layers += [nn.Conv1d(32, 32, 3, padding=dilation, dilation=dilation), nn.GELU()]
        layers += [nn.GroupNorm(4, 32)]
    return nn.Sequential(*layers, nn.Conv1d(32, 1, 1))


def _image(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size)


def _ids(length: int, vocabulary: int = 512) -> torch.Tensor:
    return torch.randint(vocabulary, (1, length))


def _of_images(kind: str, size: int, **options: Any) -> Callable[[], Example]:
    def make() -> Example:
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(num_labels=10, **options)
        network = getattr(transformers, f"{kind}ForImageClassification")(config)
        settle(network, torch.randn(8, 3, size, size))
        return Logits(network), (_image(size),)

    return make


def _simple(make: Callable[[], nn.Module], *inputs: Callable[[], torch.Tensor]) -> Any:
    def example() -> Example:
        torch.manual_seed(0)
        return make(), tuple(each() for each in inputs)

    return example


def _bert() -> Example:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256,
    )  # fmt: skip
    network = transformers.BertForSequenceClassification(config)

    class Classifier(Logits):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(ids).logits
            return logits

    return Classifier(network), (_ids(32),)


def _causal(kind: str, **options: Any) -> Callable[[], Example]:
    """A decoder's step with 16 tokens in its cache."""

    def make() -> Example:
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(vocab_size=512, **options)
        name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
        past = [torch.randn(1, 4, 16, 16) for _ in range(4)]
        return Decoder(getattr(transformers, name)(config)), (_ids(1), *past)

    return make


_LLAMA = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2}
_LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 4}
_STAGES = {"hidden_sizes": [16, 32, 64, 128], "depths": [2, 2, 2, 2]}
_EXPORTED: dict[str, Callable[[], Example]] = {
    "efficientnet": _of_images(
        "EfficientNet", 96, width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640,
    ),
    "resnet": _of_images(
        "ResNet", 64, embedding_size=16, layer_type="basic", **_STAGES
    ),
    "convnext": _of_images("ConvNext", 64, **_STAGES),
    "regnet": _of_images(
        "RegNet", 64, embedding_size=16, groups_width=8, **_STAGES
    ),
    "mobile": _simple(_mobile, lambda: _image(96)),
    "unet": _simple(UNet, lambda: _image(64)),
    "generator": _simple(_generator, lambda: torch.randn(1, 64, 8, 8)),
    "super_resolution": _simple(_super_resolution, lambda: _image(32)),
    "waveform": _simple(_waveform, lambda: torch.randn(1, 1, 1000)),
    "vit": _of_images(
        "ViT", 64, image_size=64, patch_size=8, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=128,
    ),
    "swin": _of_images(
        "Swin", 64, image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4],
        window_size=4,
    ),
    "bert": _bert,
    "gpt2": _causal("GPT2", n_embd=64, n_layer=2, n_head=4),
    "llama": _causal("Llama", **_LLAMA),
    "lstm": _simple(lambda: Recurrent(nn.LSTM, bidirectional=True), lambda: torch.randn(1, 50, 32)),
    "gru": _simple(lambda: Recurrent(nn.GRU, num_layers=2), lambda: torch.randn(1, 50, 32)),
    "spatial_transformer": _simple(SpatialTransformer, lambda: _image(64)),
    "experts": _simple(MixtureOfExperts, lambda: torch.randn(16, 64)),
    "ranking": _simple(Ranking, lambda: torch.randn(1, 4096)),
    "graph_network": _simple(
        GraphNetwork, lambda: torch.randn(300, 32), lambda: torch.randint(300, (2, 2000))
    ),
    "recommender": _simple(
        Recommender, lambda: torch.randint(1000, (32, 8)), lambda: torch.randn(32, 16)
    ),
}  # fmt: skip

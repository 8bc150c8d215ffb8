"""Parts that the families of language models share: wrappers, weights, tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

VOCABULARY = 60
AXES = {0: "batch", 1: "length"}


def with_wide_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Draw all weights anew: initializers of 0.02 and of zero leave attention and biases flat."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def tokens(*shape: int) -> torch.Tensor:
    """Draw token numbers without those at either end, which may have a meaning."""
    return torch.randint(3, VOCABULARY - 3, shape)


def right_padded(batch: int, length: int) -> torch.Tensor:
    """Return a mask under which later sequences are shorter."""
    lengths = torch.linspace(length, max(1, length // 2), batch).long()
    return (torch.arange(length) < lengths[:, None]).long()


def left_padded(batch: int, length: int) -> torch.Tensor:
    """Return the mask of a batch of prompts that end together."""
    return right_padded(batch, length).flip(1)


class Chosen(nn.Module):
    """A model of tokens and a mask that returns the chosen results as a tuple."""

    def __init__(self, model: PreTrainedModel, results: Sequence[str]) -> None:
        super().__init__()
        self.model, self.results = model, results

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        inputs = {"input_ids": input_ids}
        if attention_mask is not None:
            inputs["attention_mask"] = attention_mask
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        outputs = self.model(**inputs)
        return tuple(getattr(outputs, name) for name in self.results)


def builder(
    kind: type[PreTrainedModel],
    config: PreTrainedConfig,
    wrapper: Callable[[PreTrainedModel], nn.Module],
    attention: str = "eager",
    dtype: torch.dtype = torch.float32,
) -> Callable[[], nn.Module]:
    """Return a function that builds a model with wide weights, in a wrapper."""

    def build() -> nn.Module:
        config._attn_implementation = attention
        return wrapper(with_wide_weights(kind(config)).to(dtype))

    return build

"""Convolutions with a bias, an added array and ReLU in one call of cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy

from sardonyx.backends.cupy.convolution import Convolutions
from sardonyx.backends.cupy.cudnn.calls import Call, aligned
from sardonyx.backends.cupy.cudnn.choosing import Trial, tried_out
from sardonyx.backends.cupy.cudnn.convolution import (
    ADDEND,
    BIAS,
    LEAST,
    RESULT,
    WEIGHT,
    ConvolutionKey,
    X,
    key_with_epilogue,
)
from sardonyx.backends.cupy.cudnn.frontend import frontend
from sardonyx.backends.cupy.cudnn.plans import Plan, Plans, Refusal, Slower, plans_of
from sardonyx.backends.cupy.cudnn.trials import negative_zeros, numbers, with_specials
from sardonyx.backends.cupy.refusals import LOG
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Epilogue

# Larger columns are not worth their memory, whatever time they save.
LARGEST_COLUMNS = 2**25


class ConvolutionEpilogues(Convolutions):
    """A plan is tried out before a program relies on it.

    NVIDIA does not document what cuDNN's ReLU makes of NaN, and each of its kernels may have one
    of its own.
    """

    device: int
    # Whether cuDNN is used at all.
    uses_cudnn: bool = True
    # Whether its plans are chosen by their times on the device, and cuDNN itself by the time
    # without it. The last bits of results then depend on what was faster.
    measures_convolutions: bool = True

    @property
    def has_cudnn(self) -> bool:
        return self.uses_cudnn and frontend() is not None

    @property
    def convolution_plans(self) -> Plans:
        is_exact = self.precision in ("highest", "default")
        is_measured = self.measures_convolutions
        return plans_of(self.device, is_exact=is_exact, is_measured=is_measured)

    def convolution_and_more(
        self, x: Any, weight: Any, *others: Any, epilogue: Epilogue, **layout: Any
    ) -> Any:
        key = key_of((x, weight, *others), epilogue, **layout)
        assert key is not None
        pads = layout["pads"]
        if any(before != after for before, after in pads):
            none = (0, 0)
            widths = [none, *pads, none] if key.is_channels_last else [none, none, *pads]
            x = self.pad(x, widths, 0)
        plans = self.convolution_plans
        usable = (form for form in key.forms if isinstance(plans.find(form), Plan))
        return self._call(next(usable, key), x, weight, others).run(plans)

    def convolves_channels_last(
        self, x: Spec, weight: Spec, others: Sequence[Spec], epilogue: Epilogue, **layout: Any
    ) -> bool:
        """Of types of 16 bits alone, for which cuDNN's kernels for tensor cores are."""
        key = key_with_epilogue(x, weight, others, epilogue, is_channels_last=True, **layout)
        if key is None or key.dtype.itemsize != 2 or not self.has_cudnn:
            return False
        with cupy.cuda.Device(self.device):
            found = self.tried_convolution(key)
        if isinstance(found, Refusal):
            work = f"{key.title} of {key.dtype} with channels last"
            LOG.info("cuDNN does not compute %s: %s", work, found.reason)
        return isinstance(found, Plan)

    def tried_convolution(self, key: ConvolutionKey) -> Plan | Refusal:
        """Return the plan for the first form of a key that computes a trial as expected."""
        results = []
        for form in key.forms:
            trial = partial(self._trial, form)
            results.append(tried_out(self.convolution_plans, form, trial))
            if isinstance(results[-1], (Plan, Slower)):
                return results[-1]
        return results[0]

    def _trial(self, key: ConvolutionKey) -> Trial:
        """A call with NaN and infinities in what is added, or else with NaN in the input."""
        x, epilogue = numbers(key.in_memory(key.x), key.dtype), key.epilogue
        others = []
        if epilogue.has_bias:
            bias = numbers(key.bias[1:2], key.dtype, order=2)
            others.append(with_specials(bias, first=-3))
        if epilogue.addend is not None:
            addend = numbers(key.in_memory(key.result), key.dtype, order=3)
            others.append(with_specials(addend, first=0))
        if not others and epilogue.activation is not None:
            x[(0,) * x.ndim] = cupy.nan
        weight = numbers(key.in_memory(key.weight), key.dtype, order=1)
        call = self._call(key, x, weight, others, is_trial=True)
        if key.is_channels_last or key.column_bytes > LARGEST_COLUMNS:
            return Trial(call)
        apart = partial(self._apart, key, x, weight, others)
        return Trial(call, apart, is_otherwise_better=key.is_product)

    def _apart(self, key: ConvolutionKey, x: Any, weight: Any, others: Sequence[Any]) -> Any:
        """Convolve without cuDNN, and read and write the result once more, as a kernel would."""
        y = super().convolution(x, weight, **_layout(key, x, weight))
        if key.epilogue.addend is not None:
            return cupy.add(y, others[-1], out=y)
        return y if key.epilogue == NOTHING else cupy.maximum(y, 0, out=y)

    def _call(
        self,
        key: ConvolutionKey,
        x: Any,
        weight: Any,
        others: Sequence[Any],
        *,
        is_trial: bool = False,
    ) -> Call:
        rank = x.ndim - 2
        shape = key.in_memory((*key.result[:2], *key.result[len(key.result) - rank :]))
        numbered = [BIAS] * key.has_bias + [ADDEND] * (key.epilogue.addend is not None)
        zeros = [negative_zeros(key.weight[0], key.dtype, self.device)] * key.adds_zeros

        def arrays() -> dict[int, Any]:
            operands = map(aligned, (x, weight, *zeros, *others))
            named = dict(zip((X, WEIGHT, *numbered), operands, strict=True))
            least = {LEAST: key.least} if key.takes_maximum else {}
            return {**named, **least, RESULT: cupy.empty(shape, x.dtype)}

        # A trial asks cuDNN for no second plan.
        convolve = super().convolution if is_trial else self.convolution
        otherwise = partial(self._one_by_one, key, x, weight, others, convolve)
        return Call(key, arrays, RESULT, otherwise, expected=otherwise)

    def _one_by_one(
        self,
        key: ConvolutionKey,
        x: Any,
        weight: Any,
        others: Sequence[Any],
        convolve: Callable[..., Any],
    ) -> Any:
        rank, rest = x.ndim - 2, list(others)
        if key.is_channels_last:
            x, weight = (cupy.moveaxis(array, -1, 1) for array in (x, weight))
        y = convolve(x, weight, **_layout(key, x, weight))
        y = cupy.moveaxis(y, 1, -1) if key.is_channels_last else y
        if key.epilogue.has_bias:
            y += rest.pop(0).reshape(-1, *(1,) * (0 if key.is_channels_last else rank))
        if key.epilogue.addend is not None:
            y += rest.pop(0)
        return y if key.epilogue.activation is None else cupy.maximum(y, 0, out=y)


def _layout(key: ConvolutionKey, x: Any, weight: Any) -> dict[str, Any]:
    """The arguments of a convolution of channels first; arrays of one axis have two in the key."""
    rank = x.ndim - 2
    return {
        "strides": key.strides[-rank:],
        "pads": tuple([(width, width) for width in key.padding[-rank:]]),
        "dilations": key.dilations[-rank:],
        "groups": x.shape[1] // weight.shape[1],
    }


def key_of(arrays: Sequence[Any], epilogue: Epilogue, **layout: Any) -> ConvolutionKey | None:
    x, weight, *others = (Spec(array.shape, array.dtype) for array in arrays)
    return key_with_epilogue(x, weight, others, epilogue, **layout)

"""Arithmetic with torch: products, reductions, special functions, and every type of number."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of, function

HALVES = torch.float16, torch.bfloat16


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    yield from exports_of([*_products(), *_reductions(), *_special(), *_integers(), *_types()])
    yield from exports_of([*_few_bits()], coarse=True)


def _rows(*others: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(rows, *others)} for rows in (3, 5)]


def _products() -> Iterator[Network]:
    batches = [
        {"x": torch.randn(n, 4, 5), "w": torch.randn(n, 5, 6), "b": torch.randn(1, 1, 6)}
        for n in (2, 3)
    ]
    yield function(
        "bmm", lambda x, w: torch.bmm(x, w), *({"x": c["x"], "w": c["w"]} for c in batches)
    )
    yield function("baddbmm", lambda x, w, b: torch.baddbmm(b, x, w, beta=0.5, alpha=2), *batches)
    yield function("addmm", lambda x: torch.addmm(x[:, :1], x, x.T, beta=3, alpha=0.1), *_rows(4))
    yield function(
        "matmul of ranks", lambda x: (x @ x[0, 0], x[0, 0] @ x.mT, x @ x.mT), *_rows(3, 4)
    )
    equations = ("bij,bjk->bik", "bij,bjk->", "bij,bjk->kb", "bij,bjk->bijk", "bij,...jk->b...i")
    for index, equation in enumerate(equations):
        yield function(
            f"einsum {index}",
            lambda x, w, equation=equation: torch.einsum(equation, x, w),
            *({"x": c["x"], "w": c["w"]} for c in batches),
        )
    yield function("einsum of a trace", lambda x: torch.einsum("bii->b", x), *_rows(4, 4))
    yield function("tensordot", lambda x: torch.tensordot(x, x, ([1], [1])), *_rows(4))
    yield function("outer and kron", lambda x: (torch.outer(x[0], x[1]), x[0].dot(x[1])), *_rows(4))
    yield function("cross", lambda x: torch.linalg.cross(x, x.flip(0)), *_rows(3))
    yield function("cdist", lambda x: torch.cdist(x, x[:2] + 2), *_rows(4))
    yield function("cdist of city blocks", lambda x: torch.cdist(x, x[:2], p=1.0), *_rows(4))
    yield function("pairwise_distance", lambda x: functional.pairwise_distance(x, x[:1]), *_rows(4))
    yield function("cosine_similarity", lambda x: functional.cosine_similarity(x, x[:1]), *_rows(4))
    yield function("det and inverse", lambda x: (torch.det(x), torch.linalg.inv(x)), *_rows(3, 3))
    attention = [{name: torch.randn(2, 4, n, 8) for name in "qkv"} for n in (3, 6)]
    yield function(
        "scaled_dot_product_attention",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        *attention,
    )
    yield function(
        "causal attention",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        *attention,
    )


def _reductions() -> Iterator[Network]:
    rows = _rows(7)
    yield function("logsumexp", lambda x: torch.logsumexp(x * 50, 1), *rows)
    yield function("std and var", lambda x: (x.std(1), x.var(0, correction=0)), *rows)
    yield function("var_mean", lambda x: torch.var_mean(x, (0, 1), keepdim=True), *rows)
    yield function("norms", lambda x: (x.norm(), x.norm(p=1, dim=1), x.norm(p=3, dim=0)), *rows)
    yield function("largest norm", lambda x: torch.linalg.vector_norm(x, float("inf"), 1), *rows)
    yield function("prod", lambda x: (x.prod(1), x[0].prod()), *rows)
    yield function("any and all", lambda x: ((x > 1).any(1), (x > -1).all(0), (x > 0).any()), *rows)
    yield function("amin and amax", lambda x: (x.amin((0, 1)), x.amax(1), x.aminmax(dim=0)), *rows)
    yield function("nansum", lambda x: torch.nansum(torch.where(x > 0, x, torch.nan), 1), *rows)
    yield function("normalize", lambda x: functional.normalize(x, dim=1), *rows)
    yield function("softmax over rows", lambda x: (x.softmax(0), x.log_softmax(1)), *rows)
    yield function("layer_norm", lambda x: functional.layer_norm(x, (7,)), *rows)
    yield function("rms_norm", lambda x: functional.rms_norm(x, (7,)), *rows)
    yield function("group_norm", lambda x: functional.group_norm(x, 2), *_rows(4, 5))
    yield function("diff and trapezoid", lambda x: (x.diff(dim=1), torch.trapezoid(x)), *rows)
    yield function("count_nonzero", lambda x: torch.count_nonzero(x > 0, 1), *rows)
    target = torch.tensor([0, 6, 2])
    yield function("cross_entropy", lambda x: functional.cross_entropy(x, target), rows[0])
    yield function("huber and mse", lambda x: (functional.huber_loss(x, x * 2), x.mean()), *rows)


def _special() -> Iterator[Network]:
    rows = _rows(7)
    inside = [{"x": torch.rand(n, 7) * 1.6 - 0.8} for n in (3, 5)]
    yield function("erf", lambda x: (torch.erf(x), torch.erfc(x)), *rows)
    yield function("erfinv", lambda x: torch.erfinv(x), *inside)
    yield function("logarithms", lambda x: (x.exp().log2(), x.abs().log1p(), x.expm1()), *rows)
    yield function("trigonometry", lambda x: (x.sin(), x.tan(), x.atan(), x.sinh()), *rows)
    yield function("inverse trigonometry", lambda x: (x.asin(), x.acos(), x.atanh()), *inside)
    yield function("atan2", lambda x: torch.atan2(x, x.flip(1)), *rows)
    yield function("lgamma", lambda x: torch.lgamma(x.abs() + 0.3), *rows)
    yield function("logit and sigmoid", lambda x: torch.logit(x.sigmoid(), 1e-6), *rows)
    yield function(
        "gelu", lambda x: (functional.gelu(x), functional.gelu(x, approximate="tanh")), *rows
    )
    yield function("activations", _activations, *rows)
    yield function("gated linear unit", lambda x: functional.glu(x, 1), *_rows(6))
    yield function("powers", lambda x: (x**2, x.abs() ** 0.5, 2**x, x.abs().pow(x)), *rows)
    yield function("clamps", lambda x: (x.clamp(-1), x.clamp(max=x.mean()), x.clip(0, 1)), *rows)
    yield function(
        "rounding", lambda x: (x.round(), x.trunc(), x.frac(), x.round(decimals=2)), *rows
    )
    yield function("nan_to_num", lambda x: torch.nan_to_num(x.log(), 1.0, neginf=-5.0), *rows)
    yield function("infinities", lambda x: (torch.isinf(x.abs().log()), (x / 0).isnan()), *rows)
    yield function(
        "lerp and addcmul", lambda x: (x.lerp(x * 2, 0.3), x.addcmul(x, x, value=2)), *rows
    )
    yield function("hypot and sign", lambda x: (torch.hypot(x, x + 1), x.sign(), x.sgn()), *rows)
    yield function("heaviside", lambda x: torch.heaviside(x, torch.tensor(0.5)), *rows)


def _activations(x: torch.Tensor) -> list[torch.Tensor]:
    names = "relu6 elu selu celu silu mish softplus softsign hardswish hardsigmoid hardtanh"
    names += " leaky_relu logsigmoid tanhshrink softshrink hardshrink"
    return [getattr(functional, name)(x * 2) for name in names.split()]


def _integers() -> Iterator[Network]:
    pairs = [
        {"x": torch.randint(-20, 20, (n, 5)), "w": torch.tensor([[3, -3, 7, -2, 5]])}
        for n in (3, 6)
    ]
    yield function("integer division", lambda x, w: x // w, *pairs)
    yield function(
        "truncated division", lambda x, w: torch.div(x, w, rounding_mode="trunc"), *pairs
    )
    yield function("true division", lambda x, w: x / w, *pairs)
    yield function("remainder", lambda x, w: x % w, *pairs)
    yield function("fmod", lambda x, w: torch.fmod(x, w), *pairs)
    yield function("remainder of floats", lambda x, w: torch.remainder(x * 0.7, w * 1.3), *pairs)
    yield function("floor_divide of floats", lambda x, w: torch.floor_divide(x * 0.7, w), *pairs)
    yield function("bitwise", lambda x, w: (x & w, x | w, x ^ w, ~x), *pairs)
    yield function("shifts", lambda x, w: (x << w.abs(), x >> w.abs()), *pairs)
    yield function("logical", lambda x, w: (x.bool() & (w > 0), torch.logical_xor(x, w)), *pairs)
    yield function("comparisons", lambda x, w: (x == w, x != w, x <= w, x > 3), *pairs)
    yield function("integer powers", lambda x, w: (x**2, w**3), *pairs)
    yield function("sums of integers", lambda x, w: (x.sum(1), x.prod(1), x.cumsum(0)), *pairs)
    yield function("means of integers", lambda x, w: (x.float().mean(), x.max(), w.min(1)), *pairs)
    yield function(
        "absolute and sign", lambda x, w: (x.abs(), x.sign(), -x, x.clamp(-3, 4)), *pairs
    )


def _types() -> Iterator[Network]:
    whole = torch.int8, torch.uint8, torch.int16, torch.int32
    for dtype in whole:
        name = str(dtype).removeprefix("torch.")
        calls = [{"x": torch.randint(1, 90, (n, 4)).to(dtype)} for n in (2, 5)]
        yield function(f"{name} arithmetic", _arithmetic, *calls)
        yield function(f"{name} reductions", lambda x: (x.sum(1), x.max(), x.amin(0)), *calls)
        yield function(f"{name} products", lambda x: (x @ x.T, x.float() @ x.T.float()), *calls)
    double = [{"x": torch.randn(n, 4, dtype=torch.float64)} for n in (2, 5)]
    yield function("float64 arithmetic", lambda x: (x * 2 + 1, x @ x.T, x.exp().log()), *double)
    yield function("float64 softmax", lambda x: (x.softmax(1), x.std(1), x.cumsum(0)), *double)
    truths = [{"x": torch.rand(n, 4) > 0.5} for n in (2, 5)]
    yield function(
        "bool arithmetic", lambda x: (x.sum(1), x * 2, x | ~x, x.float().mean()), *truths
    )
    yield function("bool where", lambda x: torch.where(x, 1, 0).cumsum(1), *truths)
    yield function("promotion", lambda x: (x + 1.5, x * torch.arange(4), x > 0.5), *truths)
    yield function("casts of floats", _casts, *_rows(6))


def _arithmetic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x + x, x * 3, x // 7, x % 7, x - 5, x & 12, x > 40


def _casts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x * 9).to(torch.int8), (x * 9).to(torch.int32), x.double(), x.bool(), x.half().float()


def _few_bits() -> Iterator[Network]:
    for dtype in HALVES:
        name = str(dtype).removeprefix("torch.")
        weight = torch.randn(6, 4, dtype=dtype)
        yield function(
            f"{name} linear",
            lambda x, weight=weight: functional.linear(x.to(weight.dtype), weight).float(),
            *_rows(4),
        )
        yield function(
            f"{name} functions",
            lambda x, dtype=dtype: [
                each.float()
                for narrow in [x.to(dtype)]
                for each in (narrow.softmax(1), narrow.exp(), narrow.sum(1), narrow.std(1))
            ],
            *_rows(4),
        )
    halves = [{"x": torch.randn(n, 4, dtype=torch.float16)} for n in (2, 5)]
    yield function("float16 inputs", lambda x: (x * 2, x.sigmoid(), x @ x.T, x.mean(1)), *halves)
    yield function("float16 sorts", lambda x: (x.topk(2), x.argmax(1), x.cumsum(1)), *halves)
    yield function("autocast to bfloat16", _autocast, *_rows(4))


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x.T).float().softmax(1)

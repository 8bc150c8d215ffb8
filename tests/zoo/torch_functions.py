"""Selection and indexing with torch: sizes that depend on data, sorting, gathering, scattering."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of, function


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    yield from exports_of([*_selections(), *_sorts(), *_lookups(), *_writes(), *_layouts()])


def _integers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape)


def _selections() -> Iterator[Network]:
    rows = {"x": torch.rand(3, 5)}, {"x": torch.rand(7, 5)}
    none = {"x": torch.zeros(4, 5)}
    yield function("nonzero", lambda x: torch.nonzero(x > 0.5), *rows, none)
    yield function("nonzero as tuple", lambda x: torch.nonzero(x > 0.5, as_tuple=True), *rows, none)
    yield function("masked_select", lambda x: torch.masked_select(x, x > 0.5), *rows, none)
    yield function("boolean index", lambda x: x[x[:, 0] > 0.5] * 2, *rows, none)
    yield function("count of selected", lambda x: (x > 0.5).sum().reshape(1) * 2, *rows)
    yield function("argwhere then index", _argwhere_then_index, *rows)
    whole = {"x": _integers(6, 12)}, {"x": _integers(6, 20)}
    yield function("unique", lambda x: torch.unique(x), *whole)
    yield function(
        "unique with counts",
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        *whole,
    )
    yield function("unique rows", lambda x: torch.unique(x, dim=0), {"x": _integers(2, 9, 2)})
    yield function("isin", lambda x, y: torch.isin(x, y), whole[0] | {"y": torch.tensor([2, 5])})
    yield function("bincount", lambda x: torch.bincount(x, minlength=8), *whole)
    yield function("where", lambda x, y: torch.where(x > y, x, y), _pair(3), _pair(6))


def _argwhere_then_index(x: torch.Tensor) -> torch.Tensor:
    places = torch.argwhere(x > 0.5)
    return x[places[:, 0], places[:, 1]] * 2


def _pair(rows: int) -> dict[str, torch.Tensor]:
    return {"x": torch.rand(rows, 4), "y": torch.rand(1, 4)}


def _sorts() -> Iterator[Network]:
    rows = {"x": torch.randn(3, 9)}, {"x": torch.randn(5, 9)}
    yield function("topk", lambda x: torch.topk(x, 4, dim=1), *rows)
    yield function("topk smallest", lambda x: torch.topk(x, 2, dim=0, largest=False), *rows)
    yield function("sort", lambda x: torch.sort(x, dim=1, descending=True), *rows)
    yield function("stable argsort", lambda x: torch.argsort(x > 0, stable=True), *rows)
    yield function("argsort", lambda x: torch.argsort(x, dim=-1), *rows)
    yield function("median", lambda x: torch.median(x, dim=1), *rows)
    yield function("quantile", lambda x: torch.quantile(x, torch.tensor([0.1, 0.5]), 1), *rows)
    yield function("kthvalue", lambda x: torch.kthvalue(x, 3, dim=1), *rows)
    yield function("argmax keepdim", lambda x: torch.argmax(x, 1, keepdim=True), *rows)
    yield function("max with indices", lambda x: (torch.max(x, 1), torch.min(x, 0)), *rows)
    yield function("cummax", lambda x: torch.cummax(x, 1), *rows)
    yield function("cumsum", lambda x: torch.cumsum(x, 1, dtype=torch.float64), *rows)
    yield function("cumprod", lambda x: torch.cumprod(x, 0), *rows)
    yield function("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), *rows)
    yield function("nucleus mask", _nucleus, *rows)
    edges = {"x": torch.randn(4, 3), "y": torch.linspace(-2, 2, 9)}
    yield function("searchsorted", lambda x, y: torch.searchsorted(y, x), edges)
    yield function("bucketize", lambda x, y: torch.bucketize(x, y, right=True), edges)


def _nucleus(x: torch.Tensor) -> torch.Tensor:
    """Remove all but the likeliest, as samplers of text do."""
    values, order = torch.sort(x, dim=-1, descending=True)
    late = torch.softmax(values, -1).cumsum(-1) > 0.8
    late = torch.cat([torch.zeros_like(late[:, :1]), late[:, :-1]], 1)
    return x.masked_fill(late.scatter(1, order, late), float("-inf"))


def _lookups() -> Iterator[Network]:
    calls = [{"x": torch.randn(rows, 6), "index": _integers(rows, 4, 6)} for rows in (3, 8)]
    yield function("gather", lambda x, index: torch.gather(x, 0, index), *calls)
    yield function("take_along_dim", lambda x, index: torch.take_along_dim(x, index, 0), *calls)
    yield function("take", lambda x, index: torch.take(x, index), *calls)
    chosen = [{"x": torch.randn(rows, 6), "index": _integers(rows, 5)} for rows in (3, 8)]
    yield function("index_select", lambda x, index: torch.index_select(x, 0, index), *chosen)
    yield function("advanced index", lambda x, index: x[index[:, None], index % 6], *chosen)
    yield function("index before slice", lambda x, index: x[None, index, None, 1:4:2], *chosen)
    yield function("negative index", lambda x, index: x[-1 - index, -2:], *chosen)
    yield function("flip and roll", lambda x, index: x.flip(0).roll(2, 1)[index], *chosen)
    yield function("roll over two axes", lambda x: torch.roll(x, (1, -2), (0, 1)), *_rows())
    yield function("one_hot", lambda index: functional.one_hot(index, 9), *_indices())
    table = torch.randn(10, 4)
    yield function("embedding", lambda index: functional.embedding(index, table), *_indices())
    for mode in ("sum", "mean", "max"):
        yield function(
            f"embedding_bag {mode}",
            lambda index, mode=mode: functional.embedding_bag(
                index, table, torch.tensor([0, 2]), mode=mode
            ),
            {"index": _integers(9, 6)},
        )


def _rows() -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(rows, 6)} for rows in (4, 7)]


def _indices() -> list[dict[str, torch.Tensor]]:
    return [{"index": _integers(9, size)} for size in (4, 6)]


def _writes() -> Iterator[Network]:
    calls = [
        {"x": torch.randn(rows, 6), "index": _integers(rows, 4, 6), "y": torch.randn(4, 6)}
        for rows in (3, 8)
    ]
    for name in ("sum", "prod", "amax", "amin", "mean"):
        yield function(
            f"scatter_reduce {name}",
            lambda x, index, y, name=name: x.scatter_reduce(0, index, y, name),
            *calls,
        )
    yield function("scatter_add", lambda x, index, y: x.scatter_add(0, index, y), *calls)
    yield function(
        "scatter of a scalar", lambda x, index: x.scatter(1, index, 2.0), *_without_y(calls)
    )
    yield function("index_put", _put, *calls)
    yield function("index_put accumulate", _accumulate, *calls)
    yield function("index_add", lambda x, index, y: x.index_add(0, index[:, 0], y), *calls)
    yield function("slice assignment", _assign, *_rows())
    yield function("mask assignment", _assign_masked, *_rows())
    yield function("masked_scatter", lambda x: x.masked_scatter(x > 0, x.abs() + 3), *_rows())
    yield function("index_fill", lambda x: x.index_fill(1, torch.tensor([0, 3]), 7.0), *_rows())


def _without_y(calls: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    return [{"x": call["x"], "index": call["index"] % 6} for call in calls if len(call["x"]) > 3]


def _put(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[0, torch.arange(6)] = y[0]
    result[:, 1] = 5.0
    return result + index.sum()


def _accumulate(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.index_put((index[:, 0],), y, accumulate=True)


def _assign(x: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[1:3, ::2] = -1.0
    result[..., -1] = x[..., 0]
    return result


def _assign_masked(x: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[x > 0.3] = 0.3
    return result


def _layouts() -> Iterator[Network]:
    rows = _rows()
    yield function("tril and triu", lambda x: (x.tril(1), x.triu(-1)), *rows)
    yield function("causal mask", _causal, *rows)
    yield function("split by sizes", lambda x: torch.split(x, [1, 3, 2], 1), *rows)
    yield function("chunk", lambda x: torch.chunk(x, 4, 1), *rows)
    yield function(
        "stack and cat", lambda x: torch.stack([x, torch.cat([x, x])[: x.shape[0]]]), *rows
    )
    yield function("repeat_interleave", lambda x: x.repeat_interleave(3, dim=1), *rows)
    yield function("repeat and expand", lambda x: x.repeat(2, 1) + x[:1].expand(2, -1)[:1], *rows)
    yield function("unflatten", lambda x: x.unflatten(1, (2, 3)).flatten(0, 1), *rows)
    yield function("movedim", lambda x: x.unflatten(1, (2, 3)).movedim(0, -1), *rows)
    yield function("meshgrid", lambda x: torch.meshgrid(x[:, 0], x[0], indexing="ij"), *rows)
    yield function("arange of a size", lambda x: torch.arange(x.shape[0]) * 2 + x.shape[1], *rows)
    yield function("diagonal", lambda x: torch.diagonal(x, 1).sum() + torch.diag_embed(x), *rows)
    yield function("outer of sizes", lambda x: x.new_ones(x.shape[0], x.shape[0]).triu(), *rows)
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield function(
            f"pad {mode}",
            lambda x, mode=mode: functional.pad(x[None], (2, 1), mode=mode),
            *rows,
        )
    yield function("negative pad", lambda x: functional.pad(x, (-1, 2, 1, -1)), *rows)
    yield function("empty tensors", _of_empty, rows[0], {"x": torch.randn(0, 6)})


def _causal(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[0]
    mask = torch.full((size, size), float("-inf")).triu(1)
    return torch.softmax(x @ x.T + mask, -1)


def _of_empty(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.cat([x, x * 2]), x.sum(0), (x @ x.T).reshape(-1), torch.softmax(x, 1)

"""TfIdfVectorizer: it counts the n-grams of a pool in rows of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, op
from sardonyx.ops.dtypes import FLOAT32, INT32, INT64
from sardonyx.ops.ml.tables import once
from sardonyx.ops.options import require_one_of

# Number of columns for each n-gram up to which all columns are computed, most of them 0.
MOST_COLUMNS = 4

# Integers, or strings.
Tokens: TypeAlias = tuple[Any, ...]


@op
def TfIdfVectorizer(
    xp: Backend,
    X: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Ints,
    ngram_indexes: Ints,
    pool_int64s: Ints | None = None,
    pool_strings: Strings | None = None,
    weights: Floats | None = None,
) -> Array:
    """Count n-grams, whose tokens may be separated by equal numbers of skipped tokens."""
    _check(mode, min_gram_length, max_gram_length, max_skip_count)
    if X.ndim not in (1, 2):
        raise ValueError(f"X of shape {X.shape} is neither a row of tokens nor a batch of rows")
    has_words = xp.numpy_dtype(X.dtype) == np.dtype(object)
    pool = _pool_of(pool_int64s or (), pool_strings or (), has_words=has_words)
    lengths = min_gram_length, max_gram_length
    trie, columns = _prepared(pool, ngram_counts, ngram_indexes, weights, *lengths)
    rows = X if X.ndim == 2 else xp.expand_dims(X, axis=0)
    if trie.keys.size and X.size:
        counts = _counts(xp, _numbered(xp, rows, trie), trie, max_skip_count)
        counts = xp.take(counts, xp.asarray(columns.nodes), axis=1)
        if mode == "IDF":
            counts = xp.minimum(counts, xp.ones_like(counts))
        counts = xp.astype(counts, xp.dtype(FLOAT32))
        if mode != "TF":
            counts = counts * xp.asarray(columns.factors)
        Y = counts if columns.places is None else _added(xp, counts, columns.places, columns.width)
    else:
        Y = _no_counts(xp, rows, columns.width)
    return Y if X.ndim == 2 else Y[0, :]


def _added(xp: Backend, counts: Array, places: Host, width: int) -> Array:
    """Return the sums of the counts that share a column."""
    Y = _no_counts(xp, counts, width)
    return xp.scatter(Y, _cells(xp, Y, places), counts, "add")


def _no_counts(xp: Backend, rows: Array, width: int) -> Array:
    return xp.zeros((rows.shape[0], width), dtype=xp.dtype(FLOAT32))


# -- parsing the attributes -----------------------------------------------------------------------


def _check(mode: str, shortest: int, longest: int, skips: int) -> None:
    require_one_of("mode", mode, ("TF", "IDF", "TFIDF"))
    if not 1 <= shortest <= longest or skips < 0:
        raise ValueError(
            f"min_gram_length {shortest}, max_gram_length {longest} and max_skip_count {skips} "
            "must satisfy 1 <= min <= max and 0 <= skips"
        )


def _pool_of(numbers: Ints, words: Strings, *, has_words: bool) -> Tokens:
    if bool(numbers) == bool(words):
        raise ValueError("exactly one of pool_int64s and pool_strings must contain n-grams")
    if has_words != bool(words):
        raise ValueError("X and the pool must both be integers or both be strings")
    return words or numbers


@once
def _prepared(
    pool: Tokens,
    starts: Ints,
    indexes: Ints,
    weights: Floats | None,
    shortest: int,
    longest: int,
) -> tuple[Trie, Columns]:
    """Return the tree of the n-grams, and the columns of the result."""
    grams = _grams(pool, starts)
    columns, factors = _per_gram(len(grams), indexes, weights or (1.0,) * len(grams))
    trie = _trie(grams, shortest, longest)
    return trie, _columns_of(trie, columns, factors, max(indexes) + 1)


def _grams(pool: Tokens, starts: Ints) -> tuple[Tokens, ...]:
    """Return the n-grams of the pool; those of n tokens begin at `starts[n - 1]`."""
    bounds = list(pairwise((*starts, len(pool))))
    if starts[:1] != (0,) or any(
        (end - at) % n or end < at for n, (at, end) in enumerate(bounds, 1)
    ):
        raise ValueError(
            f"ngram_counts {starts} do not divide a pool of {len(pool)} tokens into n-grams"
        )
    return tuple(
        pool[i : i + n] for n, (at, end) in enumerate(bounds, 1) for i in range(at, end, n)
    )


def _per_gram(count: int, indexes: Ints, weights: Floats) -> tuple[Host, Host]:
    """Return the column and the factor of each n-gram."""
    if len(indexes) != count or len(weights) != count or min(indexes) < 0:
        raise ValueError(
            f"{count} n-grams need as many non-negative ngram_indexes and as many weights, but "
            f"there are {len(indexes)} and {len(weights)}"
        )
    return np.asarray(indexes, INT64), np.asarray(weights, FLOAT32)


class Columns(NamedTuple):
    """What the columns of the result are made of."""

    # The nodes whose counts are taken, and what these are multiplied by.
    nodes: Host
    factors: Host
    # The column to which each of them is added; None if these are the columns themselves.
    places: Host | None
    width: int


def _columns_of(trie: Trie, columns: Host, factors: Host, width: int) -> Columns:
    own, factors = columns[trie.grams], factors[trie.grams]
    is_sparse = width > MOST_COLUMNS * len(own)
    # The sum with the 0 of a column matters where it is that of -0, too.
    if is_sparse or len(set(own.tolist())) < len(own) or np.signbit(factors).any():
        return Columns(trie.ends, factors, own, width)
    # Nothing ends at the root, which stands for the columns without an n-gram.
    nodes, by_column = np.zeros(width, INT64), np.ones(width, FLOAT32)
    nodes[own], by_column[own] = trie.ends, factors
    return Columns(nodes, by_column, None, width)


class Trie(NamedTuple):
    """A tree of tokens that contains the n-grams to count."""

    # Each token's number; unknown tokens have the next one.
    numbers: Mapping[Any, int]
    # Node 0 is the root. The parent of node i + 1 is `keys[i] // (tokens + 1)`, and its token is
    # `keys[i] % (tokens + 1)`. The keys ascend.
    keys: Host
    # The n-grams in the tree, and the nodes at which they end.
    grams: Host
    ends: Host
    sizes: frozenset[int]
    # The tokens in the order of their numbers, if they are integers.
    tokens: Host | None


def _trie(grams: tuple[Tokens, ...], shortest: int, longest: int) -> Trie:
    chosen = [i for i, gram in enumerate(grams) if shortest <= len(gram) <= longest]
    tokens = sorted({token for i in chosen for token in grams[i]})
    number = {token: place for place, token in enumerate(tokens)}
    ends = np.zeros(len(chosen), INT64)
    levels, nodes = [np.zeros(0, INT64)], 0
    longer = list(range(len(chosen)))
    for depth in range(max((len(grams[i]) for i in chosen), default=0)):
        longer = [i for i in longer if len(grams[chosen[i]]) > depth]
        steps = np.asarray([number[grams[chosen[i]][depth]] for i in longer], INT64)
        # Nodes are numbered level by level, so that deeper nodes have greater keys.
        keys, places = np.unique(ends[longer] * (len(tokens) + 1) + steps, return_inverse=True)
        ends[longer] = places + nodes + 1
        levels.append(keys)
        nodes += len(keys)
    sizes = frozenset(len(grams[i]) for i in chosen)
    has_words = bool(tokens) and isinstance(tokens[0], str)
    integers = None if has_words else np.asarray(tokens, INT64)
    return Trie(number, np.concatenate(levels), np.asarray(chosen, INT64), ends, sizes, integers)


# -- counting -------------------------------------------------------------------------------------


def _numbered(xp: Backend, rows: Array, trie: Trie) -> Array:
    if trie.tokens is not None:
        return _places(xp, trie.tokens, xp.astype(rows, xp.dtype(INT64)))
    words = np.asarray(rows).reshape(-1).tolist()
    numbers = map(trie.numbers.get, words, repeat(len(trie.numbers)))
    return xp.asarray(np.fromiter(numbers, INT64, len(words)).reshape(rows.shape))


def _places(xp: Backend, table: Host, x: Array) -> Array:
    """Return the position of each `x` in an ascending table; its length for missing ones."""
    keys, flat = xp.asarray(table), xp.reshape(x, (-1,))
    last = xp.asarray(table.size - 1, dtype=keys.dtype)
    at = xp.minimum(xp.astype(xp.searchsorted(keys, flat), keys.dtype), last)
    at = xp.where(xp.equal(xp.take(keys, at, axis=0), flat), at, last + 1)
    return xp.reshape(at, x.shape)


def _counts(xp: Backend, rows: Array, trie: Trie, skips: int) -> Array:
    """Count the n-grams of the tree in each row of numbered tokens."""
    batch, length = rows.shape
    base, beyond = len(trie.numbers) + 1, trie.keys.size + 1
    ones = xp.ones(rows.shape, dtype=xp.dtype(INT32))
    # If all n-grams are single tokens, these are the nodes after the root.
    alone = (rows if max(trie.sizes) == 1 else _places(xp, trie.keys, rows)) + 1

    def counted(counts: Array, nodes: Array, size: int) -> Array:
        if size not in trie.sizes:
            return counts
        return xp.scatter(counts, _cells(xp, counts, nodes), ones, "add")

    def walk(carry: tuple[Array], distance: tuple[Array]) -> tuple[tuple[Array], tuple[()]]:
        counts, nodes = carry[0], alone
        for size in range(2, min(max(trie.sizes), length) + 1):
            there = xp.minimum(position + distance[0] * (size - 1), last)
            keys = nodes * base + xp.take(padded, there, axis=1)
            nodes = _places(xp, trie.keys, keys) + 1
            counts = counted(counts, nodes, size)
        return (counts,), ()

    counts = xp.zeros((batch, beyond + 1), dtype=ones.dtype)
    counts = counted(counts, alone, 1)
    farthest = min(skips + 1, length - 1) if max(trie.sizes) > 1 else 0
    if farthest:
        position = xp.arange(length, dtype=rows.dtype)
        last = xp.full((), length, dtype=rows.dtype)
        padded = xp.pad(rows, [(0, 0), (0, 1)], len(trie.numbers))
        distances = xp.arange(1, farthest + 1, dtype=rows.dtype)
        (counts,), _ = xp.scan(walk, (counts,), (distances,), farthest)
    return counts


def _cells(xp: Backend, table: Array, columns: Array | Host) -> tuple[Array, Array]:
    """Return the indices of `columns` in all rows of a table."""
    row = xp.arange(table.shape[0], dtype=xp.dtype(INT64))
    return xp.expand_dims(row, axis=1), xp.asarray(columns)

"""Pairwise coupling: the probabilities of classes from those of pairs of classes.

T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class classification by pairwise
coupling", JMLR 5 (2004): it minimises p' Q p, one class after the other.
"""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host

INT64 = np.dtype(np.int64)

Two = tuple[Array, Array]


def pair_places(classes: int) -> tuple[Host, Host]:
    """Return the first and the second class of each pair, in the order of models."""
    first, second = np.triu_indices(classes, 1)
    return first, second


def square(xp: Backend, of_first: Array, classes: int) -> Array:
    """Return for each row a matrix whose entry (i, j) is the share of class i against class j."""
    first, second = pair_places(classes)
    places = np.full((classes, classes), 2 * len(first))
    places[first, second] = np.arange(len(first))
    places[second, first] = np.arange(len(first)) + len(first)
    shares = xp.concat([of_first, 1 - of_first, xp.zeros_like(of_first[:, :1])], axis=1)
    flat = xp.take(shares, xp.put(places.reshape(-1)), axis=1)
    return xp.reshape(flat, (of_first.shape[0], classes, classes))


def coupled(xp: Backend, likely: Array, classes: int) -> Array:
    """Return class probabilities; `likely` has the probability of each pair's first class."""
    likely = xp.minimum(xp.maximum(likely, 1e-7), 1 - 1e-7)
    Q, start = _form(xp, square(xp, likely, classes))
    slices = (xp.moveaxis(Q, 1, 0), xp.eye(classes, dtype=Q.dtype))
    closeness, limit = 0.005 / classes, max(100, classes)

    def step(carry: Two, inputs: Two) -> tuple[Two, tuple[()]]:
        """Set one class's probability so that its gradient vanishes, and rescale the sum to one."""
        (p, Qp), (row, one) = carry, inputs
        pQp = xp.sum(p * Qp, axis=1, keepdims=True)
        diagonal, here = (xp.sum(v * one, axis=1, keepdims=True) for v in (row, Qp))
        change = (pQp - here) / diagonal
        return ((p + change * one) / (1 + change), (Qp + change * row) / (1 + change)), ()

    def goes_on(count: Array, p: Array, moves: Array) -> Array:
        return xp.any(moves) & (count < limit)

    def sweep(count: Array, p: Array, moves: Array) -> tuple[Array, Array, Array]:
        Qp = xp.squeeze(xp.matmul(Q, xp.expand_dims(p, axis=2)), axis=2)
        error = xp.abs(Qp - xp.sum(p * Qp, axis=1, keepdims=True))
        moves = xp.max(error, axis=1, keepdims=True) >= closeness
        (moved, _), _ = xp.scan(step, (p, Qp), slices, classes)
        return count + 1, xp.where(moves, moved, p), moves

    count = xp.zeros((), dtype=xp.dtype(INT64))
    moves = xp.ones((start.shape[0], 1), dtype=xp.dtype(np.dtype(bool)))
    _, p, _ = xp.loop(goes_on, sweep, (count, start, moves))
    return p


def _form(xp: Backend, r: Array) -> tuple[Array, Array]:
    """Return Q and the initial probabilities."""
    classes = r.shape[1]
    one = xp.eye(classes, dtype=r.dtype)
    squares = xp.sum(xp.square(r), axis=1, keepdims=True)
    Q = squares * one - r * xp.permute_dims(r, (0, 2, 1)) * (1 - one)
    return Q, xp.full((r.shape[0], classes), 1 / classes, dtype=r.dtype)

"""WordConvEmbedding: a vector for each word, from a convolution over its characters."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import INT64


@op(domain="com.microsoft")
def WordConvEmbedding(
    xp: Backend,
    Sequence: Array,
    W: Array,
    B: Array,
    C: Array,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> Array:
    """Return zeros for a word that begins with 0, which has no characters."""
    if Sequence.ndim != 2 or W.ndim != 4 or C.ndim != 2:
        raise ValueError(
            f"Sequence has shape {Sequence.shape}, W {W.shape} and C {C.shape}, but they must have "
            "2, 4 and 2 axes"
        )
    (words, characters), (filters, _, window, width) = Sequence.shape, W.shape
    require_shape("W", W, (embedding_size or filters, 1, conv_window_size or window, C.shape[1]))
    require_shape("B", B, (filters,))
    require_shape("C", C, (C.shape[0], char_embedding_size or width))
    count = characters - window + 1
    if count < 1:
        raise ValueError(f"words of {characters} characters are shorter than the window {window}")
    # Beyond the end of a word, any number below 1 may stand.
    xp.require(Sequence, Within("Sequence", -(2**31), C.shape[0] - 1))
    first = xp.arange(count, dtype=xp.dtype(INT64))
    places = xp.expand_dims(first, axis=1) + xp.arange(window, dtype=xp.dtype(INT64))
    seen = xp.take(xp.maximum(Sequence, 0), xp.reshape(places, (count * window,)), axis=1)
    vectors = xp.reshape(
        xp.take(C, xp.reshape(seen, (-1,)), axis=0), (words, count, window * width)
    )
    by_window = xp.matmul(vectors, xp.matrix_transpose(xp.reshape(W, (filters, window * width))))
    length = _lengths(xp, Sequence)
    # A word shorter than the window has one.
    is_within = xp.arange(count, dtype=length.dtype) <= xp.maximum(length - window, 0)
    Y = xp.where(xp.expand_dims(is_within, axis=-1), xp.tanh(by_window + B), -1.0)
    return xp.where(length > 0, xp.max(Y, axis=1), 0.0)


def _lengths(xp: Backend, Sequence: Array) -> Array:
    is_character = Sequence > 0
    counts = xp.sum(xp.astype(is_character, Sequence.dtype), axis=1, keepdims=True)
    return xp.where(is_character[:, :1], counts, xp.zeros_like(counts))

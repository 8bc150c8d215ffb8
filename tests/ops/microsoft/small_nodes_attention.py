"""Small nodes of attention, experts and recurrences."""

from __future__ import annotations

import numpy as np

from tests.ops.microsoft.small_node import (
    ANGLES,
    HEADS,
    ONE_TOKEN,
    PAST,
    TOKENS,
    S,
    Small,
    Z,
    floats,
    halves,
    ints,
    octets,
    scalar,
    small,
    vector,
)

ATTENTION: tuple[Small, ...] = (
    # Attention.
    small("Attention", floats(*TOKENS), floats(8, 24), floats(24), num_heads=2),
    small(
        "MultiHeadAttention",
        *(floats(*TOKENS), floats(*TOKENS, seed=1), floats(*TOKENS, seed=2), floats(24)),
        *(None, None, floats(*PAST), floats(*PAST, seed=1)),
        num_heads=2,
        outputs=3,
    ),
    small(
        "GroupQueryAttention",
        *(floats(*TOKENS), floats(2, 4, 4, seed=1), floats(2, 4, 4, seed=2), None, None),
        *(vector(3, 3), scalar(4, np.int32), ANGLES, ANGLES),
        num_heads=2,
        kv_num_heads=1,
        do_rotary=1,
        outputs=3,
        weights=[5, 6],
    ),
    small(
        "DecoderMaskedMultiHeadAttention",
        *(floats(*ONE_TOKEN), floats(*ONE_TOKEN, seed=1), floats(*ONE_TOKEN, seed=2), None, None),
        *(floats(*PAST), floats(*PAST, seed=1)),
        num_heads=2,
        outputs=3,
    ),
    small(
        "DecoderMaskedSelfAttention",
        *(floats(*ONE_TOKEN), floats(8, 24), floats(24), None, floats(2, 2, 2, 6, 4), None),
        vector(3),
        num_heads=2,
        past_present_share_buffer=1,
        outputs=2,
        weights=[6],
    ),
    small(
        "DecoderAttention",
        *(floats(4, 2, 8), floats(4, 2, 8, seed=1), floats(8, 8), floats(8, 16), floats(24)),
        *(None, None, None, *(np.array(False) for _ in range(4))),
        num_heads=2,
        outputs=3,
    ),
    small(
        "QAttention",
        *(octets(2, 4, 8), octets(8, 24), floats(24), S, S, None, Z, Z),
        num_heads=2,
    ),
    small(
        "PackedAttention",
        *(floats(7, 8), floats(8, 24), floats(24), ints(2, 4), vector(0, 3, 7)),
        num_heads=2,
        weights=[3, 4],
    ),
    small(
        "PackedMultiHeadAttention",
        *(floats(7, 8), floats(7, 8, seed=1), floats(7, 8, seed=2), None, ints(2, 4)),
        vector(0, 3, 7),
        num_heads=2,
        weights=[4, 5],
    ),
    small(
        "PagedAttention",
        *(halves(7, 8), halves(7, 8, seed=1), halves(7, 8, seed=2)),
        *(halves(3, 4, 2, 4), halves(3, 4, 2, 4), vector(0, 3, 7), vector(0, 0)),
        vector([0, 1], [2, 2]),
        num_heads=2,
        kv_num_heads=2,
        outputs=3,
        weights=[5, 6, 7],
    ),
    small(
        "SparseAttention",
        *(floats(*TOKENS), floats(*TOKENS, seed=1), floats(*TOKENS, seed=2)),
        *(floats(2, 2, 16, 4), floats(2, 2, 16, 4), vector([0, 1]), vector([0])),
        *(scalar(4, np.int32), vector(4, 4)),
        num_heads=2,
        kv_num_heads=2,
        sparse_block_size=16,
        outputs=3,
        weights=[5, 6, 7, 8],
    ),
    small(
        "LinearAttention",
        *(floats(*TOKENS), floats(*TOKENS, seed=1), floats(*TOKENS, seed=2)),
        q_num_heads=2,
        kv_num_heads=2,
        update_rule="linear",
        outputs=2,
    ),
    small("LinearAttentionGate", floats(2, 4, 3), floats(3), floats(3, seed=1), outputs=1),
    small(
        "GatedRelativePositionBias",
        *(floats(*TOKENS), floats(8), floats(1, 2, 4, 4), floats(4, 8), floats(8, seed=1)),
        floats(1, 2, 1, 1, seed=2),
        num_heads=2,
    ),
    small(
        "RelativePositionBias",
        *(floats(8, 2), scalar(4, np.int64), scalar(4, np.int64)),
        max_distance=16,
        weights=[1, 2],
    ),
    small(
        "RotaryEmbedding",
        *(floats(*TOKENS), ints(2, 4, dtype=np.int64), ANGLES, ANGLES),
        num_heads=2,
    ),
    small(
        "MRotaryEmbedding",
        *(floats(*TOKENS), ints(3, 2, 4, dtype=np.int64), ANGLES, ANGLES),
        num_heads=2,
        mrope_section=[1, 1, 0],
    ),
    small(
        "GemmaRotaryEmbedding",
        floats(2, 4, 4),
        *(halves(*HEADS, seed=seed) for seed in range(4)),
        outputs=2,
    ),
)

LAYERS: tuple[Small, ...] = (
    # Experts, recurrences and others.
    small(
        "MoE",
        *(floats(4, 8), floats(4, 3), floats(3, 6, 8), floats(3, 6), floats(3, 8, 6)),
        k=2,
        activation_type="gelu",
    ),
    small(
        "QMoE",
        *(floats(4, 8), floats(4, 3), octets(3, 6, 4), floats(3, 6), None),
        *(octets(3, 8, 3), floats(3, 8)),
        k=2,
        activation_type="silu",
        weights=[2, 5],
    ),
    small(
        "AttnLSTM",
        *(floats(3, 2, 4), floats(1, 8, 7), floats(1, 8, 2), floats(1, 16), None, None, None, None),
        *(floats(1, 2, 2), floats(1, 3, 2), floats(1, 2), floats(2, 4, 3)),
        hidden_size=2,
        outputs=3,
    ),
    small(
        "EngramGate",
        *(floats(2, 3, 2, 4), floats(2, 3, 2, 4, seed=1), floats(2, 3, 4, seed=2), floats(2, 4)),
        *(floats(2, 4, seed=1), floats(2, 4, seed=2)),
        outputs=2,
    ),
    small("HyperConnectionPreMix", floats(2, 3, 2, 4), floats(2, 3, 2)),
    small(
        "HyperConnectionPostMix",
        *(floats(2, 3, 2, 4), floats(2, 3, 4), floats(2, 3, 2), floats(2, 3, 2, 2)),
    ),
)

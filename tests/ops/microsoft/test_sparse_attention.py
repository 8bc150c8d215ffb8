from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend

DOMAIN, NAME = "com.microsoft", "SparseAttention"
BATCH, HEADS, KV_HEADS, SIZE, ROOM = 2, 4, 2, 16, 64
ROWS = np.int32([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]])
COLUMNS = np.int32([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]])
# The inputs that have no axis of samples.
BY_LAYOUT = (5, 6, 7, 9, 10)
OPTIONS = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "sparse_block_size": 16}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def inputs_of(queries: int, total: int, lengths: Any, *, is_packed: bool = False) -> list[Any]:
    new: list[Any] = [drawn(BATCH, queries, (HEADS + 2 * KV_HEADS) * SIZE), None, None]
    if not is_packed:
        kv = [drawn(BATCH, queries, KV_HEADS * SIZE, seed=i) for i in (1, 2)]
        new = [drawn(BATCH, queries, HEADS * SIZE), *kv]
    cache = [drawn(BATCH, KV_HEADS, ROOM, SIZE, seed=i) for i in (3, 4)]
    angles = [drawn(ROOM, SIZE // 2, seed=i) for i in (5, 6)]
    return [*new, *cache, ROWS, COLUMNS, np.int32([total]), np.int32(lengths), *angles]


def in_place(inputs: list[Any], **attributes: Any) -> list[np.ndarray]:
    """Run the node in onnxruntime, which demands that the past and the present share buffers."""
    feeds = {f"x{i}": x.copy() for i, x in enumerate(inputs) if x is not None}
    typed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", 1, None) for i in range(3)]
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(NAME, names, ["y0", "y1", "y2"], domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], NAME, typed, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    for output, past in (("y1", "x3"), ("y2", "x4")):
        binding.bind_ortvalue_output(output, values[past])
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


@pytest.mark.parametrize("rotary", [{}, {"do_rotary": 1, "rotary_interleaved": 1}], ids=["", "rot"])
@pytest.mark.parametrize(
    "inputs",
    [
        inputs_of(40, 40, [40, 40]),
        inputs_of(1, 41, [41, 30]),
        inputs_of(1, 60, [60, 49], is_packed=True),
    ],
    ids=["prompt", "token", "packed token"],
)
def test_keys_of_the_blocks_in_use(xp: Backend, inputs: list[Any], rotary: dict[str, Any]) -> None:
    options: dict[str, Any] = {**OPTIONS, **rotary}
    found = sardonyx.run_op(NAME, *inputs, domain=DOMAIN, outputs=3, backend=xp, **options)
    results = [xp.fetch(x) for x in found]
    for sample, length in enumerate(inputs[8]):
        # Alone: onnxruntime's kernel mixes up the weights of samples that differ in length.
        alone = [x if i in BY_LAYOUT or x is None else x[[sample]] for i, x in enumerate(inputs)]
        alone[7] = alone[8]
        y, *caches = in_place(alone, **options)
        np.testing.assert_allclose(results[0][[sample]], y, rtol=1e-4, atol=1e-4)
        for a, b in zip(results[1:], caches, strict=True):
            np.testing.assert_allclose(
                a[sample, :, :length], b[0, :, :length], rtol=1e-5, atol=1e-5
            )


def test_wrong_shapes(xp: Backend) -> None:
    inputs = inputs_of(1, 41, [41, 30])
    with pytest.raises(sardonyx.InvalidInput, match="too few"):
        sardonyx.run_op(
            NAME,
            *inputs,
            domain=DOMAIN,
            outputs=3,
            backend=xp,
            **{**OPTIONS, "sparse_block_size": 8},
        )
    with pytest.raises(sardonyx.InvalidInput, match="2 layouts of blocks"):
        sardonyx.run_op(
            NAME, *inputs, domain=DOMAIN, outputs=3, backend=xp, **{**OPTIONS, "num_heads": 3}
        )

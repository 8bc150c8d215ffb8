"""All operators that the tests draw examples of, each with the function that draws one."""

from __future__ import annotations

from collections import ChainMap

from tests.property import (
    test_attention,
    test_casting,
    test_control,
    test_elementwise,
    test_generation,
    test_indexing,
    test_linalg,
    test_loss,
    test_ml,
    test_quantization,
    test_recurrent,
    test_reductions,
    test_regions,
    test_resampling,
    test_selection,
    test_sequences,
    test_shapes,
    test_signal,
    test_text,
    test_windows,
)

MAKERS = ChainMap(
    test_attention.CASES,
    test_casting.CASES,
    test_control.CASES,
    test_elementwise.BINARY,
    test_elementwise.OTHERS,
    test_elementwise.UNARY,
    test_generation.CASES,
    test_indexing.CASES,
    test_linalg.CASES,
    test_loss.CASES,
    test_ml.CASES,
    test_quantization.CASES,
    test_recurrent.CASES,
    test_reductions.CASES,
    test_regions.CASES,
    test_resampling.CASES,
    test_selection.CASES,
    test_sequences.CASES,
    test_shapes.CASES,
    test_signal.CASES,
    test_text.CASES,
    test_windows.CASES,
)

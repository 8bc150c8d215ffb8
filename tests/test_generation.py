"""Code of kernels for new sizes is generated while Python plans, with the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.executable import CallPlans, Spec
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.chains import Chain
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.one_call import OneCallBySizes
from sardonyx.backends.operations.products import Link
from sardonyx.backends.written_out.noted_steps import kernel_run
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_one_call import assert_same, library, ran
from tests.test_onednn import drawn

__all__ = ["library", "ran"]
pytestmark = NEEDS_ONEDNN
WIDTH = 48
WEIGHTS = [drawn(WIDTH, WIDTH, seed=seed) / WIDTH**0.5 for seed in (1, 2)]

FORKED = """
import os
from sardonyx.backends.jax.onednn import loaded
from tests.test_generation import WEIGHTS, WIDTH, drawn, kernels, np, packed

kernels(300)[0].run(drawn(300, WIDTH), packed(300)[0])  # Now there are threads.
child = os.fork()
if child == 0:
    with loaded.generating([(each.kind, each.spec) for each in kernels(301)]):
        pass
    x = drawn(301, WIDTH)
    found = kernels(301)[0].run(x, packed(301)[0])
    os._exit(0 if np.allclose(found, x @ WEIGHTS[0], atol=1e-4) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def kernels(rows: int) -> tuple[Any, Chain]:
    """A product, and a chain of two, for so many rows."""
    dtype = np.dtype(np.float32)
    one = onednn.matrix_product(Spec((rows, WIDTH), dtype), Spec((WIDTH, WIDTH), dtype))
    assert one is not None
    chain = onednn.chain([Link(one, 0), Link(one, 1)], 1)
    assert isinstance(chain, Chain)
    return one, chain


def packed(rows: int) -> list[Any]:
    form = kernels(rows)[0].form
    return [form.pack(weight) for weight in WEIGHTS]


def function(product: Any, chain: Any, one: Any, other: Any, x: Any) -> Sequence[Any]:
    return [chain(product(x, one), other, one)]


@pytest.mark.parametrize("rows", [3, 40, 71, 600])
def test_new_sizes_have_their_code(
    rows: int, ran: list[Kind], monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = []
    generating = loaded.generating

    @contextmanager
    def noted(kernels: Any) -> Any:
        generated.append([kind for kind, _ in kernels])
        with generating(kernels):
            yield

    monkeypatch.setattr(loaded, "generating", noted)
    product, chain = kernels(rows)
    joined = OneCallBySizes(function, 2, 2, ())
    runs = partial(kernel_run, product), partial(kernel_run, chain)
    plans = CallPlans()
    for seed in range(3):
        x = drawn(rows, WIDTH, seed=seed)
        found = joined(plans, *runs, *packed(rows), x)
        assert_same(found, function(*runs, *packed(rows), x))
        one, other = WEIGHTS
        np.testing.assert_allclose(found[0], x @ one @ other @ one, rtol=1e-4, atol=1e-4)
    # Packed weights of new identities are planned for anew, with code that there is.
    assert generated == [[Kind.PRODUCT, Kind.CHAIN]] * 3
    assert Kind.SEQUENCE in ran


def test_a_kernel_that_there_is_not_is_told_where_it_runs() -> None:
    product, _ = kernels(56)
    specs = [(product.kind, product.spec), (Kind.PRODUCT, (1, 9, *product.spec[2:]))]
    with loaded.generating(specs):
        x = drawn(56, WIDTH)
        y = product.run(x, packed(56)[0])
    np.testing.assert_allclose(y, x @ WEIGHTS[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="cannot compute product"):
        loaded.run(Kind.PRODUCT, loaded.packed_numbers(specs[1][1]), b"")


def test_an_exception_ends_it() -> None:
    product, chain = kernels(57)
    with pytest.raises(KeyError), loaded.generating([(chain.kind, chain.spec)]):
        raise KeyError
    with loaded.generating([]):
        assert product.run(drawn(57, WIDTH), packed(57)[0]).shape == (57, WIDTH)


def test_many_threads_generate_at_the_same_time() -> None:
    def results(rows: int) -> Any:
        each = [(kernel.kind, kernel.spec) for kernel in kernels(rows)]
        with loaded.generating(each * 2):
            weights, x = packed(rows), drawn(rows, WIDTH)
        return kernels(rows)[1].run(x, *weights), x @ WEIGHTS[0] @ WEIGHTS[1]

    with ThreadPoolExecutor(8) as threads:
        for found, wanted in threads.map(results, [*range(100, 140)] * 2):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_generates_by_itself() -> None:
    """It has none of the threads."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)

"""What is read out of programs: their text by hand, and the functions that JAX traces."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from sardonyx.targets.child.facts import (
    _by_cudnn,
    _collectives,
    _custom_calls,
    _host_calls,
    _kernels,
)
from sardonyx.targets.child.least_reads import parts_read
from sardonyx.targets.child.padding import padding_of
from sardonyx.targets.child.products import products_of
from sardonyx.targets.child.program_text import Instruction, ProgramText, nbytes

TEXT = """HloModule example, is_scheduled=true

FileNames
1 "example.py"

%inner (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %sin.1 = f32[8]{0} sine(%p)
}

%part_of_fusion (q: f32[2]) -> f32[8] {
  %q = f32[2]{0} parameter(0)
  ROOT %all-gather.1 = f32[8]{0} all-gather(%q), channel_id=7, dimensions={0}
}

%other_part (r: f32[2]) -> f32[8] {
  %r = f32[2]{0} parameter(0)
  ROOT %all-gather.2 = f32[8]{0} all-gather(%r), channel_id=7, dimensions={0}
}

%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0:T(128)}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %sum = f32[8]{0} all-reduce(%x), channel_id=1, to_apply=%inner
  %gathered = (f32[2]{0}, f32[8]{0}) all-gather-start(%x), dimensions={0}
  %done = f32[8]{0} all-gather-done(%gathered)
  ROOT %out = (s32[], f32[8]{0}) tuple(%t, %done)
}

%condition (t.1: (s32[], f32[8])) -> pred[] {
  %t.1 = (s32[], f32[8]{0}) parameter(0)
  ROOT %less = pred[] compare(%t.1, %t.1), direction=LT
}

ENTRY %main (x.1: f32[8], y.1: bf16[3,128]) -> f32[8] {
  %x.1 = f32[8]{0:T(256)} parameter(0)
  %y.1 = bf16[3,128]{1,0:T(8,128)(2,1)} parameter(1)
  %fusion = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%inner, metadata={op_name="a = b(c)"}
  %call = (f32[8]{0}, /*index=1*/u8[16]{0}) custom-call(%fusion), custom_call_target="__cublas$gemm"
  %wide = s64[8]{0} custom-call(%fusion), custom_call_target="X64Combine"
  %called = f32[8]{0} custom-call(%fusion), custom_call_target="xla_ffi_python_cpu_callback"
  %begun = f32[8]{0} fusion(%x.1), kind=kCustom, calls=%part_of_fusion
  %ended = f32[8]{0} fusion(%x.1), kind=kCustom, calls=%other_part
  %loop = (s32[], f32[8]{0}) while(%call), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %result = f32[8]{0} copy(%fusion)
}
"""  # noqa: E501


def test_computations_and_their_instructions() -> None:
    program = ProgramText.of(TEXT)
    assert program.entry == "main"
    assert program.computations.keys() == {
        "inner", "part_of_fusion", "other_part", "body", "condition", "main",
    }  # fmt: skip
    assert [each.operation for each in program.computations["main"]] == [
        "parameter", "parameter", "fusion", "custom-call", "custom-call", "custom-call", "fusion",
        "fusion", "while", "copy",
    ]  # fmt: skip
    call = program.computations["main"][3]
    assert call.arrays == [("f32", (8,)), ("u8", (16,))]
    assert program.launching == {"main", "body", "condition"}
    assert program.times["body"] == 5


def test_kernels_are_what_a_device_is_given_to_run() -> None:
    kernels = _kernels(ProgramText.of(TEXT))
    assert Counter(kernel.operation for kernel in kernels) == {
        "fusion": 3, "custom-call": 2, "copy": 1, "all-reduce": 1, "all-gather-start": 1,
        "compare": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("types", "results", "added"),
    [
        ("f32[3,200]{1,0:T(8,128)}", 2400, {"200 as 256": 672, "3 as 8": 5120}),
        # The innermost axis is the first one here.
        ("f32[3,200]{0,1:T(8,128)S(1)}", 2400, {"3 as 128": 100_000}),
        ("bf16[5]{0:T(256)(128)(2,1)}", 10, {"5 as 256": 502}),
        ("s4[8,128]{1,0:T(8,128)(8,1)}", 512, {}),
        ("(f32[2,1,128]{2,1,0:T(2,128)}, /*index=1*/pred[7]{0})", 1031, {"1 as 2": 1024}),
        ("f32[0,3]{1,0:T(8,128)}", 0, {}),
        ("f32[0,3]{0,1:T(8,128)}", 0, {}),
        ("f32[]{:T(128)}", 4, {}),
        ("f32[3,200]{1,0}", 2400, {}),
    ],
)
def test_padding_of_what_a_kernel_writes(types: str, results: int, added: dict[str, int]) -> None:
    found = padding_of([Instruction(types, "fusion", "%x)")])
    assert (found.results, found.added) == (results, added)
    assert padding_of([Instruction(types, "copy-start", "%x)")]).results == 0


def test_collectives_of_a_loop_count_as_often_as_it_runs_and_parts_of_one_once() -> None:
    gathers, sums = _collectives(ProgramText.of(TEXT))
    assert (gathers.kind, gathers.count, gathers.nbytes) == ("all-gather", 6, 6 * 32)
    assert (sums.kind, sums.count, sums.nbytes) == ("all-reduce", 5, 5 * 32)


def test_calls_of_cudnn_are_counted_by_their_operands_and_results() -> None:
    call = """%attention = (bf16[2,3,8,4]{3,1,2,0}, u8[0]{0}) custom-call(%x, %x, %x), \
custom_call_target="__cudnn$fmhaSoftmax", operand_layout_constraints={bf16[2,3,8,4]{3,2,1,0}, \
bf16[2,5,1,4]{3,2,1,0}, bf16[2,5,1,4]{3,2,1,0}}, api_version=API"""
    assert _by_cudnn(ProgramText.of(TEXT)) == (0, 0)
    # Once at the beginning, and in a loop of five rounds.
    text = TEXT.replace("  %sum = ", f"  {call}\n  %sum = ").replace(
        "  %loop = ", f"  {call}\n  %loop = "
    )
    products = 2 * (2 * 8) * (3 * 4 * 5) + 2 * (2 * 8) * (3 * 5 * 4)
    assert _by_cudnn(ProgramText.of(text)) == (6 * products, 6 * 2 * (2 * 192 + 2 * 40))
    backward = text.replace("fmhaSoftmax", "fmhaSoftmaxBackward")
    assert _by_cudnn(ProgramText.of(backward)).operations == 6 * 2.5 * products


def test_calls_of_the_host_are_told_from_those_of_libraries() -> None:
    program = ProgramText.of(TEXT)
    calls = _custom_calls(program)
    assert calls["__cublas$gemm"] == 1
    assert _host_calls(program, calls) == ("xla_ffi_python_cpu_callback",)


@pytest.mark.parametrize(
    ("type_name", "shape", "size"),
    [("f32", (2, 3), 24), ("bf16", (5,), 10), ("pred", (3,), 3), ("s4", (3,), 2), ("token", (), 0),
     ("c128", (2,), 32), ("f8e4m3fn", (7,), 7), ("u2", (8,), 2), ("f32", (), 4), ("s64", (0,), 0)],
)  # fmt: skip
def test_bytes_of_arrays(type_name: str, shape: tuple[int, ...], size: int) -> None:
    assert nbytes(type_name, shape) == size


def test_a_program_that_xla_wrote_for_this_machine() -> None:
    text = jax.jit(lambda x: jnp.sort(jnp.tanh(x))).lower(jnp.ones(8)).compile().as_text()
    program = ProgramText.of(text)
    assert program.computations[program.entry]
    assert _kernels(program)


def test_products_by_type_and_precision() -> None:
    x, image = jnp.ones((4, 8)), jnp.ones((1, 3, 10, 10), jnp.bfloat16)

    def function(x: jax.Array, image: jax.Array) -> tuple[jax.Array, ...]:
        product = jnp.matmul(x, x.T, precision="high")
        convolved = lax.conv(image, jnp.ones((5, 3, 2, 2), jnp.bfloat16), (1, 1), "VALID")
        quantized = lax.dot(x.astype(jnp.int8), x.T.astype(jnp.int8))
        return product, convolved, quantized

    assert products_of(jax.make_jaxpr(function)(x, image), "tpu") == {
        "float32 high": 2 * 4 * 4 * 8,
        "bfloat16": 2 * 5 * 9 * 9 * 3 * 2 * 2,
        "int8": 2 * 4 * 4 * 8,
    }


def test_products_of_branches_calls_and_groups() -> None:
    def function(x: jax.Array) -> jax.Array:
        either = lax.cond(x[0, 0] > 0, lambda a: a @ a @ a, lambda a: a @ a, x)
        grouped = lax.conv_general_dilated(
            jnp.ones((1, 8, 5)), jnp.ones((8, 1, 3)), (1,), "VALID", feature_group_count=8
        )
        return jax.jit(lambda a: a @ a)(either) + grouped.sum()

    counted = products_of(jax.make_jaxpr(function)(jnp.ones((8, 8))), "cuda")
    assert counted == {"float32 default": 3 * 2 * 8**3 + 2 * 8 * 3 * 3}


def test_of_a_table_the_rows_are_read() -> None:
    table, ids, unread = jnp.ones((100, 16)), jnp.array([1, 2]), jnp.ones(3)

    def function(table: jax.Array, ids: jax.Array, unread: jax.Array) -> jax.Array:
        return jax.jit(lambda t, i: t[i])(table, ids) * 2

    of_table, of_ids, of_unread = parts_read(jax.make_jaxpr(function)(table, ids, unread))
    assert of_table == pytest.approx(0.02)
    assert (of_ids, of_unread) == (1.0, 0.0)


def test_a_table_that_is_read_otherwise_too_is_read_whole() -> None:
    def function(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        return table[ids], table.sum()

    parts = parts_read(jax.make_jaxpr(function)(jnp.ones((100, 16)), jnp.array([1, 2])))
    assert parts == [1.0, 1.0]
    assert parts_read(jax.make_jaxpr(lambda x: x)(jnp.ones(3))) == [1.0]

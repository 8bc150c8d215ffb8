"""Random programs on two inputs, with buckets and without."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.test_buckets import compare, model

BUCKETS = {"batch": [4, 8], "sequence": [4, 8]}
SIZES = [(3, 5), (2, 7), (4, 8), (5, 3)]

# Each makes {o} of {x} and {y}, all of one shape; {a} is a padded axis, {b} the next.
PIECES = """
{o} = Tanh({x})
{o} = Log({x})
{o} = Reciprocal({x})
{o} = Add({x}, {y})
{o} = Div({x}, {y})
{o} = Pow({x}, {y})
{o}g = Greater({x}, {y}) {o} = Where({o}g, {y}, {x})
{o} = Softmax<axis = {a}>({x})
{o}i = Constant<value_int = {a}>() {o} = CumSum<reverse = {r}, exclusive = {e}>({x}, {o}i)
{o}i = Constant<value_ints = [{a}]>() {o}m = {reduce}({x}, {o}i) {o} = Sub({x}, {o}m)
{o}i = Constant<value_ints = [0, 1]>() {o}m = {reduce}({x}, {o}i) {o} = Sub({x}, {o}m)
{o}n = Constant<value_ints = [-1]>() {o}b = Constant<value_ints = [-99]>() {o}i = Constant<value_ints = [{a}]>() {o} = Slice({x}, {o}n, {o}b, {o}i, {o}n)
{o}z = Constant<value_ints = [0]>() {o}s = Constant<value_ints = [{s}]>() {o}b = Constant<value_ints = [99]>() {o}i = Constant<value_ints = [{a}]>() {o}p = Slice({x}, {o}z, {o}s, {o}i) {o}q = Slice({x}, {o}s, {o}b, {o}i) {o} = Concat<axis = {a}>({o}q, {o}p)
{o}n = Shape({x}) {o}d = Concat<axis = {a}>({x}, {y}) {o}z = Constant<value_ints = [0, 0, 0]>() {o} = Slice({o}d, {o}z, {o}n)
{o}z = Constant<value_ints = [0]>() {o}b = Constant<value_ints = [99]>() {o}i = Constant<value_ints = [{a}]>() {o}t = Constant<value_ints = [2]>() {o}p = Slice({x}, {o}z, {o}b, {o}i, {o}t) {o}m = ReduceMax({o}p, {o}i) {o} = Sub({x}, {o}m)
{o}t = Transpose<perm = [0, 2, 1]>({x}) {o}m = MatMul({x}, {o}t) {o}p = Softmax<axis = -1>({o}m) {o} = MatMul({o}p, {y})
{o}t = Transpose<perm = [0, 2, 1]>({x}) {o}m = MatMul({x}, {o}t) {o}p = Trilu<upper = 0>({o}m) {o} = MatMul({o}p, {y})
{o}t = Transpose<perm = [0, 2, 1]>({x}) {o}m = MatMul({o}t, {y}) {o} = MatMul({x}, {o}m)
{o}m = Einsum<equation = "bsk, btk -> st">({x}, {y}) {o} = Einsum<equation = "st, btk -> bsk">({o}m, {x})
{o}f = Constant<value_ints = [-1, 6]>() {o}n = Shape({x}) {o}m = Reshape({x}, {o}f) {o}z = Constant<value_ints = [0]>() {o}e = ReduceMax({o}m, {o}z) {o}d = Sub({o}m, {o}e) {o} = Reshape({o}d, {o}n)
{o}f = Constant<value_ints = [0, -1]>() {o}n = Shape({x}) {o}m = Reshape({x}, {o}f) {o}e = Softmax<axis = 1>({o}m) {o} = Reshape({o}e, {o}n)
{o}f = Constant<value_ints = [0, 0, 2, 3]>() {o}g = Constant<value_ints = [0, 0, 6]>() {o}m = Reshape({x}, {o}f) {o}t = Transpose<perm = [0, 2, 1, 3]>({o}m) {o}s = Softmax<axis = 2>({o}t) {o}u = Transpose<perm = [0, 2, 1, 3]>({o}s) {o} = Reshape({o}u, {o}g)
{o}t = Transpose<perm = [1, 0, 2]>({x}) {o}f = Constant<value_ints = [-1, 6]>() {o}n = Shape({o}t) {o}m = Reshape({o}t, {o}f) {o}e = Tanh({o}m) {o}r = Reshape({o}e, {o}n) {o} = Transpose<perm = [1, 0, 2]>({o}r)
{o}i = ArgMax<axis = {a}, keepdims = 1>({x}) {o}g = GatherElements<axis = {a}>({y}, {o}i) {o} = Sub({x}, {o}g)
{o}n = Shape<start = {a}, end = {b}>({x}) {o}v, {o}i = TopK<axis = {a}, largest = {r}>({x}, {o}n) {o} = ScatterElements<axis = {a}>({y}, {o}i, {o}v)
{o}n = Shape<start = {a}, end = {b}>({x}) {o}c = Cast<to = 11>({o}n) {o} = Div({x}, {o}c)
{o}n = Shape<start = {a}, end = {b}>({x}) {o}q = Squeeze({o}n) {o}z = Constant<value_int = -1>() {o}k = Add({o}q, {o}z) {o}r = Range({o}k, {o}z, {o}z) {o} = Gather<axis = {a}>({x}, {o}r)
{o}k = Constant<value_ints = [-1]>() {o}g = Gather<axis = {a}>({x}, {o}k) {o} = Sub({y}, {o}g)
{o}k = Constant<value_ints = [0]>() {o}z = Constant<value = int64[1, 1] {{-1}}>() {o}g = Gather<axis = 0>({y}, {o}k) {o} = ScatterND({x}, {o}z, {o}g)
{o}w = RandomNormal<dtype = 11, shape = [6, 1, 3], seed = 1.0>() {o}t = Transpose<perm = [0, 2, 1]>({x}) {o}c = Conv<pads = [1, 1], group = 6>({o}t, {o}w) {o} = Transpose<perm = [0, 2, 1]>({o}c)
{o}w = RandomNormal<dtype = 11, shape = [6, 6, 2], seed = 1.0>() {o}t = Transpose<perm = [0, 2, 1]>({x}) {o}c = Conv<pads = [0, 1]>({o}t, {o}w) {o} = Transpose<perm = [0, 2, 1]>({o}c)
{o}t = Transpose<perm = [0, 2, 1]>({x}) {o}c = AveragePool<kernel_shape = [3], pads = [1, 1], count_include_pad = {r}>({o}t) {o} = Transpose<perm = [0, 2, 1]>({o}c)
{o}p = Constant<value_ints = {pads}>() {o}u = Constant<value_ints = {crops}>() {o}w = Pad<mode = "{mode}">({x}, {o}p) {o}e = Exp({o}w) {o} = Pad({o}e, {o}u)
"""  # noqa: E501

ENDS = """
y = Identity({x})
y = Transpose({x})
y = Flatten<axis = {b}>({x})
y = ArgMax<axis = {a}>({x})
i = Constant<value_ints = [0, 1]>() y = ReduceMean({x}, i)
i = Constant<value_ints = [{a}]>() y = ReduceLogSumExp<keepdims = 0>({x}, i)
y = Concat<axis = {a}>({x}, {y})
f = Constant<value_ints = [-1]>() y = Reshape({x}, f)
"""


def program(seed: int) -> str:
    """A few pieces, each on what was made by those before it."""
    draw = random.Random(seed)
    values = ["x", "z"]
    lines = [draw.choice(PIECES.strip().splitlines()) for _ in range(draw.randint(2, 5))]
    text = []
    for i, line in enumerate([*lines, draw.choice(ENDS.strip().splitlines())]):
        axis = draw.randint(0, 1)
        pads = [0] * 6
        pads[axis], pads[axis + 3] = 1, draw.randint(0, 1)
        text.append(
            line.format(
                x=draw.choice(values[-2:]),
                y=draw.choice(values),
                o=f"v{i}",
                a=axis,
                b=axis + 1,
                r=draw.randint(0, 1),
                e=draw.randint(0, 1),
                s=draw.choice([1, -1]),
                reduce=draw.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"]),
                pads=pads,
                crops=[-n for n in pads],
                mode=draw.choice(["constant", "edge"]),
            )
        )
        values.append(f"v{i}")
    return " ".join(text)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 100))]
)
@pytest.mark.sampled(4)
def test_random_programs_are_the_same_in_buckets(seed: int) -> None:
    proto = model(program(seed), "double[batch,sequence,6] x, double[batch,sequence,6] z")
    generator = np.random.default_rng(seed)
    feeds = [
        {"x": generator.normal(size=(*sizes, 6)), "z": generator.normal(size=(*sizes, 6)) + 1}
        for sizes in SIZES
    ]
    bucketed = compare(proto, feeds, BUCKETS, tolerance=1e-9)
    assert bucketed.stats().compiles <= 2

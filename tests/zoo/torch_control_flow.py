"""Loops and branches with torch: scripted functions, and torch's own higher-order operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, exports_of, function

SCRIPTED, HIGHER_ORDER = (TORCHSCRIPT,), (DYNAMO,)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    yield from exports_of([*_scripted(), *_higher_order()])


def _rows() -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(n, 5)} for n in (3, 6, 1)]


def _scripted() -> Iterator[Network]:
    functions: list[Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]] = [
        running_sum,
        until_small,
        loop_with_break,
        nested_loops,
        branch_on_data,
        branch_on_size,
        branch_in_a_loop,
        list_of_rows,
        greedy_choice,
        collatz,
        bisection,
        optional_argument,
        recursion_unrolled,
        while_with_two_conditions,
        filtered_rows,
        suppressed_boxes,
        two_results,
    ]
    for each in functions:
        scripted = torch.jit.script(each)
        yield function(
            f"scripted {each.__name__}".replace("_", " "),
            lambda x, scripted=scripted: scripted(x),
            *_rows(),
            exporters=SCRIPTED,
        )


def running_sum(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(5)
    for i in range(x.size(0)):
        total = total * 0.5 + x[i]
    return total


def until_small(x: torch.Tensor) -> torch.Tensor:
    while bool(x.abs().max() > 0.1):
        x = x * 0.5
    return x


def loop_with_break(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(5)
    for i in range(x.size(0)):
        if bool(x[i].sum() < -1.0):
            break
        total = total + x[i]
    return total


def nested_loops(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(x)
    for i in range(x.size(0)):
        for j in range(i + 1):
            result[i] = result[i] + x[j] * float(j + 1)
    return result


def branch_on_data(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    if bool(x.sum() > 0):
        x = torch.relu(x)
    else:
        y = y - 1
    return x + y


def branch_on_size(x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 4:
        y = x[:4]
    elif x.size(0) > 2:
        y = x[:2] * 2
    else:
        y = x.repeat(2, 1)
    return y


def branch_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros(5)
    for i in range(x.size(0)):
        if bool(x[i, 0] > 0):
            state = torch.tanh(state + x[i])
        elif bool(x[i, 1] > 0):
            state = state - x[i]
    return state


def list_of_rows(x: torch.Tensor) -> torch.Tensor:
    rows: list[torch.Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[i].cumsum(0) + i)  # noqa: PERF401 (which torch cannot script)
    return torch.stack(rows)


def greedy_choice(x: torch.Tensor) -> torch.Tensor:
    chosen = torch.zeros(4, dtype=torch.int64)
    scores = x[0]
    for i in range(4):
        best = torch.argmax(scores)
        chosen[i] = best
        scores = scores.roll(1, 0) * 0.5 + x[-1]
    return chosen


def collatz(x: torch.Tensor) -> torch.Tensor:
    number = torch.tensor(7) + x.size(0)
    steps = torch.tensor(0)
    while bool(number > 1):
        if bool(number % 2 == 0):
            number = torch.div(number, 2, rounding_mode="trunc")
        else:
            number = 3 * number + 1
        steps = steps + 1
    return steps


def bisection(x: torch.Tensor) -> torch.Tensor:
    low, high = torch.full((5,), -10.0), torch.full((5,), 10.0)
    for _ in range(20):
        middle = (low + high) / 2
        above = (middle + middle**3 - x[0]) > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


def optional_argument(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    return x * 2 if y is None else x + y


def recursion_unrolled(x: torch.Tensor) -> torch.Tensor:
    a, b = x[0], x[-1]
    for _ in range(x.size(0)):
        a, b = b, a + b * 0.5
    return a


def while_with_two_conditions(x: torch.Tensor) -> torch.Tensor:
    i = 0
    total = torch.zeros(5)
    while i < x.size(0) and bool(total.sum() < 3.0):
        total = total + x[i].abs()
        i += 1
    return total * i


def filtered_rows(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(0, 5)
    for i in range(x.size(0)):
        if bool(x[i].sum() > 0):
            result = torch.cat([result, x[i : i + 1]])
    return result


def suppressed_boxes(x: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(x[:, 0], descending=True)
    alive = torch.ones(x.size(0), dtype=torch.bool)
    for i in range(x.size(0)):
        if bool(alive[order[i]]):
            near = (x[:, 1] - x[order[i], 1]).abs() < 0.5
            near[order[i]] = False
            alive = alive & ~near
    return alive.nonzero()


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best, place = x[0].sum(), torch.tensor(0)
    for i in range(1, x.size(0)):
        if bool(x[i].sum() > best):
            best, place = x[i].sum(), torch.tensor(i)
    return best, place


def _higher_order() -> Iterator[Network]:
    calls = {"x": torch.randn(3, 5).abs()}, {"x": -torch.randn(3, 5).abs()}
    for name, computation in {
        "cond": _cond,
        "nested cond": _nested_cond,
        "cond with two results": _two_results_of_cond,
        "while_loop": _while_loop,
        "scan": _scan,
        "associative_scan": _associative_scan,
        "map": _map,
        "cond in a while_loop": _cond_in_a_loop,
    }.items():
        yield function(name, computation, *calls, exporters=HIGHER_ORDER)


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x * 2 - 1, (x,))


def _nested_cond(x: torch.Tensor) -> torch.Tensor:
    def positive(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.max() > 1, lambda x: x.sqrt(), lambda x: x + 1, (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x * 2, (x,)) * 3


def _two_results_of_cond(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cond(x.sum() > 0, lambda x: (x.sum(1), x * 2), lambda x: (x.amax(1), x + 1), (x,))


def _while_loop(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    from torch._higher_order_ops import while_loop  # noqa: PLC0415

    return while_loop(
        lambda step, x: step < 5, lambda step, x: (step + 1, x * 0.9 + 1), (torch.tensor(0), x)
    )


def _scan(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from torch._higher_order_ops import scan  # noqa: PLC0415

    return scan(lambda state, row: (state * 0.5 + row, state + 1), torch.zeros(5), x)


def _associative_scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops import associative_scan  # noqa: PLC0415

    return associative_scan(torch.add, x, dim=0, combine_mode="generic")


def _map(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops import map as over_rows  # noqa: PLC0415

    return over_rows(lambda row: row.cumsum(0), x)


def _cond_in_a_loop(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    from torch._higher_order_ops import while_loop  # noqa: PLC0415

    def body(step: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return step + 1, torch.cond(x.sum() > 0, lambda x: x - 0.7, lambda x: x + 0.4, (x,))

    return while_loop(lambda step, x: step < 7, body, (torch.tensor(0), x))

"""`sardonyx.check`: what XLA's compilers say of a model on hardware that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from sardonyx.arguments import PRECISIONS, check_choice, check_level
from sardonyx.errors import InvalidInput
from sardonyx.graph.loading.read import Readable
from sardonyx.sharding.plan import Rules

if TYPE_CHECKING:
    from sardonyx.targets.report import TargetReport


def check(
    model: Readable,
    targets: Sequence[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    precision: str | None = None,
    rules: Rules = None,
    mesh: Mapping[str, int] | None = None,
    strict: bool | None = None,
    limit: float | None = None,
) -> tuple[TargetReport, ...]:
    """Compile a model for TPUs and GPUs that need not be here; return a report for each.

    A target is one chip, such as "v5e", "v5p", "v6e", "tpu7x", "a100" or "h100", a mesh, such as
    "v5e:2x2" or "h100:8", or the path of a file with XLA's description of a GPU. It needs the extra
    `aot`: XLA's own compilers, which run on any Linux machine.

    `shapes` are those of inputs. An input without one has the sizes that the others give to its
    named dimensions; unknown sizes are 1. `precision` is that of `load`.

    For a mesh the model is divided as `shard` divides it, by its `rules`, over the axes of `mesh`,
    such as {"data": 2, "model": 4}; None is one axis, "data".

    The compiler runs in another process. A model that it refuses, a failure, an end of that process
    or more than `limit` seconds (600 by default) are results, not errors. Weights are not read,
    except those whose values decide the program.

    >>> import sardonyx
    >>> reports = sardonyx.check("examples/encoder.onnx", ["v5e", "h100"])  # doctest: +SKIP
    >>> reports[0].is_compiled, reports[0].bound  # doctest: +SKIP
    (True, ('memory', 1.8426373626373626e-07))
    """
    check_level(strict)
    check_choice("precision", precision, (None, *PRECISIONS))
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (is_number and limit > 0):
        raise InvalidInput(f"'limit' is {limit!r:.100}: pass a number of seconds.")
    given = {"precision": precision, "strict": strict}
    options = {name: value for name, value in given.items() if value is not None}
    # What starts processes is imported only where it is asked for.
    reports_of = import_module("sardonyx.targets.checking").reports_of
    reports: tuple[TargetReport, ...] = reports_of(
        model, targets, shapes or {}, options, rules=rules, mesh=mesh or {}, limit=limit
    )
    return reports

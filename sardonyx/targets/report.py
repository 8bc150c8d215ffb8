"""What the compilers say of a model on one target, with the bounds that follow from its rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from sardonyx.display import tables
from sardonyx.display.markup import displayed, element
from sardonyx.display.text import on_screen
from sardonyx.display.units import duration, short
from sardonyx.printable import LONGEST_NAME, printable
from sardonyx.targets.names import Target
from sardonyx.targets.rates import Rates
from sardonyx.targets.records import COMPILED, Facts, Record

_FACTORS = ("default", "high", "highest")
# How often the bytes of a collective's results cross a device's links, at least.
_CROSSINGS = {"all-reduce": 2}
# How many nodes a line names.
MOST_NAMED = 3
# The share of padding from which a remark tells where it comes from.
_TOLD_PADDING = 0.1
# The part of all bytes from which a size is named in it.
_LEAST_PART = 0.01


@dataclass(frozen=True)
class TargetReport:
    """What the compilers say of a model on one target; printed, it is a short table.

    All figures are the compiler's own counts, or follow from them and from published rates. None
    of them was measured on a device.
    """

    target: Target
    record: Record

    @property
    def is_compiled(self) -> bool:
        """Whether all programs of the model compile."""
        return self.record.is_compiled

    @property
    def outcome(self) -> str:
        """The outcome: "compiled", "refused", "failed", "timed out" or "aborted"."""
        return self.record.outcome

    @property
    def reason(self) -> str:
        """Why the model does not compile, or an empty string."""
        return self.record.reason

    @property
    def programs(self) -> tuple[Facts, ...]:
        """The facts of each program that was compiled, in the order in which a call runs them."""
        return tuple(each.facts for each in self.record.programs if each.facts is not None)

    @property
    def seconds(self) -> float:
        """The seconds that tracing and compiling took."""
        return self.record.seconds

    @property
    def peak(self) -> int:
        """The bytes of a device's memory that are used at the peak."""
        return max((facts.peak for facts in self.programs), default=0)

    @property
    def fits(self) -> bool | None:
        """Whether that is less than the device has; None if its size is unknown."""
        memory = self.target.rates.memory
        return None if memory is None else self.peak <= memory

    @property
    def padding(self) -> float:
        """The part of the arguments' bytes that is padding of their layouts."""
        arguments = self._sum(lambda facts: facts.arguments)
        return 1 - self._sum(lambda facts: facts.plain_arguments) / arguments if arguments else 0.0

    @property
    def padding_of_results(self) -> float:
        """The part of the bytes that kernels write that is padding of their layouts."""
        padding = sum(self._padding().values())
        written = self._sum(lambda facts: facts.results) + padding
        return padding / written if written else 0.0

    @property
    def least_moved(self) -> float:
        """The bytes that must cross each device's memory."""
        return self._sum(lambda facts: facts.least_moved)

    # -- bounds -----------------------------------------------------------------------------------

    @property
    def seconds_of_products(self) -> float | None:
        """The seconds that matrix products and convolutions take at the device's peak rate.

        None if the rate of one of them is unknown.
        """
        total = 0.0
        for facts in self.programs:
            for kind, operations in facts.products.items():
                rate = rate_of(kind, self.target.rates)
                if rate is None:
                    return None
                total += operations / rate / self._devices
        return total

    @property
    def seconds_of_memory(self) -> float | None:
        """The seconds that `least_moved` takes at the peak bandwidth; None if that is unknown."""
        bandwidth = self.target.rates.bandwidth
        return None if bandwidth is None else self.least_moved / bandwidth

    @property
    def seconds_of_links(self) -> float | None:
        """The seconds that collectives take at the peak rate of a device's links."""
        link = self.target.rates.link
        if link is None:
            return None
        return sum(
            each.nbytes * _CROSSINGS.get(each.kind, 1) / link
            for facts in self.programs
            for each in facts.collectives
        )

    @property
    def bounds(self) -> dict[str, float]:
        """The seconds that a call takes at least, by what takes them; unknown ones are left out."""
        known = {"products": self.seconds_of_products, "memory": self.seconds_of_memory}
        if self.target.is_mesh:
            known["links"] = self.seconds_of_links
        return {name: seconds for name, seconds in known.items() if seconds is not None}

    @property
    def bound(self) -> tuple[str, float] | None:
        """What bounds the time of a call, and the seconds; None without programs or rates."""
        bounds = self.bounds if self.programs else {}
        return max(bounds.items(), key=lambda item: item[1], default=None)

    @property
    def _devices(self) -> int:
        # On a single chip of two devices a model is compiled for one of them.
        return self.target.devices if self.target.is_mesh else 1

    def _sum(self, figure: Callable[[Facts], float]) -> float:
        return sum(map(figure, self.programs))

    # -- as text ----------------------------------------------------------------------------------

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield labels and texts, for tables."""
        yield "compiles", f"in {self.seconds:.1f} s" if self.is_compiled else self.outcome
        if not self.programs:
            if self.is_compiled and not self.record.programs:
                yield "programs", "0"
            return
        yield "programs", str(len(self.programs))
        yield "operations", short(self._sum(lambda facts: facts.operations))
        for kind, operations in self._counted(lambda facts: facts.products).items():
            yield f"  of {kind}", short(operations)
        yield "bytes to move at least", short(self.least_moved)
        yield "bytes accessed", short(self._sum(lambda facts: facts.accessed))
        for name, seconds in self.bounds.items():
            yield f"time by {name}", duration(seconds)
        if self.bound is not None:
            yield "bounded by", self.bound[0]
        yield from self._kernel_rows()
        yield from self._memory_rows()
        yield from self._exchange_rows()

    def _kernel_rows(self) -> Iterator[tuple[str, str]]:
        yield "kernels", str(int(self._sum(lambda facts: facts.kernels)))
        yield "  fusions", str(int(self._sum(lambda facts: facts.fusions)))
        yield "  library calls", str(int(self._sum(lambda facts: facts.library_calls)))
        yield "  copies", str(int(self._sum(lambda facts: facts.copies)))
        loops = int(self._sum(lambda facts: facts.loops))
        if loops:
            yield "loops", str(loops)
        if self._padding():
            yield "  padding of their results", f"{self.padding_of_results:.1%}"
        cycles = int(self._sum(lambda facts: facts.cycles))
        if cycles:
            yield "cycles by XLA", short(cycles)

    def _memory_rows(self) -> Iterator[tuple[str, str]]:
        memory = self.target.rates.memory
        if memory is not None:
            yield "bytes of memory", short(memory)
        yield "bytes at the peak", short(self.peak)
        yield "  arguments", short(max(facts.arguments for facts in self.programs))
        yield "  padding of these", f"{self.padding:.1%}"
        yield "  results", short(max(facts.outputs for facts in self.programs))
        yield "  temporaries", short(max(facts.temporaries for facts in self.programs))

    def _exchange_rows(self) -> Iterator[tuple[str, str]]:
        counts: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for each in (each for facts in self.programs for each in facts.collectives):
            counts[each.kind] = counts.get(each.kind, 0) + each.count
            sizes[each.kind] = sizes.get(each.kind, 0) + each.nbytes
        for kind, count in counts.items():
            yield f"{kind}s", str(count)
            yield f"  bytes of {kind}s", short(sizes[kind])
        for name, calls in self._counted(lambda facts: facts.custom_calls).items():
            yield f"calls of {printable(name, 40)}", str(int(calls))
        for dtype, arrays in self._counted(lambda facts: facts.wide_values).items():
            yield f"arrays of {dtype}", str(int(arrays))

    def _padding(self) -> dict[str, float]:
        return self._counted(lambda facts: facts.padding)

    def _counted(self, figures: Callable[[Facts], Mapping[str, float]]) -> dict[str, float]:
        total: dict[str, float] = {}
        for name, figure in (item for facts in self.programs for item in figures(facts).items()):
            total[name] = total.get(name, 0) + figure
        return total

    def remarks(self) -> Iterator[str]:
        """Yield sentences: why it does not compile, what runs on the host, and notes."""
        if not self.is_compiled:
            yield f"{self.outcome}: {self.reason}"
        if self.fits is False:
            yield "It needs more memory than the device has."
        for steps in self.record.host:
            yield f"On the host: {named(steps.nodes)} ({printable(steps.reason)})."
        if self.padding_of_results >= _TOLD_PADDING:
            part = f"Of what the kernels write {self.padding_of_results:.0%} is padding"
            yield f"{part}: {self._sizes_padded()}."
        calls = sorted({name for facts in self.programs for name in facts.host_calls})
        if calls:
            yield f"The programs call the host: {', '.join(calls)}."
        for program in self.record.programs:
            is_told = program.outcome != COMPILED and len(self.record.programs) == 1
            if program.reason and not is_told:
                yield f"{printable(program.title, LONGEST_NAME)}: {program.reason}"
        yield from map(printable, self.record.notes)

    def _sizes_padded(self) -> str:
        """Return the sizes that cost most, as in "axes of 3 kept as 8 (28%)"."""
        padding = self._padding()
        written = self._sum(lambda facts: facts.results) + sum(padding.values())
        most = sorted(padding.items(), key=lambda item: -item[1])[:MOST_NAMED]
        told = [
            f"{label.replace(' as ', ' kept as ')} ({size / written:.0%})"
            for label, size in most
            if size >= _LEAST_PART * written or size == most[0][1]
        ]
        return f"axes of {', '.join(told)}"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, which `json.dumps` can write."""
        bound = self.bound
        return {
            "target": str(self.target),
            "device": self.target.kind,
            "devices": self._devices,
            "seconds_by": self.bounds,
            "bounded_by": None if bound is None else bound[0],
            "peak_bytes": self.peak,
            "memory_bytes": self.target.rates.memory,
            "fits": self.fits,
            "padding_of_arguments": self.padding,
            "padding_of_results": self.padding_of_results,
            **asdict(self.record),
        }

    def __repr__(self) -> str:
        return on_screen(str(self))

    def _repr_html_(self) -> str:
        remarks = [element("p", remark) for remark in islice(self.remarks(), 20)]
        return displayed(described(self.target), tables.facts(self.rows()), *remarks)

    def __str__(self) -> str:
        rows = [("target", described(self.target)), *self.rows()]
        width = max(len(label) for label, _ in rows)
        lines = [f"{label.ljust(width)}  {text}" for label, text in rows]
        return "\n".join([*lines, *self.remarks()])


def rate_of(kind: str, rates: Rates) -> float | None:
    """Return the operations per second of products of a type, such as "float32 highest"."""
    name, _, precision = kind.partition(" ")
    if name == "float32":
        return rates.float32 and rates.float32[_FACTORS.index(precision or "default")]
    if name in ("bfloat16", "float16"):
        return rates.bfloat16
    if name.startswith("float8"):
        return rates.float8 or rates.bfloat16
    if name in ("int8", "uint8", "int4", "uint4"):
        return rates.int8
    return rates.float64 if name == "float64" else None


def described(target: Target) -> str:
    """Return a target with its devices, as in "v5e:2x2: 4 of TPU v5 lite"."""
    devices = target.devices if target.is_mesh else 1
    return f"{target}: {devices} of {target.kind}"


def named(nodes: Sequence[str]) -> str:
    """Return the first of some nodes, and the number of the others."""
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    return ", ".join(printable(node, LONGEST_NAME) for node in nodes[:MOST_NAMED]) + more

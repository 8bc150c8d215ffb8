"""The names of targets: TPUs as `v5e:2x2`, GPUs as `h100` or by a file that describes one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.targets.rates import Rates, rates_of


@dataclass(frozen=True)
class _Generation:
    """A kind of TPU: JAX's name for its devices, the axes of its mesh, devices per chip."""

    kind: str
    axes: int
    devices_per_chip: int = 1


GENERATIONS: Mapping[str, _Generation] = {
    "v4": _Generation("TPU v4", 3, 2),
    "v5e": _Generation("TPU v5 lite", 2),
    "v5p": _Generation("TPU v5", 3),
    "v6e": _Generation("TPU v6 lite", 2),
    "tpu7x": _Generation("TPU7x", 3, 2),
}
GPUS = ("a100", "h100")
SUFFIX = ".txtpb"

_SIDES = re.compile(r"[1-9]\d{0,3}(?:x[1-9]\d{0,3})*", re.ASCII)
_COUNT = re.compile(r"[1-9]\d{0,2}", re.ASCII)
_KIND = re.compile(r'^\s*device_description_str:\s*"([^"]*)"', re.MULTILINE)
_CHOICES = (
    f"{', '.join(GENERATIONS)} (one chip), v5e:2x2 (its chips), {', '.join(GPUS)}, h100:8, or the "
    f"path of a {SUFFIX} file with XLA's description of a GPU"
)


@dataclass(frozen=True)
class Target:
    """Hardware to compile for, which need not be here.

    >>> named("v5e:2x2").devices, named("h100").platform
    (4, 'cuda')
    """

    name: str
    # JAX's name of the platform: "tpu" or "cuda".
    platform: str
    # JAX's name of each device.
    kind: str
    # The chips along each axis; for GPUs their number.
    sides: tuple[int, ...]
    devices_per_chip: int = 1
    # XLA's description of a GPU.
    specification: str = field(default="", repr=False)

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.sides)

    @property
    def devices(self) -> int:
        """The number of devices, as JAX counts them."""
        return self.chips * self.devices_per_chip

    @property
    def is_mesh(self) -> bool:
        """Whether it is more than one chip. A chip of two devices is compiled for one of them."""
        return self.chips > 1

    @property
    def rates(self) -> Rates:
        """The published rates of each device."""
        return rates_of(self.kind, self.specification)

    @property
    def topology(self) -> str:
        """The name that XLA has for it."""
        if self.platform == "cuda":
            return f"1x1x{self.chips}"
        return f"{self.name.partition(':')[0]}:{'x'.join(map(str, self.sides))}"

    def __str__(self) -> str:
        return self.name


def named(name: str) -> Target:
    """Return the target of a name; raise `InvalidInput` for any other text.

    >>> named("v6e").sides
    (1, 1)
    """
    if not isinstance(name, str):
        raise InvalidInput(f"A target is a name, not {name!r:.100}: pass {_CHOICES}.")
    head, colon, tail = name, "", ""
    if ":" in name and not name.endswith(SUFFIX):
        head, colon, tail = name.rpartition(":")
    if head in GENERATIONS:
        return _tpu(name, head, tail)
    is_path = head.endswith(SUFFIX)
    if head not in GPUS and not is_path:
        raise InvalidInput(f"There is no target {name!r}: pass {_CHOICES}.")
    if colon and not _COUNT.fullmatch(tail):
        raise InvalidInput(f"The target {name!r} has no number of GPUs: write it as in 'h100:8'.")
    text = _read(Path(head)) if is_path else _own(head)
    kind = _KIND.search(text)
    if kind is None:
        raise InvalidInput(
            f"The file {head!r} has no line 'device_description_str: \"...\"', so it describes no "
            "GPU: start from one of the package's own files in sardonyx/targets/specs."
        )
    return Target(name, "cuda", kind[1], (int(tail or 1),), specification=text)


def _tpu(name: str, generation: str, sides: str) -> Target:
    described = GENERATIONS[generation]
    chips = tuple(map(int, sides.split("x"))) if _SIDES.fullmatch(sides) else ()
    if not sides and ":" not in name:
        chips = (1,) * described.axes
    if len(chips) != described.axes:
        example = "x".join(["2", "2", "1"][: described.axes])
        raise InvalidInput(
            f"The target {name!r} has no sizes of a mesh of {described.axes} axes: write it as in "
            f"'{generation}:{example}', or '{generation}' for one chip."
        )
    return Target(name, "tpu", described.kind, chips, described.devices_per_chip)


def _own(name: str) -> str:
    return (files("sardonyx.targets") / "specs" / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The target {str(path)!r} cannot be read: {error}.") from None


_COMPILERS = {"tpu": ("libtpu", "libtpu"), "cuda": ("jax_cuda13_plugin", "jax-cuda13-plugin")}


def require_compiler(target: Target) -> None:
    """Raise `BackendUnavailable` if the compiler for a target is not installed."""
    module, package = _COMPILERS[target.platform]
    if find_spec(module) is None:
        raise BackendUnavailable(
            f"To compile for {target.name!r} XLA needs the package {package}, which is not "
            "installed: pip install 'sardonyx[aot]'."
        )

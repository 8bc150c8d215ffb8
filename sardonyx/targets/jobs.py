"""What a child process is asked to compile; jobs are pickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sardonyx.targets.names import Target

# The forms of a model: as `load` runs it, as `to_jax` gives it, over a mesh as `shard` runs it.
LOADED, PURE, SHARDED = FORMS = ("load", "to_jax", "shard")


@dataclass(frozen=True, eq=False)
class ModelJob:
    """A model to compile: a path, the bytes of a file, or anything else that `load` reads."""

    source: Any
    target: Target
    form: str = LOADED
    # Shapes of inputs by name. They say the sizes of named dimensions too; unknown sizes are 1.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Inputs by name, where values decide what the program is.
    inputs: Mapping[str, Any] = field(default_factory=dict)
    # Options of `load`, `to_jax` or `shard`.
    options: Mapping[str, Any] = field(default_factory=dict)
    # The sizes of a mesh's axes by name, for `shard`.
    mesh: Mapping[str, int] = field(default_factory=dict)
    # Whether JAX's 64-bit mode is on where the function of `to_jax` is called.
    wide: bool = False
    # Whether the record has the optimised programs as text.
    keeps_text: bool = False


@dataclass(frozen=True, eq=False)
class CacheJob:
    """A model whose programs are written to a file, from which `load` starts on the target."""

    # The path of the model.
    source: str
    target: Target
    # The shapes of inputs by name, for each call.
    calls: tuple[Mapping[str, tuple[int, ...]], ...]
    # The path of the file.
    output: str
    # Options of `load`.
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FunctionJob:
    """A function of JAX, which another process can import, and stand-ins for its arguments.

    A stand-in is anything with a shape and a dtype, in any tree.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    target: Target
    wide: bool = True
    donated: tuple[int, ...] = ()
    keeps_text: bool = False


Job = ModelJob | CacheJob | FunctionJob

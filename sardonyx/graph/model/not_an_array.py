"""The error of a model that is an argument of JAX: JAX takes it for an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sardonyx.errors import InvalidInput


class NotAnArray:
    """Explains itself where JAX asks each argument of a transformation for an array."""

    # What to do instead, as the end of a sentence.
    _instead: ClassVar[str] = (
        "let the function read it from outside, as in jax.jit(lambda x: model(x)), or pass the "
        "params of `fn, params = sardonyx.to_jax(model)`"
    )

    if not TYPE_CHECKING:  # Type checkers know the attributes of a class without it.

        def __getattr__(self, name: str) -> Any:
            # JAX looks for this protocol in all that is neither an array nor a number.
            kind = type(self).__name__
            if name == "__jax_array__":
                raise InvalidInput(
                    f"A {kind} is no array, so it cannot be an argument of jax.jit, jax.grad or "
                    f"another function of JAX: {self._instead}."
                )
            raise AttributeError(f"'{kind}' object has no attribute '{name}'", name=name, obj=self)

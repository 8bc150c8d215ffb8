"""Functions that another process imports, and that end in every way a compilation can."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sardonyx.errors import UnsupportedModel


def product(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y, precision="highest")


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x)


def layers(x: Any, weights: Any) -> Any:
    """A scan over layers, whose products count as often as it runs."""
    return jax.lax.scan(lambda carry, weight: (jnp.tanh(carry @ weight), None), x, weights)[0]


def first(x: Any, y: Any) -> Any:
    """The second argument is not read."""
    return jnp.sin(x)


def called_back(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(np.sin, shape, x)


def widened(x: Any) -> Any:
    return (x.astype(jnp.int64) * 3).astype(jnp.int32)


def by_platform(x: Any) -> Any:
    """Products on the CPU, none on other platforms."""
    return jax.lax.platform_dependent(x, cpu=lambda a: a @ a, default=jnp.sin)


def aborting(x: Any) -> Any:
    os.abort()


def killed(x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def sleeping(x: Any) -> Any:
    time.sleep(60)
    return x


def raising(x: Any) -> Any:
    raise ValueError("it does not")


def refusing(x: Any) -> Any:
    raise UnsupportedModel("The platform has no such thing: pass another.")

"""JAX on a device that is not here: programs are compiled for it, and run on the CPU if at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay
from sardonyx.backends.jax.accelerators import cudnn_trial
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.settings import Settings
from sardonyx.backends.operations.scores import Scoring
from sardonyx.errors import BackendUnavailable
from sardonyx.targets.child.compiling import Keep, compilation, devices_of, stand_in
from sardonyx.targets.names import Target
from sardonyx.targets.records import Compilation

# Gets each compilation, as it ends.
Note = Callable[[Compilation], None]


class TargetBackend(JaxBackend):
    """The backend that `load` would have on the target's first device.

    Programs whose results decide how a model goes on run on this machine's CPU. With a cache it
    stores what it compiled, as the backend on that device would.
    """

    def __init__(
        self,
        target: Target,
        note: Note,
        title: Callable[[], str],
        *,
        keeps_text: bool = False,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(settings=settings)
        self._target = target
        self._note = note
        self._title = title
        self._keeps_text = keeps_text

    def __reduce__(self) -> Any:
        raise TypeError("The backend of a target cannot be pickled: send the target's name.")

    @property
    def _actual_device(self) -> Any:
        return devices_of(self._target)[0]

    def _with(self, **choices: Any) -> Backend:
        settings = replace(self.settings, **choices)
        return TargetBackend(
            self._target,
            self._note,
            self._title,
            keeps_text=self._keeps_text,
            settings=settings,
        )

    def with_checks(self) -> Backend:
        raise BackendUnavailable(
            "Checked programs are not compiled for hardware that is not here: leave out checked=."
        )

    @property
    def asks_cudnn(self) -> bool:
        """Not for a cache: each process tries cuDNN out before it trusts it."""
        return self.settings.cache is None and super().asks_cudnn

    def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
        """Nothing can be tried out on a device that is not here."""
        return cudnn_trial.is_open()

    def compile(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable:
        """Compile for the target, and return a function that runs on the CPU."""
        stand_ins = [stand_in(argument, self._actual_device) for argument in arguments]
        self._note(
            compilation(
                self._title(),
                replay,
                stand_ins,
                self._target,
                donated=donated,
                keeps_text=self._keeps_text,
                keep=self._keep(name),
            )
        )
        return Executable(jax.jit(replay), None)

    def _keep(self, name: str | None) -> Keep | None:
        folder = self.settings.cache
        if folder is None:
            return None

        def keep(built: Any, lowered: Any) -> None:
            if not folder.keep(built, lowered, name, self._entry_options, self._actual_device):
                raise BackendUnavailable(
                    f"JAX cannot write programs compiled for {str(self._target)!r} to a file."
                )

        return keep

"""Backends whose arrays lie on a device, where reading data on the host takes time."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Condition, Constants, refuse
from sardonyx.backends.standard import Array


class OnDevice(Backend):
    """Checks the conditions on constants always, and on other data only after `with_checks`.

    Without checks an index out of range reads the nearest element, and writes nothing.
    """

    # Whether the conditions on data are checked.
    checked: bool = False
    _constants: Constants | None = None
    _place: str = ""

    def require(self, x: Array, condition: Condition) -> None:
        if self._constants is not None:
            self._constants.with_conditions.add(id(x))
            if id(x) in self._constants.values:
                refuse(self._constants.values[id(x)](), condition)
                return
        if self.checked:
            self.check(x, condition)

    def check(self, x: Array, condition: Condition) -> None:
        """Raise an error in the call if an element does not meet the condition."""
        try:
            super().require(x, condition)
        except BadData as error:
            raise BadData(f"{self._place}: {error}" if self._place else str(error)) from None

    def whole_where_near(self, x: Array) -> Array:
        # CUDA's powers of float64 are off by up to one unit in the last place.
        whole = self.round(x)
        unit = np.finfo(np.float64).eps * self.abs(whole)
        return self.where(self.abs(x - whole) <= unit, whole, x)

    def with_constants(self, constants: Constants) -> Any:
        return self._changed(_constants=constants)

    def at(self, place: str) -> Any:
        return self._changed(_place=place)

    def _changed(self, **attributes: Any) -> Any:
        """The same backend with other attributes."""
        changed = type(self).__new__(type(self))
        changed.__dict__.update(self.__dict__, **attributes)
        return changed

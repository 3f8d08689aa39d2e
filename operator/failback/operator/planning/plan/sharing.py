"""Equal parts of JSON data kept once: the objects of many clusters differ in little but names.

With or without it the data are the same. What was shared is never changed in place.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_LONGEST_NAME: Final = 200
"""Characters; longer texts are rarely equal."""
_FIRST_SWEEP: Final = 10_000
_UNUSED: Final = 2
"""References to a part that only the table has: its own, and that of the question."""


class Shared:
    """The parts that are in use, by what they are made of."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._parts)

    def take(self, value: Any) -> Any:
        """Return data equal to ``value``, made of parts that others have too."""
        if len(self._parts) >= self._sweep_at:
            self.sweep()
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._parts))
        return self._take(value)

    def _take(self, value: Any) -> Any:
        made: Any
        if isinstance(value, str):
            return sys.intern(value) if len(value) <= _LONGEST_NAME else value
        if isinstance(value, dict):
            made = {_name(key): self._take(item) for key, item in value.items()}
            mark = hash((dict, *map(id, made), *map(id, made.values())))
        elif isinstance(value, list):
            made = [self._take(item) for item in value]
            mark = hash((list, *map(id, made)))
        else:
            return value
        known = self._parts.setdefault(mark, made)
        return known if known == made and type(known) is type(made) else made

    def sweep(self) -> None:
        """Forget the parts that no object has any more; a whole is looked at before its parts."""
        for mark in reversed(list(self._parts)):
            if sys.getrefcount(self._parts[mark]) <= _UNUSED:
                del self._parts[mark]


def _name(key: Any) -> Any:
    return sys.intern(key) if type(key) is str else key

"""Whether another operator looks after the same resources. Pure.

Every operator writes its version into the status. A version of ours that turns into another one was
written by another operator. One that is there at the start is that of the release before. Two
operators of one version do each other no harm and cannot be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SECONDS: Final = 300.0
"""How long the other one is believed to be there after it wrote last."""


@dataclass(slots=True)
class OtherOperator:
    """What is remembered of one resource; it may be lost at any time."""

    shown: str = ""
    version: str = ""
    until: float = 0.0

    def look(self, shown: str, own: str, now: float) -> tuple[tuple[str, ...], str]:
        """Return the versions of both operators while there are two, and the one to show.

        The first answer to another one's version is our own, so that it learns of us too. After
        that both leave what is there, or they would write over each other for ever.

        Args:
            shown: Version in the status now.
            own: Version of this operator.
            now: Seconds of any clock that does not go back.
        """
        known = now < self.until
        if shown and shown != own == self.shown:
            self.version, self.until = shown, now + SECONDS
        self.shown = shown
        if now >= self.until:
            return (), own
        return tuple(sorted((own, self.version))), shown if known and shown else own

"""How far members had really got, from what they said they hold of each queue. Pure.

Everything below the first message in a member's memory was handled. Nothing behind the last one
was delivered then; it still was not when the member left, if it would have had to be twice as fast
as it was ever seen for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from failback.analytics.observe.looks import Held, Look

_FASTER: Final = 2.0


class Handled(NamedTuple):
    """All messages of a queue below an offset were handled by a group."""

    pair: str
    key: str
    """``topic@group``."""
    queue: int
    offset: int


@dataclass(slots=True)
class _Known:
    """What was said of one queue last. ``rate``: the highest seen, in messages a second."""

    at: float
    handled: int
    highest: int
    count: int
    rate: float = 0.0


class HeldWatch:
    """Remembers what members said, in looks that come in their order."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], _Known] = {}

    def look(self, look: Look) -> Iterator[Handled]:
        """Take a look; yield how far each queue was handled that somebody holds."""
        for client in look.clients:
            for broker, topics in client.queues.items():
                pair = f"{client.cluster}/{broker}"
                for topic, queues in topics.items():
                    key = f"{topic}@{client.group}"
                    for queue, held in queues.items():
                        handled = held.lowest if held.cached else held.committed
                        if handled >= 0:
                            self._learn((pair, key, queue), client.at, handled, held)
                            yield Handled(pair, key, queue, handled)

    def _learn(self, place: tuple[str, str, int], at: float, handled: int, held: Held) -> None:
        highest = held.highest if held.cached else handled - 1
        now = _Known(at, handled, highest, held.cached)
        last = self._known.get(place)
        if last is not None and at > last.at:
            grown = max(handled - last.handled, highest - last.highest)
            now.rate = max(last.rate, grown / (at - last.at))
        self._known[place] = now

    def most(self, pair: str, key: str, queue: int, until: float) -> int | None:
        """Return an offset that no member can have come to by ``until``, when the last one left.

        ``None`` where that can't be told.
        """
        known = self._known.get((pair, key, queue))
        if known is None or not known.rate or until < known.at:
            return None
        can_have_handled = _FASTER * known.rate * (until - known.at)
        return known.highest + 1 if known.count >= can_have_handled else None

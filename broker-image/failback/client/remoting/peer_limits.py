"""Bounds of one peer, and of all together: counted, and logged when one is exceeded."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

LOG_SECONDS: Final = 10.0
"""One bound logs at most one line in this time: a peer may exceed it ten thousand times."""


UNFINISHED: Final = "unfinished"
LEAST_UNFINISHED_BYTES: Final = 4096
"""Fewer bytes of one connection are not counted: nearly every read ends inside a request."""

PeerT = TypeVar("PeerT", bound=Hashable)


class Refusals:
    """How often each bound refused something; :attr:`counts` is what metrics show."""

    def __init__(
        self, bounds: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(bounds, 0))
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def note(self, bound: str, peer: str, what: str) -> None:
        """Count one refusal and log it, unless a line about ``bound`` was logged just now."""
        self.counts[bound] += 1
        now = self._clock()
        told_at, told = self._told.get(bound, (-LOG_SECONDS, 0))
        if now - told_at < LOG_SECONDS:
            return
        count = self.counts[bound]
        self._told[bound] = now, count
        others = f", and {count - told - 1} times before" if count - told > 1 else ""
        logger.warning("refused %s: %s (%s%s)", peer, what, bound, others)


class ConnectionCounts:
    """How many connections are open, by the peer's address."""

    def __init__(self, most: Callable[[], int], most_per_address: Callable[[], int]) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._by_address: Counter[str] = Counter()
        self.total = 0

    def enter(self, address: str) -> str | None:
        """Count one more; return why there may be no more, and then it is not counted."""
        if self.total >= self._most():
            return f"{self.total} connections are open, at most {self._most()}"
        count, most = self._by_address[address], self._most_per_address()
        if count >= most:
            return f"{count} connections from {address} are open, at most {most}"
        self._by_address[address] += 1
        self.total += 1
        return None

    def leave(self, address: str) -> None:
        """Count one less that :meth:`enter` has counted."""
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Unfinished(Generic[PeerT]):
    """The bytes of incomplete requests, or of unread answers, by connection."""

    def __init__(
        self,
        most: Callable[[], int],
        what: str = "a request of {} bytes so far is not whole",
        size_now: Callable[[PeerT], int] | None = None,
    ) -> None:
        """Make it; sizes that shrink unnoticed are asked for by ``size_now``."""
        self._most = most
        self._what = what
        self._size_now = size_now
        self._by_peer: dict[PeerT, int] = {}
        self.total = 0

    def note(self, peer: PeerT, size: int) -> tuple[PeerT, str] | None:
        """Set the bytes of ``peer``.

        Returns:
            The peer to close and the reason, where all together have too many bytes. It is the one
            with the most, and its bytes are no longer counted.
        """
        self._set(peer, size if size >= LEAST_UNFINISHED_BYTES else 0)
        most = self._most()
        if self.total <= most:
            return None
        if self._size_now is not None:
            for each in tuple(self._by_peer):
                now = self._size_now(each)
                self._set(each, now if now >= LEAST_UNFINISHED_BYTES else 0)
            if self.total <= most:
                return None
        found = max(self._by_peer, key=lambda each: self._by_peer[each])
        what = f"{self._what.format(self._by_peer[found])}, all together have"
        what = f"{what} {self.total} bytes, at most {most}"
        self._set(found, 0)
        return found, what

    def _set(self, peer: PeerT, size: int) -> None:
        self.total += size - self._by_peer.pop(peer, 0)
        if size:
            self._by_peer[peer] = size

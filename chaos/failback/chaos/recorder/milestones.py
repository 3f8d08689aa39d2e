"""Instants that threads wait for: when did which fault reach which milestone. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from failback.chaos.cluster.view import Stamp
from failback.chaos.errors import Aborted

HEALED = "healed"
SLAVE_SYNCED = "slave-synced"  # one of catalogue.MILESTONES


class Milestones:
    """First observation of every ``(fid, milestone)``; later ones are ignored."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._seen: dict[tuple[str, str], Stamp] = {}

    def post(self, fid: str, milestone: str, stamp: Stamp) -> bool:
        """Record an observation; false when this milestone was already reached."""
        with self._condition:
            if (fid, milestone) in self._seen:
                return False
            self._seen[fid, milestone] = stamp
            self._condition.notify_all()
            return True

    def get(self, fid: str, milestone: str) -> Stamp | None:
        with self._condition:
            return self._seen.get((fid, milestone))

    def wait(
        self, fid: str, milestone: str, deadline: float, stopped: Callable[[], str] = lambda: ""
    ) -> Stamp | None:
        """Wait until the monotonic ``deadline`` in seconds; ``None`` when it passed.

        Raises:
            Aborted: ``stopped`` gave a reason; it is asked four times a second.
        """
        with self._condition:
            while (fid, milestone) not in self._seen:
                reason = stopped()
                if reason:
                    raise Aborted(reason)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._condition.wait(min(left, 0.25))
            return self._seen[fid, milestone]

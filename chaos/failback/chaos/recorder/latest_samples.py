"""What the samplers saw last of every broker's tables, and what follows from it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from failback.chaos.cluster.view import ClusterView, Member
from failback.chaos.recorder.witness import OffsetEvent, QueueEvent, RouteEvent

Offsets = Mapping[tuple[str, str, int], int]
"""(group, topic, queue) → committed offset."""

KEPT_SECONDS: Final = 900.0


class LatestSamples:
    """The newest tables of every broker. ``groups`` maps a group to its topic. Thread safe."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self.view: ClusterView | None = None
        self._groups = dict(groups)
        self._lock = threading.Lock()
        self._offsets: dict[str, dict[tuple[str, str, int], int]] = {}
        self._markers: dict[str, int] = {}
        self._past: dict[str, deque[tuple[int, Offsets]]] = {}
        self._queues: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        self.routes: dict[str, RouteEvent] = {}
        """The newest look at each name server, also one that was refused."""

    @property
    def members(self) -> tuple[Member, ...]:
        """Members of the cluster as it was when recording began."""
        return tuple(self.view.members) if self.view else ()

    def members_of(self, pair: str) -> list[Member]:
        """The members of one pair."""
        return [each for each in self.members if each.pair == pair]

    def member_at(self, address: str) -> Member | None:
        """The member that serves at an address."""
        return next((each for each in self.members if each.address == address), None)

    # --- taking in -------------------------------------------------------------------------------

    def queues(self, event: QueueEvent) -> None:
        with self._lock:
            self._queues[event.address] = dict(event.queues)

    def offsets(self, event: OffsetEvent) -> Offsets:
        """Take in a table; return the one before."""
        with self._lock:
            before = self._offsets.get(event.address, {})
            self._offsets[event.address] = dict(event.offsets)
            past = self._past.setdefault(event.address, deque())
            past.append((event.stamp.mono_ns, dict(event.offsets)))
            while past[-1][0] - past[0][0] > KEPT_SECONDS * 1e9:
                past.popleft()
            if event.marker_ms is not None:
                self._markers[event.address] = event.marker_ms
        return before

    # --- what is known ---------------------------------------------------------------------------

    def offsets_at(self, address: str, mono_ns: int) -> tuple[int, Offsets] | None:
        """The table of a broker as it was sampled last before an instant, else the first one.

        With the instant of the sample; ``None`` when none was taken yet.
        """
        with self._lock:
            past = self._past.get(address)
            if not past:
                return None
            older = [each for each in past if each[0] <= mono_ns]
            return older[-1] if older else past[0]

    def queues_of(self, address: str) -> Mapping[tuple[str, int], tuple[int, int]]:
        """The limits of a broker's queues as it showed them last."""
        with self._lock:
            return self._queues.get(address, {})

    def sync_age_seconds(self, pair: str) -> float | None:
        """Age of the master's table as the pair's slaves show it; ``None`` when never seen."""
        with self._lock:
            markers = [
                self._markers.get(member.address)
                for member in self.members_of(pair)
                if member.role == "slave"
            ]
        known = [marker for marker in markers if marker is not None]
        if not known or len(known) < len(markers):
            return None
        return max(0.0, time.monotonic_ns() / 1e9 - min(known) / 1e3)

    def group_lag(self, group: str) -> int | None:
        """Messages between commits and queue ends on the masters, by the newest samples."""
        lag, seen = 0, False
        with self._lock:
            for member in self.members:
                if member.role != "master":
                    continue
                offsets = self._offsets.get(member.address, {})
                for (topic, queue), (lowest, highest) in self._queues.get(
                    member.address, {}
                ).items():
                    if topic in (self._groups.get(group, ""), f"%RETRY%{group}"):
                        seen = True
                        lag += highest - max(lowest, offsets.get((group, topic, queue), 0))
        return lag if seen else None

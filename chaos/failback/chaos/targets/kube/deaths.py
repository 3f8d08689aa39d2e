"""Deaths of brokers, numbered in the order in which the harness hears of them."""

from __future__ import annotations

from collections.abc import Sequence

from failback.chaos.cluster.view import DeathRecord, Stamp

Numbered = tuple[int, str, DeathRecord]


class DeathBook:
    """Remembers which containers were asked, and every death once. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, str]] = {}
        self._deaths: list[Numbered] = []
        self._known: set[tuple[str, str, int, int]] = set()

    def is_news(self, pod: str, uid: str, container: str) -> bool:
        """Whether this incarnation of the pod's container has not been asked yet."""
        return self._asked.get(pod) != (uid, container)

    def add(
        self, pod: str, uid: str, container: str, heard: Sequence[DeathRecord], at: Stamp
    ) -> None:
        """Take the deaths of one container. A pod of another uid took its records along."""
        before = self._asked.get(pod)
        if before is not None and before[0] != uid:
            self._append(pod, DeathRecord(0, 0, None, None, at, "its pod was replaced"))
        self._asked[pod] = (uid, container)
        for death in heard:
            key = (pod, uid, death.pid, death.ticks)
            if key not in self._known:
                self._known.add(key)
                self._append(pod, death)

    def since(self, number: int) -> list[Numbered]:
        """All deaths with a higher number."""
        return self._deaths[number:]

    def _append(self, pod: str, death: DeathRecord) -> None:
        self._deaths.append((len(self._deaths) + 1, pod, death))

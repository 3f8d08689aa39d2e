"""What the operator's metrics say of a cluster's brokers, from what is observed anyway.

Pure but for what :class:`PairFigures` remembers from look to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from failback.client.admin.queue_offsets import SyncWatch, divergence
from failback.common.numbers import whole
from failback.operator.metrics import BrokerFigures
from failback.operator.planning.observed.observed import Broker, ObservedCluster


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Of which cluster figures are."""

    name: str
    """brokerClusterName."""
    is_apache: bool
    """Brokers of engine failback show their start and the age of their copies themselves."""


class PairFigures:
    """One cluster's slaves: since when each has copied nothing, and where its log was last seen."""

    def __init__(self) -> None:
        self._syncs: dict[tuple[int, int], SyncWatch] = {}
        self._ends: dict[tuple[int, int], int] = {}

    def lag_bytes(
        self, member: tuple[int, int], master: Broker | None, slave: Broker | None
    ) -> int | None:
        """Return how far a slave is behind; one that is silent is where it was last seen."""
        if slave is not None and slave.end is not None:
            self._ends[member] = slave.end
        if master is None or master.end is None or member not in self._ends:
            return None
        return master.end - self._ends[member]

    def look(
        self,
        cluster: ClusterFigures,
        status: Mapping[str, Any],
        observed: ObservedCluster,
        at: float,
    ) -> list[BrokerFigures]:
        """Return the figures of all members; ``at`` is Unix time."""
        found = []
        for pair in status.get("pairs") or ():
            index, name = pair["index"], pair["name"]
            acting = pair.get("masterMember", 0)
            master = observed.member(index, acting).broker
            for ordinal, broker in _members(observed, index):
                number = (broker.config or {}).get("brokerId", "0" if ordinal == acting else "")
                if not number:
                    continue
                is_master = ordinal == acting
                kind = "master" if is_master else "slave"
                watch = self._syncs.setdefault((index, ordinal), SyncWatch())
                if not is_master:
                    watch.look(master.offsets if master else None, broker.offsets, at)
                both = master is not None and None not in (master.offsets, broker.offsets)
                apache = cluster.is_apache
                found.append(
                    BrokerFigures(
                        (cluster.name, kind, f"{name}-{number}", name),
                        _start(broker) if apache else None,
                        watch.age_seconds(at) if apache and not is_master else None,
                        divergence(master.offsets or {}, broker.offsets or {})
                        if both and master is not None and not is_master
                        else {},
                    )
                )
        return found


def _members(observed: ObservedCluster, pair: int) -> Iterator[tuple[int, Broker]]:
    for (at, ordinal), view in sorted(observed.members.items()):
        if at == pair and view.broker is not None:
            yield ordinal, view.broker


def _start(broker: Broker) -> float | None:
    found = whole((broker.runtime or {}).get("bootTimestamp"))
    return None if found is None else found / 1000

"""The instants around which a report looks into samples: assignments and lives of brokers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from failback.analytics.run.history import DOWN_KINDS, FaultStep, GroupQueue, Incarnation
from failback.analytics.run.small_tables.columns import Ints

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class SampleInstants:
    """Instants, ascending, ns after run zero: what is at or before one is told from the rest."""

    of_queue: Mapping[GroupQueue, Ints] = field(default_factory=dict)
    """When the queue was assigned, by the group's own name and by the client's."""
    of_broker: Mapping[str, Ints] = field(default_factory=dict)
    """When lives of the broker's processes began and ended."""
    anywhere: Ints = field(default_factory=lambda: _NONE)
    """The same of faults that name no broker."""
    of_addr: Mapping[str, Ints] = field(default_factory=dict)
    """When the process at an address answered an assignment, and when its lives began."""
    of_member: Mapping[tuple[str, int], Ints] = field(default_factory=dict)
    """When a process of a group was assigned a queue."""

    @classmethod
    def of(
        cls,
        assigned: Iterable[tuple[GroupQueue, Mapping[str, Any]]],
        lives: Mapping[str, Sequence[Incarnation]],
        faults: Iterable[FaultStep],
    ) -> Self:
        """From aligned rows of ``assign`` with their queues, and what is known of brokers."""
        queues: dict[GroupQueue, set[int]] = defaultdict(set)
        brokers: dict[str, set[int]] = defaultdict(set)
        addrs: dict[str, set[int]] = defaultdict(set)
        members: dict[tuple[str, int], set[int]] = defaultdict(set)
        anywhere: set[int] = set()
        for key, row in assigned:
            for queue in {key, key._replace(grp=row["grp"])}:
                queues[queue] |= {row["t"] - 1, row["t"]}
            members[key.grp, row["inc"]].add(row["t"])
            if row["src_addr"] is not None:
                addrs[row["src_addr"]].add(row["t"])
        for addr, found in lives.items():
            for life in found:
                brokers[life.broker].add(life.first_seen - 1)
                addrs[addr].add(life.first_seen - 1)
        for times, names in _outages(faults):
            for name in names:
                mine = anywhere if name is None else brokers[name]
                mine |= times
        return cls(
            {key: _sorted(times) for key, times in queues.items()},
            {key: _sorted(times) for key, times in brokers.items()},
            _sorted(anywhere),
            {key: _sorted(times) for key, times in addrs.items()},
            {key: _sorted(times) for key, times in members.items()},
        )

    def at_queue(self, key: GroupQueue) -> Ints:
        """Instants that parts samples of a group's queue."""
        mine = self.of_queue.get(key, _NONE)
        return np.unique(np.concatenate([mine, self.at_broker(key.broker)]))

    def at_broker(self, broker: str) -> Ints:
        """Instants that parts samples of a broker's queues."""
        return np.unique(np.concatenate([self.of_broker.get(broker, _NONE), self.anywhere]))

    def at_addr(self, addr: str) -> Ints:
        """Instants that parts looks into a process's tables."""
        return self.of_addr.get(addr, _NONE)

    def at_member(self, group: str, inc: int) -> Ints:
        """Instants that parts what a member saw of its group."""
        return self.of_member.get((group, inc), _NONE)


def _outages(faults: Iterable[FaultStep]) -> Iterable[tuple[set[int], set[str | None]]]:
    """Of each fault the instants that ended or began a life, and the brokers that it names."""
    times: dict[str, set[int]] = defaultdict(set)
    names: dict[str, set[str | None]] = defaultdict(set)
    for step in faults:
        if step.kind in DOWN_KINDS or step.kind == "ACCEPT":
            times[step.fid] |= {step.t - 1, step.t}
            names[step.fid].add(step.broker)
    return [(times[fid], names[fid]) for fid in times]


def _sorted(times: Iterable[int]) -> Ints:
    return np.array(sorted(times), np.int64)

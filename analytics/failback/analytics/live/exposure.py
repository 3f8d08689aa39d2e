"""What each group would re-consume on a pair if its master were killed now. Pure.

The one definition, for exporter, dashboard and ``explain-offset``. It assumes that members are
restarted and consume nothing meanwhile. They begin at the offset of the broker that answers:

    after the return   the master's consumerOffset.json
    while it is down   the table of the slave with the lowest offsets

A group has handled all messages below the highest offset in any table, file or member. The figure
is the difference to the file, or to the slave's table. Without the file it is the difference to the
master's table, plus the group's rate times the age of the file. Without a slave's table it is the
rate times the age of its copy. Messages that are consumed and not committed yet are in no table:
for a group with a known rate the predictor's expectation of them is added.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from failback.analytics.live.facts import (
    GroupTopic,
    MemberFacts,
    PairFacts,
    Queues,
    Table,
    is_system,
)
from failback.analytics.live.known import Bound, bound
from failback.analytics.live.queues import behind, furthest, lag
from failback.analytics.predict.consumption import exposure as predicted
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import with_broker_config
from failback.protocol.errors import ConfigError
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX

logger = logging.getLogger(__name__)

_FIRST_PERSIST_SECONDS: Final = 10.0
"""After its start a broker writes its offsets for the first time."""
_MOST_RATE: Final = 1e7
Rates = Mapping[GroupTopic, float]
"""Messages per second of a pair's groups on its topics."""


@dataclass(frozen=True, slots=True)
class GroupExposure:
    """One group on one pair, all its topics and its retry topic together; messages."""

    group: str
    topics: tuple[str, ...]
    """Its topics, without retry topics."""
    rate: float
    after_return: float
    on_slave: float | None
    """``None``: no slave's table is known, and no age of its copy."""
    measured: bool
    """Whether ``after_return`` follows from the file itself, not from its age."""
    bound: Bound = Bound.EXACT
    """Whether the figures are lower bounds."""

    @property
    def most(self) -> float:
        """The figure to alert on."""
        return max(self.after_return, self.on_slave or 0.0)


def exposure(facts: PairFacts, rates: Rates) -> dict[str, GroupExposure]:
    """Return users' groups with a known rate, by name; none while the master is silent.

    A group is missing where its offsets may have been overwritten and nothing above them was seen.
    """
    master = facts.master
    if master is None or master.offsets is None:
        return {}
    base = _base_settings(facts)
    topics: dict[str, list[GroupTopic]] = {}
    for key in rates:
        if (
            key.group
            and not is_system(key.group)
            and not key.topic.startswith(DLQ_PREFIX)
            and facts.offsets_count(key.group)
        ):
            topics.setdefault(key.group, []).append(key)
    found = {}
    for group, keys in sorted(topics.items()):
        known = {bound(facts, key) for key in keys}
        if Bound.NOT_KNOWN in known:
            continue
        try:
            exposed = _of_group(facts, master, base, keys, rates)
        except ConfigError as error:  # a size that the predictor does not know
            logger.debug("group %s: %s", group, error)
            continue
        least = Bound.AT_LEAST if Bound.AT_LEAST in known else Bound.EXACT
        if least.of(exposed.most) is not None:
            found[group] = replace(exposed, bound=least)
    return found


@dataclass(slots=True)
class _Behind:
    """Messages that a group has handled beyond each copy, summed over its topics."""

    moves: bool
    """Whether the group consumes now: only then messages that wait matter."""
    slaves: list[int]
    file: int = 0
    queues: int = 0
    waiting: int = 0

    def add(
        self, ends: Queues, begins: Queues, held: Sequence[Queues | None], seen: Queues | None
    ) -> None:
        """``held``: by the master, by its file, and by each slave; ``seen``: before its start."""
        mine = held[0] or {}
        if self.moves:
            self.waiting += lag(ends, mine, begins) or 0
        is_equal = all(each == mine for each in held)
        if is_equal and (seen is None or seen == mine):  # nearly always: the group is at rest
            self.queues += len(mine)
            return
        best = furthest([*held, seen])
        self.queues += len(best)
        self.file += behind(best, held[1], begins, ends)
        for number, each in enumerate(held[2:]):
            self.slaves[number] += behind(best, each, begins, ends)


def _of_group(
    facts: PairFacts,
    master: MemberFacts,
    base: Settings,
    keys: Sequence[GroupTopic],
    rates: Rates,
) -> GroupExposure:
    group, rate = keys[0].group, sum(rates[key] for key in keys)
    told = [each.offsets for each in facts.slaves if each.offsets is not None]
    file = None if master.file is None else master.file.table
    tables: list[Table] = [master.offsets or {}, {} if file is None else file, *told]
    sums = _Behind(rate > 0, [0] * len(told))
    for key in keys:
        held = [each.get(key) for each in tables]
        if file is None:
            held[1] = held[0]
        ends, begins = facts.ends.get(key.topic, {}), facts.begins.get(key.topic, {})
        sums.add(ends, begins, held, (facts.seen or {}).get(key))
    settings = replace(
        base,
        rate=min(rate, _MOST_RATE),
        queues=min(max(1, sums.queues), 65_536),
        members=min(max(1, facts.group_members.get(group, 1)), 1024),
        backlog=float(sums.waiting),
    )
    copies = [float(each) for each in sums.slaves] + [
        settings.rate * each.sync_age
        for each in facts.slaves
        if each.offsets is None and each.sync_age is not None
    ]
    found = predicted(
        settings,
        file_behind=sums.file
        + (0.0 if file is not None else settings.rate * _persist_age(base, master, facts.at)),
        copy_behind=max(copies, default=None),
    )
    own = {key.topic for key in keys if not key.topic.startswith(RETRY_PREFIX)}
    return GroupExposure(
        group, tuple(sorted(own)), rate, found.after_return, found.on_slave, file is not None
    )


def _base_settings(facts: PairFacts) -> Settings:
    """Return the settings of a pair by its master's configuration; defaults if it is invalid."""
    base = Settings(slaves=max(0, facts.slave_count))
    master = facts.last_master
    try:
        return base if master is None else with_broker_config(base, master.config)
    except ConfigError as error:
        logger.debug("configuration of %s: %s", facts.broker, error)
        return base


def _persist_age(settings: Settings, master: MemberFacts, now: float) -> float:
    """Return the age of a master's file, or the highest that it has while the broker is well."""
    if master.persist_age is not None:
        return master.persist_age
    scaled, uptime_seconds = settings.scaled(), now - master.boot_ms / 1000
    if uptime_seconds < _FIRST_PERSIST_SECONDS * scaled.constants:
        return max(0.0, uptime_seconds)
    return scaled.flush_consumer_offset_interval / 1000

"""Decides what can be said of a pair's offsets now: the one rule of all live surfaces. Pure.

A broker that starts knows only what its consumerOffset.json has, and its slave copies that. What
a group had handled beyond it is in no table from then on. So for ten minutes after a master's start
an equal slave proves nothing, and the positions of members that started later prove nothing: they
may read again. Source: ``SlaveSynchronize.syncConsumerOffset`` of Apache RocketMQ 4.9 and 5.3.

While the master is down, clients commit to the slave, the first time some 30 s after the kill.
Until then the slave has less than the group has handled, and nothing shows it. So a value is a
lower bound until the master has run for ten minutes, or a queue's end is reached.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

from failback.analytics.live.facts import GroupTopic, PairFacts

Number = TypeVar("Number", int, float)
YOUNG_SECONDS: Final = 600.0
"""For so long a master's start hides what was known before, times the factor of its timers."""


class Bound(StrEnum):
    """What the highest offset in all copies says of what a group has handled."""

    EXACT = "exact"
    AT_LEAST = "at least"
    NOT_KNOWN = "not known"

    def of(self, value: Number | None) -> Number | None:
        """Return what may be said of a count of messages. No lower bound of 0 says anything."""
        if self is Bound.NOT_KNOWN or (self is Bound.AT_LEAST and not value):
            return None
        return value


def restarted_seconds(facts: PairFacts) -> float | None:
    """Return the age of a master that started recently with an old store; else ``None``.

    A store whose oldest message is younger than the start had no offsets before it.
    """
    master = facts.master
    if master is None or master.stored_since_ms < 0 or master.stored_since_ms >= master.boot_ms > 0:
        return None
    age = facts.at - master.boot_ms / 1000
    return max(0.0, age) if age < YOUNG_SECONDS * master.time_scale else None


def bound(facts: PairFacts, key: GroupTopic, client_since_ms: int = 0) -> Bound:
    """Return what a group's highest offset on a topic is.

    Args:
        facts: Of the pair, with what was seen before.
        key: The group and its topic.
        client_since_ms: When the member whose position is known started; 0 without one.
    """
    master = facts.master
    if master is None:
        return Bound.AT_LEAST
    if restarted_seconds(facts) is None:
        return Bound.AT_LEAST if key in (facts.seen or {}) else Bound.EXACT
    if facts.seen is not None or 0 < client_since_ms < master.boot_ms:
        return Bound.AT_LEAST
    return Bound.NOT_KNOWN

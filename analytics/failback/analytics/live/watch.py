"""Decides what a pair's tables had before its master's start, and what of it is lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from failback.analytics.live.facts import GroupTopic, PairFacts, Queues, Table, is_canary, user_keys
from failback.analytics.live.known import restarted_seconds
from failback.analytics.live.queues import behind, furthest, slave_ahead


def lost(facts: PairFacts) -> dict[GroupTopic, int]:
    """Return the messages between what was seen and what the master has now.

    Members that start now re-consume them. Groups and topics without any are missing.
    """
    found = {key: _lost(facts, key, queues) for key, queues in (facts.seen or {}).items()}
    return {key: messages for key, messages in found.items() if messages}


def _lost(facts: PairFacts, key: GroupTopic, queues: Queues) -> int:
    held = (facts.master.offsets if facts.master else None) or {}
    begins, ends = facts.begins.get(key.topic, {}), facts.ends.get(key.topic, {})
    return behind(queues, held.get(key), begins, ends)


@dataclass(slots=True)
class PairWatch:
    """What one process saw of a pair's offsets before its master's last start."""

    seen: Table | None = None
    """By group and topic the highest offsets since the master was last well; ``None``: not seen."""
    overwritten_at: float | None = None
    """Unix time of the first look after which no slave has more than the returned master."""
    is_dismissed: bool = False
    _well: tuple[Table, ...] = ()
    """The tables of the last look at a master that was well."""

    def look(self, facts: PairFacts) -> Table | None:
        """Take one look; return what was seen, as ``PairFacts.seen`` is to have it."""
        tables = tuple(each.offsets for each in facts.members if each.answered and each.offsets)
        master, is_young = facts.master, restarted_seconds(facts) is not None
        if self.seen and master is not None and not is_young:
            left = {
                key: queues
                for key, queues in self.seen.items()
                if facts.offsets_count(key.group) and _lost(facts, key, queues)
            }
            self.seen = left
        if not self.seen:
            self.overwritten_at, self.is_dismissed = None, False
            if master is not None and not is_young:
                self.seen, self._well = {}, tables
                return self.seen
            if master is not None and self.seen is None and not slave_ahead(facts):
                return None
        if master is None or is_young:
            known = (self.seen or {}, *self._well, *tables)
            self.seen = {
                key: furthest([table.get(key) for table in known])
                for key in user_keys(known)
                if facts.offsets_count(key.group) and not is_canary(key.group)
            }
        if master is None:
            self.overwritten_at, self.is_dismissed = None, False
        elif self.overwritten_at is None and not slave_ahead(facts):
            self.overwritten_at = facts.at
        return self.seen


def first_look(facts: PairFacts) -> PairFacts:
    """Return the facts with all that can be seen of a pair by one look at it."""
    return replace(facts, seen=PairWatch().look(facts))

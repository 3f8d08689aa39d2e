"""Which members groups have, and how far each of them had got. Pure.

Brokers list the members of a group. A member that is asked says for each queue which messages it
has in its memory:

* All messages below the first of them were handled.
* No message behind the last of them was delivered by then. The same holds for the moment when the
  member left, unless the member handled messages twice as fast as it was ever seen to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from failback.analytics.observe.looks import HeldQueue, Look, Place

_FASTER: Final = 2.0
JAVA: Final = "JAVA"
TELLS_NOBODY: Final = "GO"
"""Apache's client for Go commits to no broker while only a slave is there: its offset store asks
for broker id 0 alone (rocketmq-client-go, consumer/offset_store.go)."""
TELLS_THE_SLAVE: Final = "DOTNET"
"""A client that goes on committing to the slave after the return of the master, until its
connection breaks (NewLife.RocketMQ, ClusterClient.cs)."""


class MemberChange(NamedTuple):
    """A member joined or left a group between two moments, in seconds after run zero."""

    client: str
    group: str
    since: float
    until: float
    has_joined: bool = True

    @property
    def detail(self) -> str:
        return f"{self.client} {'joined' if self.has_joined else 'left'} {self.group}"


class MemberWatch:
    """The members of each group, as far as some broker lists them.

    Attributes:
        known: Group to its members.
        asked: Group to when a broker listed them last.
        empty_since: Group to the end of the look that showed its last member gone.
        languages: Client id to language, of members that are not Java's.
    """

    def __init__(self) -> None:
        self.known: dict[str, frozenset[str]] = {}
        self.asked: dict[str, float] = {}
        self.empty_since: dict[str, float] = {}
        self.languages: dict[str, str] = {}
        self._by_broker: dict[Place, tuple[int | None, Mapping[str, frozenset[str]]]] = {}

    def look(self, look: Look) -> Iterator[MemberChange]:
        """Take a look; yield the members that joined and left since the look before."""
        asked = [each for each in look.brokers if each.members is not None]
        listed: dict[str, set[str]] = {}
        left: dict[str, set[str]] = {}
        for broker in asked:
            self.languages |= broker.languages or {}
            now = {group: frozenset(them) for group, them in (broker.members or {}).items()}
            boot_ms, before = self._by_broker.get(broker.place, (None, {}))
            if broker.boot_ms != boot_ms:  # members have yet to connect to a new process
                before = {}
            self._by_broker[broker.place] = broker.boot_ms, now
            for group in now:
                listed.setdefault(group, set()).update(now[group])
                left.setdefault(group, set()).update(before.get(group, frozenset()) - now[group])
        for group, them in sorted(listed.items()):
            known, since = self.known.get(group), self.asked.get(group)
            gone = (left[group] - them) & (known or frozenset())
            self.known[group] = (known or frozenset()) - gone | them
            if self.known[group]:
                self.empty_since.pop(group, None)
            elif known:
                self.empty_since[group] = look.ended
            self.asked[group] = max(b.asked for b in asked if group in (b.members or {}))
            if known is None or since is None:
                continue
            for client in sorted(them - known):
                yield MemberChange(client, group, since, look.ended)
            for client in sorted(gone):
                yield MemberChange(client, group, since, look.ended, has_joined=False)

    def languages_of(self, group: str) -> frozenset[str]:
        """Return the languages of a group's members beside Java."""
        members = self.known.get(group, frozenset())
        return frozenset(self.languages[each] for each in members & self.languages.keys())


class HandledOffset(NamedTuple):
    """A group has handled all messages of a queue below an offset."""

    pair: str
    key: str
    """``topic@group``."""
    queue: int
    offset: int


@dataclass(slots=True)
class _Progress:
    """The last answer about one queue. ``rate``: the highest seen, in messages a second."""

    at: float
    handled: int
    highest: int
    count: int
    rate: float = 0.0


class ProgressWatch:
    """Remembers the answers of members, in looks that come in their order."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], _Progress] = {}

    def look(self, look: Look) -> Iterator[HandledOffset]:
        """Take a look; yield how far each queue that a member holds was handled."""
        for client in look.clients:
            for broker, topics in client.queues.items():
                pair = f"{client.cluster}/{broker}"
                for topic, queues in topics.items():
                    key = f"{topic}@{client.group}"
                    for queue, held in queues.items():
                        handled = held.lowest if held.cached else held.committed
                        if handled >= 0:
                            self._learn((pair, key, queue), client.at, handled, held)
                            yield HandledOffset(pair, key, queue, handled)

    def _learn(self, place: tuple[str, str, int], at: float, handled: int, held: HeldQueue) -> None:
        highest = held.highest if held.cached else handled - 1
        now = _Progress(at, handled, highest, held.cached)
        last = self._known.get(place)
        if last is not None and at > last.at:
            # Handled messages leave the cache one by one, also behind one that takes long.
            left = (highest - held.cached) - (last.highest - last.count)
            grown = max(handled - last.handled, left)
            now.rate = max(last.rate, grown / (at - last.at))
        self._known[place] = now

    def max_handled_offset(self, pair: str, key: str, queue: int, left_at: float) -> int | None:
        """Return the highest offset that members can have handled, of which the last has left.

        Args:
            left_at: When the last one left.

        Returns:
            ``None`` where the answers do not tell.
        """
        known = self._known.get((pair, key, queue))
        if known is None or not known.rate or left_at < known.at:
            return None
        can_have_handled = _FASTER * known.rate * (left_at - known.at)
        return known.highest + 1 if known.count >= can_have_handled else None

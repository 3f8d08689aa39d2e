"""How many messages a group received again when a master returned. Pure.

Terms, for one queue and one group:

* A *table* is what one broker holds as consumer offsets: for each queue the next message of the
  group. The *holder* is the member to which the group assigned the queue.
* A master's absence is an *outage*. A *return* is its end: another process of the master answers.
* ``outage_offset``: the offset in the master's table at the last look before the outage.
* ``returned_offset``: the offset in its table at the first look after the return.
* ``committed_offset``: the highest offset that any member of the pair held before that look.
* ``max_handled_offset``: the highest offset that a holder can have handled by then. It is above
  ``committed_offset``, because a holder commits only every few seconds.
* ``slave_offset``: the lowest offset that a slave held when the queue changed its holder and only
  slaves were there.

The rule. A member that keeps a queue goes on from its own memory: it receives nothing again. A new
holder asks a broker where to begin. It begins at some offset *b*, and receives again what the
holder before had handled from *b* on. The observer sees neither *b* nor what was handled. It sees
tables, and which members the brokers list. So the count is an interval:

* at least ``committed_offset`` - (the highest offset that *b* can be),
* at most ``max_handled_offset`` - (the lowest offset that *b* can be).

*b* lies between the offsets in the master's table at the looks before and after the change of the
holder. It may be as low as ``slave_offset`` where the change was during the outage. The lower end
of the interval counts only where the change is certain, and only as far as the new holder has
committed since. Without lists of members a change of the holder is always possible. What is not
known makes the interval wider. A number is never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from failback.analytics.live.facts import is_canary
from failback.analytics.observe.events import Outage
from failback.analytics.observe.members import TELLS_NOBODY

SLAVE_ONLY: Final = "ROLLBACK_SLAVE_ONLY_PROGRESS"
RESTART: Final = "ROLLBACK_RESTART"
STALE_SLAVE: Final = "ROLLBACK_STALE_SLAVE"
UNTOLD: Final = "ROLLBACK_UNTOLD"
TAILS: Final = ("TAIL_CRASH", "TAIL_REBALANCE", "TAIL_SHUTDOWN")


@dataclass(slots=True)
class QueueReturn:
    """One queue of one group at one return. The module says what the offsets mean."""

    returned_offset: int
    committed_offset: int
    max_handled_offset: int
    outage_offset: int
    min_returned_offset: int
    """The lowest offset that the returned master can have begun with.

    It is ``returned_offset``, unless the table was read late.
    """
    is_exact: bool = True
    """Whether the master began with ``returned_offset``.

    A master without an entry for the queue lets the client decide where to begin.
    """
    at_least: int = 0
    """Messages that the new holder will receive again, once it has come to ``committed_offset``."""
    at_most: int = 0
    master_offset: int = 0
    """The offset in the master's table at the last look."""
    slave_offset: int | None = None
    set_offset: int | None = None
    """What the offset was set to in the master while the group had no member."""
    master_offsets: set[int] = field(default_factory=set)
    """Offsets in the master's table at looks before it caught up with ``committed_offset``."""

    @property
    def messages_behind(self) -> int:
        """Committed messages that a holder which takes the queue now receives again."""
        return max(0, self.committed_offset - self.master_offset)

    @property
    def is_behind(self) -> bool:
        return self.messages_behind > 0

    @property
    def may_repeat(self) -> bool:
        """Whether a holder that takes the queue now may receive handled messages again."""
        return (
            self.is_behind or self.master_offset == self.committed_offset < self.max_handled_offset
        )

    def holder_changed(self, lowest: int, highest: int, *, is_certain: bool) -> None:
        """Widen the interval: a new holder may have begun between two offsets, inclusive.

        ``is_certain``: the queue has a new holder, and it asked the master.
        """
        if self.set_offset is None:
            lowest = min(lowest, self.min_returned_offset)
            if self.slave_offset is not None:
                lowest = min(lowest, self.slave_offset)
        self.at_most = max(self.at_most, self.max_handled_offset - lowest)
        if is_certain and self.is_exact:
            self.at_least = max(self.at_least, self.committed_offset - highest)

    def began_unseen(self, oldest_offset: int) -> None:
        """Widen the interval: a holder may have taken the queue before the table was read.

        It may have moved the table, so the master may have begun with ``oldest_offset``.
        """
        self.min_returned_offset = max(0, min(self.min_returned_offset, oldest_offset))
        self.holder_changed(self.min_returned_offset, self.returned_offset, is_certain=False)

    @property
    def received_again(self) -> int:
        """Messages that were received again for certain: those which the new holder committed."""
        began = self.committed_offset - self.at_least
        return max(0, min(self.at_least, min(self.master_offset, self.committed_offset) - began))


@dataclass(slots=True)
class GroupReturn:
    """One group on one topic at one return."""

    group: str
    topic: str
    queues: dict[int, QueueReturn]
    owner_changed: bool = False
    members_before: bool = False
    """Whether brokers listed the members before the return."""
    members_after: bool = False
    members: int = 0
    """How many it had when the master was back, as far as brokers listed them."""
    consumed: int = 0
    """By how much its offsets grew from the first sample to the return."""
    waiting: Sequence[int] = ()
    """Messages beyond its offsets, in the last few samples before the outage that have both."""
    languages: frozenset[str] = frozenset()
    """Of members from the outage on, beside Java."""
    is_listed: bool = False
    """Whether the returned master has listed all members at once.

    Before, one of several members may see itself alone and take the queues of the others.
    """
    was_lost: bool = False
    """Whether clients may have forgotten the queues: no route had any broker of the pair."""

    @property
    def at_least(self) -> int:
        """Messages that were received again for certain."""
        return sum(each.received_again for each in self.queues.values())

    @property
    def at_most(self) -> int:
        """Messages that can have been received again."""
        return sum(self._at_most(each) for each in self.queues.values())

    def of_queue(self, queue: int) -> tuple[int, int]:
        """Return how many messages of one queue were received again: at least, at most."""
        each = self.queues[queue]
        return each.received_again, self._at_most(each)

    def _at_most(self, queue: QueueReturn) -> int:
        # No change of the holder was seen. That is proof only where brokers listed the members
        # all the time, and the table was read before a member can have moved it.
        are_listed = self.members <= 1 or self.is_listed
        is_proof = (
            self.has_members and are_listed and queue.min_returned_offset == queue.returned_offset
        )
        if queue.at_most or is_proof or queue.set_offset is not None:
            return queue.at_most
        return max(0, queue.max_handled_offset - queue.min_returned_offset)

    @property
    def has_members(self) -> bool:
        """Whether brokers listed the members before the return and after it."""
        return self.members_before and self.members_after

    @property
    def causes(self) -> list[str]:
        """Why the master's table was behind, where messages may have been received again.

        Where no table was behind, the messages may be those that holders had not committed when
        they ended. Why they ended is not known.
        """
        if not self.at_most:
            return []
        found = []
        queues = self.queues.values()
        if any(each.outage_offset > each.min_returned_offset for each in queues):
            found.append(RESTART)
        if any(
            each.committed_offset > max(each.outage_offset, each.min_returned_offset)
            for each in queues
        ):
            found.append(SLAVE_ONLY)
        if any(
            each.slave_offset is not None and each.slave_offset < each.outage_offset
            for each in queues
        ):
            found.append(STALE_SLAVE)
        if self.tells_nobody and any(
            each.max_handled_offset > each.committed_offset for each in queues
        ):
            found.append(UNTOLD)
        return found or list(TAILS)

    @property
    def tells_nobody(self) -> bool:
        """Whether members may have handled more than any broker was told in the outage."""
        return TELLS_NOBODY in self.languages

    @property
    def safe_offsets(self) -> dict[int, int]:
        """Queue id to its safe offset at the return, of queues that were behind or are.

        A canary has none.
        """
        if is_canary(self.group):
            return {}
        return {
            queue: each.committed_offset
            for queue, each in self.queues.items()
            if each.is_behind or each.returned_offset < each.committed_offset
        }

    @property
    def offsets_to_set(self) -> dict[int, int]:
        """The safe offsets of queues that are behind now."""
        return {
            queue: offset
            for queue, offset in self.safe_offsets.items()
            if self.queues[queue].is_behind
        }


@dataclass(slots=True)
class Return:
    """One return of one master."""

    outage: Outage
    groups: list[GroupReturn] = field(default_factory=list)
    is_read: bool = False
    """Whether the returned master's table was read."""
    read_at: float = 0.0
    gap: str | None = None
    """Why the table that the master began with is not known."""

    @property
    def broker(self) -> str:
        return self.outage.pair.rpartition("/")[2]

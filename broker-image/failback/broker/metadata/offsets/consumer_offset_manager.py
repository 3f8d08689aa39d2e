"""The consumer offsets of every group: ``config/consumerOffset.json`` and the table in memory.

Deletions are kept beside the offsets. A slave takes its master's offsets and keeps its own, and a
returning master may take larger offsets of its slaves. Neither can tell a lost offset from a
deleted one. So each table says what was deleted, and when. A broker that takes a table takes its
deletions first, and then only offsets of a table that knows the same deletions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from failback.broker.metadata.json_config import TableFile, backup_of, table_of
from failback.broker.metadata.offsets.regressions import OffsetRegressions
from failback.protocol.errors import ProtocolError
from failback.protocol.names import (
    MOST_QUEUES,
    NameRefused,
    check_group,
    check_room,
    check_topic,
)
from failback.protocol.route import ConsumerOffsetTable, split_offset_key

logger = logging.getLogger(__name__)


MOST_KEPT: Final = 10_000
"""Deletions that are remembered; beyond, the oldest are forgotten."""
_SEPARATOR: Final = "@"
_BEFORE_ROWS: Final = b'{"offsetTable":{'
MOST_ROWS: Final = 1_000_000


def of_topic(topic: str) -> str:
    """Return the key of the offsets of all groups on ``topic``."""
    return f"{topic}@"


def of_group(group: str) -> str:
    """Return the key of all offsets of ``group``."""
    return f"@{group}"


class OffsetDeletions:
    """Key of what was deleted to when, in ms of the master that did it.

    Attributes:
        table: As in consumerOffset.json and in the answer to 43.
    """

    def __init__(self, table: Mapping[str, int] | None = None) -> None:
        self.table: dict[str, int] = dict(table or {})

    def note(self, key: str, at_ms: int) -> bool:
        """Remember a deletion; tell whether it is newer than what was known of ``key``."""
        if at_ms <= self.table.get(key, -1):
            return False
        self.table.pop(key, None)  # the newest comes last
        self.table[key] = at_ms
        if len(self.table) > MOST_KEPT:
            del self.table[min(self.table, key=self.table.__getitem__)]
        return True

    def newer(self, theirs: Mapping[str, int] | None) -> Iterable[tuple[str, int]]:
        """Return what another table's deletions say that is newer than what is known here."""
        told = theirs or {}
        return [(key, at_ms) for key, at_ms in told.items() if at_ms > self.table.get(key, -1)]

    def has_heard(self, theirs: Mapping[str, int] | None, key: str) -> bool:
        """Whether a table with the deletions ``theirs`` may say something of ``topic@group``."""
        if not self.table:
            return True
        told, (topic, group) = theirs or {}, split_offset_key(key)
        return all(
            told.get(each, -1) >= self.table.get(each, -1)
            for each in (of_topic(topic), of_group(group))
        )

    def known_to(
        self, table: Mapping[str, Mapping[int, int]], theirs: Mapping[str, int] | None
    ) -> Mapping[str, Mapping[int, int]]:
        """Return of another table what is of the time after all deletions that are known here."""
        if not self.table:
            return table
        return {key: queues for key, queues in table.items() if self.has_heard(theirs, key)}


OffsetTable = dict[str, dict[int, int]]
"""``topic@group`` -> queue id -> next queue offset to consume."""


class IndexedTable(OffsetTable):
    """An offset table that knows its keys by topic and by group, whichever code changes it."""

    def __init__(self, rows: OffsetTable) -> None:
        super().__init__(rows)
        self.groups_of: dict[str, set[str]] = {}
        self.topics_of: dict[str, set[str]] = {}
        for key in rows:
            self._note(key)

    def __setitem__(self, key: str, queues: dict[int, int]) -> None:
        self._note(key)
        super().__setitem__(key, queues)

    def setdefault(self, key: str, default: dict[int, int] | None = None) -> dict[int, int]:
        if key not in self:
            self[key] = {} if default is None else default
        return self[key]

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        topic, group = split_offset_key(key)
        for index, name, other in ((self.groups_of, topic, group), (self.topics_of, group, topic)):
            others = index.get(name, set())
            others.discard(other)
            if not others:
                index.pop(name, None)

    def _note(self, key: str) -> None:
        topic, separator, group = key.partition(_SEPARATOR)
        if separator and _SEPARATOR not in group:
            self.groups_of.setdefault(topic, set()).add(group)
            self.topics_of.setdefault(group, set()).add(topic)


class ConsumerOffsetManager:
    """The offsets that groups committed. ConsumerOffsetManager of apache/rocketmq 4.9.8.

    Every commit is stored: smaller than the current one, negative, for an unknown topic or group,
    on a slave too. Only what cannot be a topic, a group or a queue is refused. The broker persists
    the table every ``flushConsumerOffsetInterval``, first ten seconds after its start, and at a
    clean stop. What was committed since the last persist dies with the process.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_atomic: Callable[[], bool] = lambda: False,
        most_rows: Callable[[], int] = lambda: MOST_ROWS,
        is_topic: Callable[[str], bool] = lambda _: False,
        is_group: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``is_atomic`` tells for each persist whether the file is replaced in one, synced step.

        ``most_rows`` tells how many offsets are kept before a new queue of a group is refused.
        ``is_topic`` and ``is_group`` tell what this broker has: that may be called as it is.
        """
        self.file = TableFile(path, is_atomic)
        self._most_rows = most_rows
        self._is_topic, self._is_group = is_topic, is_group
        self.table = IndexedTable({})
        self._answered: dict[str, tuple[dict[int, int], bytes]] = {}
        """By key, what the last answer to 43 said of it, and how."""
        self.deletions = OffsetDeletions()
        self._rows = 0
        """At most as many as there are, where others changed the table."""
        self._keys_at_count = -1
        self.regressions = OffsetRegressions()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store ``offset`` as the group's next queue offset, also below the stored one.

        Raises:
            NameRefused: Neither topic nor group nor queue has an offset here, and one of them
                cannot be.
            TableFull: There is no room for another offset.
        """
        key = f"{topic}{_SEPARATOR}{group}"
        queues = self.table.get(key)
        if queues is None:
            self._check_names(topic, group)
            queues = self.table.setdefault(key, {})
        stored = queues.get(queue_id)
        if stored is None:
            self._check_new_row(key, queue_id)
        queues[queue_id] = offset
        if stored is not None and offset < stored:
            self.regressions.committed(key, queue_id, stored, offset)
            logger.warning(
                "consumer offset goes back: group=%s topic=%s queue_id=%d from %d to %d",
                group,
                topic,
                queue_id,
                stored,
                offset,
            )

    def _check_names(self, topic: str, group: str) -> None:
        if not self._is_topic(topic):
            check_topic(topic)
        if not self._is_group(group):
            check_group(group)

    def _check_new_row(self, key: str, queue_id: int) -> None:
        try:
            if not 0 <= queue_id < MOST_QUEUES:
                raise NameRefused(f"queueId {queue_id} is that of no queue")
            check_room("consumer offsets", self._row_count(), self._most_rows())
            self._rows += 1
        except ProtocolError:
            if not self.table[key]:
                del self.table[key]
            raise

    def _row_count(self) -> int:
        """Return how many offsets there are; counted only where the table seems to be full."""
        if self._rows >= self._most_rows() and len(self.table) != self._keys_at_count:
            self._rows = sum(map(len, self.table.values()))
            self._keys_at_count = len(self.table)
        return self._rows

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, -1 when there is none."""
        queues = self.table.get(f"{topic}{_SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets on ``topic`` by queue id, negative ones too."""
        return self.table.get(f"{topic}{_SEPARATOR}{group}", {})

    def clone(self, source: str, target: str, topic: str) -> None:
        """Replace all offsets of ``target`` on ``topic`` by those of ``source``, if it has any.

        Raises as :meth:`commit`.
        """
        queues = self.of(source, topic)
        if queues:
            self._check_names(topic, target)
            check_room("consumer offsets", self._row_count(), self._most_rows())
            self.table[f"{topic}{_SEPARATOR}{target}"] = dict(queues)

    def topics_of(self, group: str) -> set[str]:
        """Return the topics on which ``group`` has offsets."""
        return set(self.table.topics_of.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets on ``topic``."""
        return set(self.table.groups_of.get(topic, ()))

    def remove_group(self, group: str, at_ms: int) -> None:
        """Forget every offset of ``group``, for good: see :mod:`.offset_deletions`."""
        self._delete(of_group(group), at_ms)

    def remove_topic(self, topic: str, at_ms: int) -> None:
        """Forget the offsets of all groups on ``topic``, for good."""
        self._delete(of_topic(topic), at_ms)

    def take_deletions(self, told: ConsumerOffsetTable) -> Mapping[str, Mapping[int, int]]:
        """Delete here too what the master says is deleted.

        Returns its offsets, but for those of a time before a deletion that is known here.
        """
        for deleted, at_ms in self.deletions.newer(told.deletions):
            self._delete(deleted, at_ms)
        return self.deletions.known_to(told.offset_table, told.deletions)

    def _delete(self, deleted: str, at_ms: int) -> None:
        if not self.deletions.note(deleted, at_ms):
            return
        topic, group = split_offset_key(deleted)
        for key in list(self.table):
            its_topic, its_group = split_offset_key(key)
            if (its_topic == topic) if topic else (its_group == group):
                del self.table[key]

    def merge_from_master(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Take over a master's table as SlaveSynchronize does, compared with nothing.

        Every ``topic@group`` of the master replaces the whole local entry, larger local offsets
        included; entries the master does not have stay.
        """
        self.regressions.overwritten(self.table, table)
        for key, queues in table.items():
            self.table[key] = dict(queues)

    def to_json(self) -> bytes:
        """Return the body that answers GET_ALL_CONSUMER_OFFSET; only what changed is encoded."""
        known, self._answered = self._answered, {}
        for key in sorted(self.table):
            queues, row = self.table[key], known.get(key)
            if row is None or row[0] != queues:
                text = ConsumerOffsetTable({key: queues}).to_json(unquoted_int_keys=True)
                row = dict(queues), text[len(_BEFORE_ROWS) : -2]
            self._answered[key] = row
        empty = ConsumerOffsetTable({}, self.deletions.table or None).to_json()
        return b"%b%b}}" % (empty[:-2], b",".join(row for _, row in self._answered.values()))

    def _to_body(self) -> ConsumerOffsetTable:
        return ConsumerOffsetTable(self.table, self.deletions.table or None)

    def load(self) -> None:
        """Read the file, or its ``.bak``; with neither the table is empty.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        loaded = self.file.load(table_of(ConsumerOffsetTable))
        loaded = loaded or ConsumerOffsetTable()
        self.table = IndexedTable(loaded.offset_table)
        self.deletions = OffsetDeletions(loaded.deletions)
        self._rows = sum(map(len, self.table.values()))

    def previous(self) -> OffsetTable | None:
        """Return the table of one persist before the file's; ``None`` if it is not known."""
        if not self.file.path.exists():  # the table was loaded from there
            return None
        try:
            return ConsumerOffsetTable.from_json(
                backup_of(self.file.path).read_bytes()
            ).offset_table
        except (OSError, ProtocolError):
            return None

    def persist(self) -> None:
        """Write the whole table, changed or not; a disk without room gets it later.

        Raises:
            OSError: The disk is broken or read-only.
        """
        self.file.keep(self._to_text)

    async def persist_aside(self) -> None:
        """Write the table as it is now; a sync to disk holds up a thread and not the event loop.

        What is written meanwhile is newer, and stays. Where the disk has no room, the file is
        written soon after it has some again.

        Raises:
            OSError: The disk is broken or read-only.
        """
        if self.file.is_guarded():
            generation = self.file.next_generation()
            try:
                await asyncio.to_thread(self.file.write, self._to_text(), generation)
            except OSError as error:
                self.file.write_later(self._to_text, error)
        else:
            self.file.keep(self._to_text)

    def _to_text(self) -> str:
        return self._to_body().to_json(pretty=True).decode()

"""``config/consumerFilter.json``: the SQL92 filters of consumer groups, and since when.

A pull is filtered by the subscription of the last heartbeat. This file is the record that a broker
of 4.9 keeps and loads. A filter is dead when its group has gone, or when a start finds it. A dead
one stays in the file for a day. Slaves copy none of it.

Each filter has bits for its group and topic. With ``enableCalcFilterBitMap`` a broker of 4.9 notes
for each message which filters match, in a bloom filter. This broker notes nothing, but writes the
bits, because a broker of 4.9 that misses them, or finds others, drops the whole file.

Source: ConsumerFilterManager, ConsumerFilterData and BloomFilter.createByFn with the defaults of
``expectConsumerNumUseFilter`` and ``maxErrorRateOfBloomFilter``, apache/rocketmq 4.9.8; MurmurHash3
x64 128 of Austin Appleby.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from failback.broker.filters.subscription import Subscription
from failback.broker.metadata.json_config import TableFile, table_of
from failback.protocol.body import Body

logger = logging.getLogger(__name__)

PERSIST_PERIOD_MS: Final = 10_000
DEAD_KEPT_MS: Final = 24 * 3_600_000
_DEAD_BEFORE_START_MS: Final = 30_000
"""A start takes every filter to be dead, since at most this long."""
BIT_COUNT: Final = 112
"""For 32 consumers and an error rate of 20 %: 32 · log2 5 / ln 2, in whole bytes."""
BITS_EACH: Final = 3
"""log2 5, rounded up."""
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class BloomFilterData(Body):
    """The bits of one filter among ``bit_num``."""

    bit_num: int = BIT_COUNT
    bit_pos: list[int] = []


class ConsumerFilterData(Body):
    """One filter. Times are ms; it is dead while ``dead_time`` is not before ``born_time``."""

    consumer_group: str
    topic: str
    expression: str = ""
    expression_type: str = ""
    born_time: int = 0
    dead_time: int = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


class FiltersOfTopic(Body):
    """The filters of one topic, by group."""

    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = {}


class ConsumerFilterTable(Body):
    """The file."""

    filter_data_by_topic: dict[str, FiltersOfTopic] = {}


class ConsumerFilterManager:
    """Keeps the table. Changes reach the file with the next :meth:`persist`."""

    def __init__(
        self,
        path: Path,
        clock_ms: Callable[[], int],
        *,
        is_atomic: Callable[[], bool] = lambda: False,
    ) -> None:
        """``is_atomic`` tells for each persist whether the file is replaced in one, synced step."""
        self.file = TableFile(path, is_atomic)
        self._clock_ms = clock_ms
        self._written: str | None = None
        self.table: dict[str, FiltersOfTopic] = {}

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return a group's filter of a topic, dead or alive."""
        of_topic = self.table.get(topic)
        return of_topic.group_filter_data.get(group) if of_topic is not None else None

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Take what a group subscribes to; filters of other topics are dead from now on."""
        named = set()
        for subscription in subscriptions:
            named.add(subscription.data.topic)
            if not subscription.is_tag:
                self._take(group, subscription)
        self._end(group, kept=named)

    def unregister(self, group: str) -> None:
        """Take that a group has no member any more."""
        self._end(group, kept=())

    def _take(self, group: str, subscription: Subscription) -> None:
        data = subscription.data
        known = self.get(data.topic, group)
        if known is not None and not self._is_changed(known, subscription):
            return
        of_topic = self.table.setdefault(data.topic, FiltersOfTopic(data.topic))
        if subscription.matches is None:  # no filter after all: the answer to its pull says so
            of_topic.group_filter_data.pop(group, None)
            return
        of_topic.group_filter_data[group] = ConsumerFilterData(
            consumer_group=group,
            topic=data.topic,
            expression=data.sub_string,
            expression_type=data.expression_type,
            born_time=self._clock_ms(),
            bloom_filter_data=BloomFilterData(bit_pos=bits_of(group, data.topic)),
            client_version=data.sub_version,
        )
        logger.info("group %s filters %s: %s", group, data.topic, data.sub_string)

    def _is_changed(self, known: ConsumerFilterData, subscription: Subscription) -> bool:
        """Whether a newer version says something else; what says the same brings it to life."""
        data = subscription.data
        is_newer = data.sub_version > known.client_version
        expression = data.sub_string, data.expression_type
        if is_newer and (known.expression, known.expression_type) != expression:
            return True
        if data.sub_version >= known.client_version:
            known.client_version, known.dead_time = data.sub_version, 0
        return False

    def _end(self, group: str, kept: Iterable[str]) -> None:
        for topic in self.table.keys() - kept:
            known = self.get(topic, group)
            if known is not None and not known.is_dead:
                known.dead_time = self._clock_ms()

    def load(self) -> None:
        """Read the file, or its ``.bak``; with neither the table is empty.

        A file with bits of another kind is left aside as a whole, as 4.9.8 does: they belong to
        bit maps that this broker's successor would read.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        table = self.file.load(table_of(ConsumerFilterTable))
        if table is None:
            return
        latest = self._clock_ms() - _DEAD_BEFORE_START_MS
        for of_topic in table.filter_data_by_topic.values():
            for known in of_topic.group_filter_data.values():
                if not _fits(known.bloom_filter_data):
                    logger.warning("%s has bits of another kind: it begins again", self.file.path)
                    return
                if known.dead_time == 0:
                    known.dead_time = max(latest, known.born_time)
        self.table = table.filter_data_by_topic

    def persist(self) -> None:
        """Forget what has been dead for a day and write the table if it changed.

        Raises:
            OSError: The disk is broken or read-only.
        """
        self._forget()
        text = ConsumerFilterTable(self.table).to_json(pretty=True).decode()
        if text != self._written:
            self.file.keep(lambda: text)
            self._written = text

    def _forget(self) -> None:
        before = self._clock_ms() - DEAD_KEPT_MS
        for topic, of_topic in list(self.table.items()):
            filters = of_topic.group_filter_data
            for group in [
                group
                for group, known in filters.items()
                if known.is_dead and known.dead_time <= before
            ]:
                del filters[group]
            if not filters:
                del self.table[topic]


def _fits(data: BloomFilterData | None) -> bool:
    return data is not None and data.bit_num == BIT_COUNT and len(data.bit_pos) == BITS_EACH


def bits_of(group: str, topic: str) -> list[int]:
    """Return the numbers of the bits, in the original's order; they may repeat."""
    low = murmur3_low(f"{group}#{topic}".encode())
    first, step = _signed(low), _signed(low >> 32)
    bits = []
    for number in range(1, BITS_EACH + 1):
        combined = _signed(first + number * step)
        bits.append((combined if combined >= 0 else ~combined) % BIT_COUNT)
    return bits


def murmur3_low(data: bytes) -> int:
    """Return the lower 64 bits of MurmurHash3 x64 128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _scramble(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _scramble(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    h2 ^= _scramble(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    h1 ^= _scramble(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


def _scramble(block: int, before: int, turn: int, after: int) -> int:
    return _rotated(block * before & _MASK, turn) * after & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    """Return the lower 32 bits as Java's int."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value

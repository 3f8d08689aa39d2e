"""Counters by name and key over a minute, an hour and a day (VIEW_BROKER_STATS_DATA).

Counters only grow. Samples of them are taken every ten seconds, ten minutes and hour. The answer is
the difference between the oldest and the newest sample of a row.

Source: StatsItem, BrokerStatsManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from failback.broker.messaging.topic_admission import TopicAdmission
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.protocol.stats import BrokerStatsData, BrokerStatsItem

PERIOD_MS: Final = 10_000
_MINUTE, _HOUR, _DAY = range(3)
_EVERY: Final = (1, 60, 360)
"""Of how many rounds each row takes one sample."""
_MOST: Final = (7, 7, 25)
_WIDTH: Final = 3


class Count(NamedTuple):
    """A counter now: what it counted, and in how many calls."""

    name: str
    key: str
    value: int
    times: int


class StatsItems:
    """The rows of all counters. ``counts`` gives those that have counted anything."""

    def __init__(self, counts: Callable[[], Iterable[Count]], clock_ms: Callable[[], int]) -> None:
        self._counts = counts
        self._clock_ms = clock_ms
        self._round = 0
        # Flat rows of time, value, times: a broker may have thousands of counters.
        self._rows: dict[tuple[str, str], tuple[array[int], array[int], array[int]]] = {}

    def sample(self) -> None:
        """Take the samples of this round; rounds are :data:`PERIOD_MS` apart."""
        now, due = self._clock_ms(), [self._round % every == 0 for every in _EVERY]
        for count in self._counts():
            rows = self._rows.get((count.name, count.key))
            if rows is None:
                # A new counter begins all its rows, as in the original.
                rows = self._rows[count.name, count.key] = (array("q"), array("q"), array("q"))
                fill = [True] * len(_EVERY)
            else:
                fill = due
            for row, most, take in zip(rows, _MOST, fill, strict=True):
                if take:
                    row.extend((now, count.value, count.times))
                    del row[: max(0, len(row) - most * _WIDTH)]
        self._round += 1

    def get(self, name: str, key: str) -> BrokerStatsData | None:
        """Return one counter's figures, ``None`` if there is no such counter."""
        rows = self._rows.get((name, key))
        if rows is None:
            found = any(count[:2] == (name, key) for count in self._counts())
            return BrokerStatsData() if found else None
        return BrokerStatsData(*map(_between, rows))


def _between(row: array[int]) -> BrokerStatsItem:
    """Return what was counted between a row's first sample and its last."""
    first, last = row[:_WIDTH], row[-_WIDTH:]
    elapsed_ms = last[0] - first[0]
    # A counter that was forgotten meanwhile begins again at 0.
    total, times = max(0, last[1] - first[1]), max(0, last[2] - first[2])
    return BrokerStatsItem(
        total,
        total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
        total / times if times else 0.0,
    )


def stats_counts(
    cluster: str, admission: TopicAdmission, statistics: BrokerStatistics
) -> Iterator[Count]:
    """Yield what has counted something. A message that is sent counts as a call of its own."""
    for topic, target in admission.targets.items():
        if target.messages_in:
            yield Count("TOPIC_PUT_NUMS", topic, target.messages_in, target.messages_in)
            yield Count("TOPIC_PUT_SIZE", topic, target.bytes_in, target.messages_in)
    for (topic, group), reads in statistics.reads.items():
        key = f"{topic}@{group}"
        yield Count("GROUP_GET_NUMS", key, statistics.messages_out[topic, group], reads.found)
        yield Count("GROUP_GET_SIZE", key, reads.bytes, reads.found)
    for (topic, group, queue_id), of_queue in statistics.queue_reads.items():
        key = f"{queue_id}@{topic}@{group}"
        yield Count("GROUP_GET_LATENCY", key, of_queue.milliseconds, of_queue.found)
    for key, sent_back in statistics.sent_back.items():
        yield Count("SNDBCK_PUT_NUMS", key, sent_back, sent_back)
    puts, gets = statistics.put_messages, statistics.transferred_messages
    if puts:
        yield Count("BROKER_PUT_NUMS", cluster, puts, puts)
    if gets:
        yield Count("BROKER_GET_NUMS", cluster, gets, statistics.get_found)

"""Counters over a minute, an hour and a day: windows, rates, counters that begin late or again."""

from __future__ import annotations

from failback.broker.monitoring.stats_items import PERIOD_MS, Count, StatsItems
from failback.protocol.stats import BrokerStatsData, BrokerStatsItem

ROUNDS_PER_HOUR = 3_600_000 // PERIOD_MS


class Counter:
    """One counter that counts ``per_round`` in each round, two at a time."""

    def __init__(self, per_round: int) -> None:
        self.per_round = per_round
        self.now_ms = 0
        self.value = 0
        self.items = StatsItems(self._counts, lambda: self.now_ms)

    def _counts(self) -> list[Count]:
        return [Count("TOPIC_PUT_NUMS", "T", self.value, self.value // 2)] if self.value else []

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.now_ms += PERIOD_MS
            self.value += self.per_round
            self.items.sample()

    def data(self) -> BrokerStatsData:
        data = self.items.get("TOPIC_PUT_NUMS", "T")
        assert data is not None
        return data


def test_each_row_covers_its_time() -> None:
    counter = Counter(30)
    counter.rounds(26 * ROUNDS_PER_HOUR)
    data = counter.data()
    assert data.stats_minute == BrokerStatsItem(6 * 30, 3.0, 2.0)
    assert data.stats_hour == BrokerStatsItem(360 * 30, 3.0, 2.0)
    assert data.stats_day == BrokerStatsItem(24 * ROUNDS_PER_HOUR * 30, 3.0, 2.0)


def test_a_counter_that_begins_late_begins_all_its_rows() -> None:
    counter = Counter(0)
    counter.rounds(17)
    assert counter.items.get("TOPIC_PUT_NUMS", "T") is None
    counter.per_round = 10
    counter.rounds(1)
    assert counter.data() == BrokerStatsData()
    counter.rounds(3)
    assert counter.data().stats_minute == BrokerStatsItem(30, 1.0, 2.0)
    assert counter.data().stats_hour == BrokerStatsItem()
    counter.rounds(60)
    assert counter.data().stats_hour.tps == 1.0


def test_what_stops_counting_falls_to_zero() -> None:
    counter = Counter(10)
    counter.rounds(10)
    counter.per_round = 0
    counter.rounds(3)
    assert counter.data().stats_minute.sum == 30
    counter.rounds(4)
    assert counter.data().stats_minute == BrokerStatsItem()


def test_a_counter_that_was_forgotten_never_counts_backwards() -> None:
    counter = Counter(10)
    counter.rounds(5)
    counter.value = 0
    counter.rounds(1)
    assert counter.data().stats_minute == BrokerStatsItem()

"""Rates, latencies and the totals at midnight."""

from __future__ import annotations

import pytest

from failback.broker.monitoring.runtime_info import bytes_text, uptime_text
from failback.broker.monitoring.statistics import BrokerStatistics


class Lab:
    def __init__(self) -> None:
        self.now = 0.0
        self.day = 10
        self.statistics = BrokerStatistics(clock=lambda: self.now, local_day=lambda: self.day)

    def seconds(self, count: int, put_each: int = 0) -> None:
        for _ in range(count):
            self.now += 1
            self.statistics.put_messages += put_each
            self.statistics.sample()


def test_rates_cover_their_windows() -> None:
    lab = Lab()
    lab.seconds(600, put_each=5)
    lab.seconds(50, put_each=20)
    lab.seconds(10, put_each=100)
    assert lab.statistics.rates("put") == pytest.approx(
        (100.0, (50 * 20 + 10 * 100) / 60, (540 * 5 + 50 * 20 + 10 * 100) / 600)
    )


def test_a_young_broker_shows_the_rate_of_its_life() -> None:
    lab = Lab()
    assert lab.statistics.rates("put") == (0.0, 0.0, 0.0)
    lab.seconds(5, put_each=4)
    assert lab.statistics.rates("put") == pytest.approx((4.0, 4.0, 4.0))


def test_totals_are_noted_at_midnight() -> None:
    lab = Lab()
    lab.seconds(3, put_each=10)
    lab.day = 11
    lab.seconds(1, put_each=1)
    lab.day = 12
    lab.seconds(1, put_each=1)
    assert lab.statistics.put_total_at_midnight == [31, 32]


def test_latencies_are_classed_and_ranked() -> None:
    lab = Lab()
    for milliseconds, count in ((0.2, 980), (7, 15), (1500, 5)):
        lab.statistics.put_messages += count
        lab.statistics.committed(milliseconds / 1000)
    distribution = lab.statistics.latency_distribution()
    assert distribution.startswith("[<=0ms]:980 [0~10ms]:15 [10~50ms]:0")
    assert "[1~2s]:5" in distribution
    assert lab.statistics.latency_ms(0.99) == 7
    assert lab.statistics.latency_ms(0.999) == 1500
    assert lab.statistics.put_longest_ms == pytest.approx(1500)


def test_texts_read_as_those_of_the_original() -> None:
    assert uptime_text(28 * 60_000 + 29_500) == "[ 0 days, 0 hours, 28 minutes, 29 seconds ]"
    assert uptime_text(-100_500) == "[ 0 days, 0 hours, -1 minutes, -40 seconds ]"
    assert uptime_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert bytes_text(12) == "12 B"
    assert bytes_text(270_582_939_648) == "252.0 GiB"

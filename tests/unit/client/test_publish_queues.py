"""Which queue the next send goes to."""

from __future__ import annotations

import random

import pytest

from failback.client.sending.publish import LatencyFaults, PublishInfo, SendCounter, unavailable_ms
from failback.protocol.body import MessageQueue

QUEUES = [MessageQueue("T", name, number) for name in ("a", "b") for number in range(2)]
INFO = PublishInfo(QUEUES, has_route=True, write_queues={"a": 2, "b": 2})


def counter(value: int = -1) -> SendCounter:
    own = SendCounter(random.Random(0))
    own._value = value
    return own


def test_queues_take_turns() -> None:
    turns = counter()
    assert [INFO.select(turns, None) for _ in range(5)] == [*QUEUES, QUEUES[0]]


def test_the_counter_wraps_at_31_bits() -> None:
    turns = counter(0x7FFF_FFFE)
    assert INFO.select(turns, None) == QUEUES[0x7FFF_FFFF % 4]
    assert INFO.select(turns, None) == QUEUES[0]


def test_a_retry_avoids_the_broker_that_failed() -> None:
    turns = counter()
    assert INFO.select(turns, "a").broker_name == "b"
    assert INFO.select(turns, "b").broker_name == "a"


def test_a_retry_with_one_broker_takes_the_next_queue() -> None:
    alone = PublishInfo(QUEUES[:2], has_route=True)
    turns = counter()
    # Two steps find no other broker, the third is the plain pick.
    assert alone.select(turns, "a") == QUEUES[0]
    assert turns._value == 2


@pytest.mark.parametrize(
    ("latency", "away"),
    [
        (49, 0),
        (50, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1_000, 60_000),
        (2_999, 120_000),
        (3_000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
        (30_000, 600_000),
    ],
)
def test_slow_brokers_are_avoided_for_a_while(latency: int, away: int) -> None:
    assert unavailable_ms(latency) == away


def test_a_failed_attempt_isolates_its_broker_for_600_s() -> None:
    faults = LatencyFaults(random.Random(0))
    faults.update("a", 3.0, isolate=True, now=0.0)
    turns = counter()
    assert {faults.select(INFO, turns, 599.9).broker_name for _ in range(8)} == {"b"}
    assert {faults.select(INFO, turns, 600.0).broker_name for _ in range(8)} == {"a", "b"}


def test_with_all_away_the_better_half_is_used() -> None:
    faults = LatencyFaults(random.Random(0))
    faults.update("a", 20_000.0, isolate=False, now=0.0)
    faults.update("b", 600.0, isolate=False, now=0.0)
    assert {faults.select(INFO, counter(), 1.0).broker_name for _ in range(6)} == {"b"}


def test_a_broker_without_writable_queues_is_forgotten() -> None:
    faults = LatencyFaults(random.Random(0))
    faults.update("x", 1.0, isolate=True, now=0.0)
    info = PublishInfo([MessageQueue("T", "x", 0)], has_route=True, write_queues={"x": 0})
    assert faults.select(info, counter(), 1.0) == MessageQueue("T", "x", 0)
    assert faults.is_available("x", 1.0)


def test_a_scaled_run_scales_thresholds_and_durations() -> None:
    faults = LatencyFaults(random.Random(0), scale=0.1)
    faults.update("a", 60.0, isolate=False, now=0.0)  # as 600 ms unscaled
    assert not faults.is_available("a", 2.9)
    assert faults.is_available("a", 3.0)

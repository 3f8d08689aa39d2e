"""Of which topics and groups more is asked."""

from __future__ import annotations

from failback.analytics.exporter.details import furthest_behind, wanted_counters
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerConnection, SubscriptionData
from failback.protocol.stats import TopicOffset

ENDS = {"T": {0: 100, 1: 100}, "U": {0: 10}}


def test_those_that_wait_are_asked_about_the_furthest_first() -> None:
    offsets = {
        "T@little": {0: 99, 1: 100},
        "T@none": {0: 100, 1: 100},
        "T@much": {0: 0, 1: 100},
        "U@never": {0: -1},
        "Gone@g": {0: 5},
    }
    found = furthest_behind(offsets, ENDS, {})
    assert found == [("T", "much"), ("U", "never"), ("T", "little")]


def test_of_very_many_a_few_hundred_are_asked() -> None:
    offsets = {f"T@g{number}": {0: number % 90} for number in range(1000)}
    found = furthest_behind(offsets, ENDS, {})
    assert len(found) == 200
    assert {offsets[f"{topic}@{group}"][0] for topic, group in found} < set(range(30))


def connection(*topics: str) -> ConsumerConnection:
    return ConsumerConnection([], {topic: SubscriptionData(topic, "*") for topic in topics})


def queues(topic: str, *times: int) -> dict[MessageQueue, TopicOffset]:
    return {
        MessageQueue(topic, "b", number): TopicOffset(0, 1, at) for number, at in enumerate(times)
    }


def test_counters_are_asked_of_what_is_at_work() -> None:
    topics = {"T": queues("T", 10, 2000), "Old": queues("Old", 10), "%RETRY%g": queues("R", 2000)}
    found = wanted_counters(topics, {"g": connection("T", "Elsewhere")}, after_ms=1000)
    assert found == [
        ("TOPIC_PUT_SIZE", "T"),
        ("GROUP_GET_SIZE", "T@g"),
        ("SNDBCK_PUT_NUMS", "T@g"),
        ("GROUP_GET_LATENCY", "0@T@g"),
        ("GROUP_GET_LATENCY", "1@T@g"),
    ]


def test_of_very_many_counters_a_few_hundred_are_asked() -> None:
    topics = {f"T{number}": queues(f"T{number}", 5, 5, 5, 5) for number in range(300)}
    found = wanted_counters(topics, {"g": connection(*topics)}, after_ms=0)
    assert len(found) == 4 * 200

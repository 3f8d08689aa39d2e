"""Allocation strategies: the vectors of the 4.9.8 classes, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.client.consumer.strategies import (
    STRATEGIES,
    AllocationImpossible,
    average,
    average_by_circle,
    consistent_hash,
    java_string_order,
)
from failback.protocol.body import MessageQueue

MEMBERS = ["10.0.0.1@7#1", "10.0.0.2@7#1", "10.0.0.3@7#1"]
QUEUES = [MessageQueue("T", f"broker-{name}", number) for name in "ab" for number in range(4)]


def names(queues: list[MessageQueue]) -> str:
    return " ".join(f"{queue.broker_name[-1]}{queue.queue_id}" for queue in queues)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (average, ["a0 a1 a2", "a3 b0 b1", "b2 b3"]),
        (average_by_circle, ["a0 a3 b2", "a1 b0 b3", "a2 b1"]),
        (consistent_hash, ["a1 a2 b0 b3", "a3 b1 b2", "a0"]),
    ],
)
def test_vectors_of_the_java_classes(strategy: object, expected: list[str]) -> None:
    assert [names(strategy(member, QUEUES, MEMBERS)) for member in MEMBERS] == expected  # type: ignore[operator]


@pytest.mark.parametrize("strategy", [average, average_by_circle])
def test_members_beyond_the_queues_get_none(strategy: object) -> None:
    shares = [names(strategy(member, QUEUES[:2], MEMBERS)) for member in MEMBERS]  # type: ignore[operator]
    assert shares == ["a0", "a1", ""]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_member_that_is_not_listed_gets_nothing(name: str) -> None:
    assert STRATEGIES[name]("10.0.0.9@7#1", QUEUES, MEMBERS) == []


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("own", "queues", "members"),
    [("", QUEUES, MEMBERS), (MEMBERS[0], [], MEMBERS), (MEMBERS[0], QUEUES, [])],
)
def test_an_empty_input_leaves_the_topic_as_it_is(
    name: str, own: str, queues: list[MessageQueue], members: list[str]
) -> None:
    with pytest.raises(AllocationImpossible):
        STRATEGIES[name](own, queues, members)


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(STRATEGIES)),
    queue_count=st.integers(1, 40),
    member_count=st.integers(1, 12),
)
def test_the_members_split_all_queues_without_overlap(
    name: str, queue_count: int, member_count: int
) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(queue_count)]
    members = [f"10.0.0.{number}@1" for number in range(member_count)]
    shares = [STRATEGIES[name](member, queues, members) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues
    if name != "CONSISTENT_HASH":
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_member_ids_sort_by_code_unit_as_in_java() -> None:
    ids = ["10.0.0.1@9@10", "10.0.0.1@10@1", "10.0.0.1@\U0001f600", "10.0.0.1@\uffee"]
    assert sorted(ids, key=java_string_order) == [
        "10.0.0.1@10@1",
        "10.0.0.1@9@10",
        "10.0.0.1@\U0001f600",  # surrogates sort below U+FFEE
        "10.0.0.1@\uffee",
    ]

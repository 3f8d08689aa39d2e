"""Puts that wait for a slave: released by acknowledgements and the clock, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.ha.group_transfer import GroupTransfer

pytestmark = pytest.mark.unit


@pytest.fixture
def answered() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def put(answered: list[tuple[str, bool]]) -> Callable[[str], Callable[[bool], None]]:
    return lambda name: lambda replicated: answered.append((name, replicated))


Put = Callable[[str], Callable[[bool], None]]


def test_an_acknowledgement_releases_every_put_it_covers(
    answered: list[tuple[str, bool]], put: Put
) -> None:
    transfer = GroupTransfer(3000)
    for name, end_offset in [("a", 100), ("b", 200), ("c", 201)]:
        transfer.wait(end_offset, 0, put(name))
    transfer.acknowledge(200)
    assert answered == [("a", True), ("b", True)]
    assert len(transfer) == 1


def test_a_deadline_releases_as_not_replicated(answered: list[tuple[str, bool]], put: Put) -> None:
    transfer = GroupTransfer(3000)
    transfer.wait(100, 10, put("a"))
    transfer.wait(200, 500, put("b"))
    assert transfer.next_deadline_ms == 3010
    transfer.expire(3009)
    assert answered == []
    transfer.expire(3010)
    assert answered == [("a", False)]
    transfer.acknowledge(200)
    assert answered == [("a", False), ("b", True)]
    assert transfer.next_deadline_ms is None


def test_a_stopping_broker_lets_nobody_wait(answered: list[tuple[str, bool]], put: Put) -> None:
    transfer = GroupTransfer(3000)
    transfer.wait(100, 0, put("a"))
    transfer.cancel()
    assert answered == [("a", False)]


@given(
    ends=st.lists(st.integers(1, 50), max_size=20).map(sorted),
    acks=st.lists(st.integers(0, 60), max_size=20),
)
def test_a_put_is_answered_once_and_true_only_when_it_was_acknowledged(
    ends: list[int], acks: list[int]
) -> None:
    transfer = GroupTransfer(3000)
    answers: dict[int, list[bool]] = {}
    for number, end_offset in enumerate(ends):
        transfer.wait(end_offset, 0, answers.setdefault(number, []).append)
    for ack in acks:
        transfer.acknowledge(ack)
    transfer.expire(3000)
    best = max(acks, default=0)
    assert answers == {number: [end <= best] for number, end in enumerate(ends)}

"""Subscription expressions."""

from __future__ import annotations

import pytest

from failback.broker.filters.subscription import of_heartbeat, parse
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import ProtocolError


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_nothing_and_a_star_mean_everything(expression: str | None) -> None:
    assert parse("T", expression).tags is None


def test_tags_become_java_hashes() -> None:
    assert parse("T", "TagA || TagB").tags == frozenset({2598919, 2598920})
    assert parse("T", "TagA||").tags == frozenset({2598919})


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_refused(expression: str) -> None:
    with pytest.raises(ProtocolError):
        parse("T", expression)


def test_a_heartbeats_hashes_are_the_clients() -> None:
    data = SubscriptionData("T", "TagA", ["TagA"], [2598919])
    assert of_heartbeat(data).tags == frozenset({2598919})
    assert of_heartbeat(SubscriptionData("T", "*")).tags is None

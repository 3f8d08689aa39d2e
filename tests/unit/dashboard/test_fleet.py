"""What the Fleet page says of a pair."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.clusters import LOCAL, ClusterRef, MemberRef, PairRef
from failback.analytics.dashboard.views.fleet import cluster_document, exposure_document
from failback.analytics.live.exposure import GroupExposure
from failback.analytics.live.facts import GroupTopic
from failback.analytics.live.known import Bound

KEY = GroupTopic("billing", "orders")


def on_slave(*held: int) -> int | None:
    """What a kill would repeat on the slave, of a pair with slaves that hold these offsets."""
    members = tuple(MemberRef(f"m{n}", "m", f"h:{n}", n) for n in range(len(held) + 1))
    cluster = ClusterRef("c", "c", LOCAL, "here", "failback", (), (PairRef("m", members),))
    seen = {
        member.address: BrokerSeen(
            member,
            9.0,
            broker_id=member.broker_id,
            boot_ms=1,
            offsets={KEY: {0: offset}},
            stored_since_ms=1,
        )
        for member, offset in zip(members, (1000, *held), strict=True)
    }
    (pair,) = cluster_document(cluster, seen, {("c", "m"): {KEY: 0.0}}, 9.0)["pairs"]
    (row,) = pair["groups"]
    found: int | None = row["on_slave"]
    return found


def test_the_slave_that_knows_least_counts() -> None:
    assert on_slave() is None
    assert on_slave(980) == 20
    assert on_slave(980, 700) == on_slave(700, 980) == 300


@pytest.mark.parametrize(
    ("bound", "shown"),
    [(Bound.EXACT, (0, 0, 5)), (Bound.AT_LEAST, (None, None, 5))],
)
def test_a_lower_bound_of_zero_is_not_shown_as_zero(
    bound: Bound, shown: tuple[int | None, ...]
) -> None:
    none = GroupExposure("billing", ("orders",), 1.0, 0.0, 0.0, True, bound)
    some = replace(none, after_return=5.0)
    documents = [exposure_document("billing", ["orders"], 1.0, each) for each in (none, some)]
    found = documents[0]["after_return"], documents[0]["on_slave"], documents[1]["after_return"]
    assert found == shown

"""What the Fleet page says of a pair."""

from __future__ import annotations

from failback.analytics.dashboard.sources.clusters import LOCAL, ClusterRef, MemberRef, PairRef
from failback.analytics.dashboard.sources.observe import BrokerSeen, GroupTopic
from failback.analytics.dashboard.views.fleet import cluster_document

KEY = GroupTopic("billing", "orders")


def on_slave(*sync_ages: float | None) -> int | None:
    """What a kill would repeat on the slave, of a pair with slaves of these ages."""
    members = tuple(MemberRef(f"m{n}", "m", f"h:{n}", n) for n in range(len(sync_ages) + 1))
    cluster = ClusterRef("c", "c", LOCAL, "here", "failback", (), (PairRef("m", members),))
    offsets = {KEY: {0: 1000}}
    seen = {
        "h:0": BrokerSeen(members[0], 9.0, broker_id=0, boot_ms=1, offsets=offsets, persist_age=1.0)
    }
    for member, age in zip(members[1:], sync_ages, strict=True):
        seen[member.address] = BrokerSeen(
            member, 9.0, broker_id=member.broker_id, boot_ms=1, offsets=offsets, sync_age=age
        )
    (pair,) = cluster_document(cluster, seen, {("c", "m", KEY): 100.0}, 9.0)["pairs"]
    (row,) = pair["groups"]
    found: int | None = row["on_slave"]
    return found


def test_the_slave_that_copied_longest_ago_counts() -> None:
    assert on_slave(2.0) != on_slave(9.0)
    assert on_slave(2.0, 9.0) == on_slave(9.0, 2.0) == on_slave(9.0)
    assert on_slave(None, 9.0) == on_slave(9.0)

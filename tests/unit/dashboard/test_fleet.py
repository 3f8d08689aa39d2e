"""What the Fleet page says of a pair."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from failback.analytics.dashboard.poller import State
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.clusters import (
    LOCAL,
    NAME_SERVER,
    ClusterRef,
    MemberRef,
    PairRef,
)
from failback.analytics.dashboard.views.fleet import cluster_document, exposure_document
from failback.analytics.live.exposure import GroupExposure
from failback.analytics.live.facts import GroupTopic
from failback.analytics.live.known import Bound

KEY = GroupTopic("billing", "orders")


def pair_of(*held: int, source: str = LOCAL) -> tuple[ClusterRef, dict[str, BrokerSeen]]:
    """Return a pair whose master holds 1000 and whose slaves hold these offsets."""
    members = tuple(MemberRef(f"m{n}", "m", f"h:{n}", n) for n in range(len(held) + 1))
    cluster = ClusterRef("c", "c", source, "here", "failback", (), (PairRef("m", members),))
    seen = {
        member.address: BrokerSeen(
            member.address, member.broker_id, boot_ms=1, offsets={KEY: {0: offset}},
            stored_since_ms=1, member=member, at=9.0,
        )
        for member, offset in zip(members, (1000, *held), strict=True)
    }  # fmt: skip
    return cluster, seen


def on_slave(*held: int) -> int | None:
    """What a kill would repeat on the slave."""
    cluster, seen = pair_of(*held)
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


def is_calm(*held: int, source: str = NAME_SERVER, answered: bool = True) -> bool:
    cluster, seen = pair_of(*held, source=source)
    seen["h:1"] = replace(seen["h:1"], answered=answered)
    return State(at=9.0, clusters=(cluster,), seen=seen).is_calm


def test_brokers_of_others_are_asked_less_often_only_while_nothing_is_amiss() -> None:
    assert is_calm(980)
    assert not State().is_calm
    assert not is_calm(980, source=LOCAL)
    assert not is_calm(980, answered=False)
    assert not is_calm(1500), "the slave knows more: the master is back with its old table"


async def test_a_calm_dashboard_looks_at_once_when_a_broker_ends_its_connection(
    tmp_path: Path,
) -> None:
    app, _ = make_app(DashboardSettings(tmp_path), [], lambda _: None)
    poller = app.state.shared.poller
    for held, is_early in ((980, True), (1500, False)):
        cluster, seen = pair_of(held, source=NAME_SERVER)
        poller.state = State(at=9.0, clusters=(cluster,), seen=seen)
        due = asyncio.ensure_future(poller._next(poller.look_at_clusters))
        await asyncio.sleep(0)
        poller._closed("h:0", "the peer closed it")
        done, _ = await asyncio.wait([due], timeout=0.1)
        assert bool(done) is is_early
        due.cancel()

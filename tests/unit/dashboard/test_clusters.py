"""Names for URLs, and brokers that a name server forgot."""

from __future__ import annotations

from failback.analytics.dashboard.sources.clusters import (
    ClusterRef,
    clusters_of_table,
    clusters_of_view,
    key_of,
    remember_members,
    unique,
    with_known,
)


def listed(**addresses: str) -> ClusterRef:
    ids = {int(name.removeprefix("b")): address for name, address in addresses.items()}
    (found,) = clusters_of_table({"broker-a": ("c", ids)}, "name server", ["ns:9876"])
    return found


def test_a_dead_master_stays_in_its_pair() -> None:
    found = remember_members(listed(b0="m:1", b1="s:1"), listed(b1="s:1"))
    assert [(each.broker_id, each.state) for each in found.members] == [(0, "Gone"), (1, "")]
    back = remember_members(found, listed(b0="m:1", b1="s:1"))
    assert [each.state for each in back.members] == ["", ""]


def test_whose_place_another_took_is_gone_for_good() -> None:
    found = remember_members(listed(b0="m:1", b1="s:1"), listed(b0="n:1", b1="s:1"))
    assert [each.address for each in found.members] == ["n:1", "s:1"]


def test_a_pair_without_any_broker_stays_too() -> None:
    empty = ClusterRef(listed(b0="m:1").key, "c", "name server", "", "", (), ())
    found = remember_members(listed(b0="m:1"), empty)
    assert [(each.address, each.state) for each in found.members] == [("m:1", "Gone")]


def test_a_cluster_without_any_broker_stays_too() -> None:
    known = listed(b0="m:1", b1="s:1")
    (found,) = with_known([], [known])
    assert [each.state for each in remember_members(known, found).members] == ["Gone", "Gone"]
    assert with_known([known], [known]) == [known]


def test_keys_are_safe_in_urls_and_unique() -> None:
    assert key_of("a/b", "10.0.0.1:9876;x") == "a-b.10.0.0.1-9876-x"
    assert key_of("..", "") == "cluster"
    twice = unique([listed(b0="m:1"), listed(b0="m:1")])
    assert len({each.key for each in twice}) == 2


def test_a_runtimes_view_becomes_clusters() -> None:
    pod = {"pod": "demo-0-0-0", "broker_name": "demo-0", "address": "127.1.1.1:1", "http": None,
           "state": "Ready", "store": "/s", "restarts": 2}  # fmt: skip
    view = {
        "namespace": "demo-stay",
        "clusters": [{"name": "demo", "engine": "failback", "version": "0.1.0",
                      "nameservers": ["127.1.1.2:9876"],
                      "pairs": [{"name": "demo-0", "index": 0, "members": [pod]}]}],
    }  # fmt: skip
    (found,) = clusters_of_view(view, "/root")
    assert (found.key, found.namesrv) == ("demo-stay.demo", ("127.1.1.2:9876",))
    (member,) = found.members
    assert (member.http, member.restarts, member.store) == ("", 2, "/s")

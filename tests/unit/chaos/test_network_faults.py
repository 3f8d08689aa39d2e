"""What faults of the network decide without a network: rules, sights, and what is never proved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.link import Cut, no_rules, rules
from failback.chaos.cluster.view import ProcessState
from failback.chaos.errors import NotProved, TargetError
from failback.chaos.faults import cut_clients, cut_nameserver, cut_replication, network_faults
from failback.chaos.faults.catalogue import KINDS
from failback.chaos.faults.undo import undo_open
from failback.chaos.session import Session
from tests.support.chaos.chaos_session import carry_out, inject, open_session
from tests.support.chaos.fake_target import FakeTarget

PEERS = ("10.0.0.2", "10.0.0.3")


class Cutter(FakeTarget):
    """Notes which links are cut; ``broken`` refuses to cut at one address."""

    def __init__(self) -> None:
        super().__init__()
        self.network = self
        self.links: set[tuple[str, str]] = set()
        self.broken = ""
        self.count = 0

    def cut(self, address: str, cut: Cut) -> None:
        if address == self.broken:
            raise TargetError(f"nft at {address}", "the kernel says no")
        self.links.add((address, cut.link))

    def join(self, address: str, link: str) -> None:
        self.links.discard((address, link))

    def resent(self, address: str) -> int:
        return self.count


@pytest.fixture
def target() -> Cutter:
    return Cutter()


@pytest.fixture
def session(tmp_path: Path, target: Cutter) -> Iterator[Session]:
    with open_session(tmp_path, target) as session:
        yield session


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch, target: Cutter) -> None:
    """Witnesses see what the target did."""
    master = target.members[0].address
    servers = list(target.view().nameservers)
    monkeypatch.setattr(network_faults, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(cut_clients, "silent", lambda address: (address, "clients") in target.links)
    monkeypatch.setattr(cut_clients, "listed_at", lambda view, member: servers)
    monkeypatch.setattr(
        network_faults,
        "what_is_cut",
        lambda view, member: "cut" if any(each[0] == master for each in target.links) else "",
    )


def cut(session: Session, **given: Any) -> dict[str, Any]:
    return inject(cut_clients.FAULT, session, "demo-0", 0.0, fid="f1", **given)


def test_rules_match_one_link_as_long_as_the_kernel_keeps_the_address() -> None:
    both = rules(Cut("replication"), "10.0.0.1", PEERS, 2.5)
    assert "elements = { 10.0.0.1 timeout 2500ms }" in both
    assert "ip daddr @until ip saddr { 10.0.0.2, 10.0.0.3 }  drop" in both
    assert "ip saddr @until ip daddr { 10.0.0.2, 10.0.0.3 }  ether daddr set" in both
    assert both.startswith(no_rules("replication"))
    for direction, absent in (("in", "egress"), ("out", "ingress")):
        assert absent not in rules(
            Cut("replication", direction),  # type: ignore[arg-type]
            "10.0.0.1",
            PEERS,
            1,
        )
    clients = rules(Cut("clients", reject=True), "10.0.0.1", PEERS, 1)
    assert "ip saddr != { 10.0.0.2, 10.0.0.3 }" in clients
    assert clients.count("reject with tcp reset") == 2
    assert "numgen random mod 1000000 < 250000 drop" in rules(
        Cut("clients", loss_ratio=0.25), "10.0.0.1", PEERS, 1
    )
    assert "limit rate over 500 bytes/second burst 3000 bytes drop" in rules(
        Cut("clients", bytes_per_second=500), "10.0.0.1", PEERS, 1
    )


def test_parameters_that_exclude_each_other_are_refused() -> None:
    for given, name in (
        ({"lossRatio": 0}, "lossRatio"),
        ({"lossRatio": 0.5, "bytesPerSecond": 10}, "bytesPerSecond"),
        ({"mode": "reject", "lossRatio": 0.5}, "lossRatio"),
        ({"mode": "reject", "bytesPerSecond": 10}, "bytesPerSecond"),
        ({"bytesPerSecond": 10, "delayMs": 100}, "delayMs"),
        ({"delayMs": 1}, "delayMs"),
    ):
        for fault in ("cut-replication", "cut-clients", "cut-nameserver"):
            kind = KINDS[fault]
            assert kind.check is not None
            assert kind.check(kind.values({})) is None
            found = kind.check(kind.values(given))
            assert found is not None
            assert found[0] == name


@pytest.mark.usefixtures("whole")
def test_a_cut_is_in_the_ledger_first_and_closed_when_seen_healed(
    session: Session, target: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    real = target.cut

    def look(address: str, cut: Cut) -> None:
        seen.append([entry.call for entry in session.ledger.open_entries()])
        real(address, cut)

    monkeypatch.setattr(target, "cut", look)
    evidence = cut(session, duration_seconds=0.2)
    assert seen == [["join-clients"]]
    assert evidence["proved"] is True
    assert target.links == {(target.members[0].address, "clients")}
    time.sleep(0.3)
    carry_out(session)
    assert target.links == set()
    assert session.ledger.open_entries() != []  # undone is not healed


@pytest.mark.usefixtures("whole")
def test_what_nobody_saw_or_a_dead_broker_explains_is_not_proved(
    session: Session, target: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_clients, "listed_at", lambda view, member: [])
    with pytest.raises(NotProved, match="the cut of demo-0-0 was not seen"):
        cut(session, duration_seconds=0.3)
    monkeypatch.undo()
    monkeypatch.setattr(network_faults, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(cut_clients, "silent", lambda address: True)
    monkeypatch.setattr(
        cut_clients, "listed_at", lambda view, member: list(target.view().nameservers)
    )
    target.states["demo-0-0"] = ProcessState.GONE
    with pytest.raises(NotProved, match="is GONE, so its silence proves no cut"):
        cut(session, duration_seconds=0.3)


def test_loss_is_proved_by_segments_that_are_sent_again(session: Session, target: Cutter) -> None:
    with pytest.raises(NotProved, match="was not seen"):
        cut(session, duration_seconds=0.3, loss_ratio=0.5)
    target.join(target.members[0].address, "clients")
    counts = iter([0, 0, 2, 3])
    target.resent = lambda address: next(counts, 3)  # type: ignore[method-assign]
    evidence = cut(session, duration_seconds=5, loss_ratio=0.5)
    assert evidence["proof"]["LINK"] == "3 segments were sent again"


def test_a_cut_that_the_kernel_refuses_is_taken_back_everywhere(
    session: Session, target: Cutter
) -> None:
    (server,) = target.view().nameservers
    target.broken = server
    with pytest.raises(TargetError, match="the kernel says no"):
        inject(cut_nameserver.FAULT, session, "demo-0", 0.0, side="clients", fid="f1")
    assert target.links == set()
    assert session.ledger.open_entries() == []
    assert session.faults()["f1"].issued is None


def test_a_target_without_rules_says_so(tmp_path: Path) -> None:
    with (
        open_session(tmp_path, FakeTarget()) as session,
        pytest.raises(TargetError, match="a local target has no rules for packets"),
    ):
        cut(session)
    assert session.ledger.open_entries() == []


@pytest.mark.usefixtures("whole")
def test_an_undo_works_twice_and_stays_open_until_the_broker_is_whole(
    session: Session, target: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = target.members[0].address
    args = {"pod": "demo-0-0", "link": "clients", "at": [address]}
    target.links.add((address, "replication"))
    session.ledger.add("join-clients", args, "f1")
    assert undo_open(session.ledger, target, seconds=0)["still_open"] != []
    target.links.clear()
    assert undo_open(session.ledger, target, seconds=0) == {"undone": ["u0001"], "still_open": []}
    session.ledger.add("join-clients", args, "f1")
    assert undo_open(session.ledger, target, seconds=0)["still_open"] == []


def test_only_a_slave_that_stands_still_behind_a_growing_master_is_cut_off(
    target: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = target.members
    ends = {master.address: 100, slave.address: 100}
    monkeypatch.setattr(cut_replication, "log_end", lambda member: ends[member.address])
    sight = cut_replication.StandStill()
    view = target.view()
    assert sight(view, master) == ""
    assert sight(view, master) == "", "both stand still"
    ends[master.address] = 150
    assert "grew by 50 bytes" in sight(view, master)
    ends[slave.address] = 150
    assert sight(view, master) == "", "it caught up"
    ends[slave.address] = ends[master.address] = 200
    assert sight(view, master) == "", "both grow"

"""Faults that were reported as done and did nothing: their own proof says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.view import Member
from failback.chaos.errors import NotProved
from failback.chaos.faults import lag_slave, scale_consumers, swap_roles, terminate
from failback.chaos.faults.injection import open_record
from failback.chaos.session import Session
from tests.support.chaos.chaos_session import FakeSupervisor, carry_out, inject, open_session
from tests.support.chaos.fake_target import FakeTarget


def test_a_slave_that_has_everything_did_not_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session(tmp_path, FakeTarget()) as session:
        master, slave = session.target.view().members[:2]
        for behind, proved in ((0, False), (None, False), (7, None)):
            monkeypatch.setattr(lag_slave, "_behind", lambda *_, answer=behind: answer)
            monkeypatch.setattr(lag_slave, "SETTLED_SECONDS", 1.5)
            record = open_record(session, "f1", "kill", master, 0)
            lag_slave.prove_lag(session, record, slave)
            assert record.proved is proved
            assert record.proof["LAG"] == behind


class Deaf(FakeSupervisor):
    """Two members; one that is to be started never comes."""

    def of_role(self, role: str, *, group: str = "") -> list[Any]:
        members = [type("Member", (), {"member": number})() for number in range(2)]
        return members if (role, group) == ("consumer", "billing") else []

    def start_member(self, group: str, member: int, *, delay_seconds: float = 0.0) -> None:
        pass


def scaled(session: Session, monkeypatch: pytest.MonkeyPatch, listed: int | None) -> dict[str, Any]:
    session.supervisor = Deaf()  # type: ignore[assignment]
    monkeypatch.setattr(scale_consumers, "LISTED_SECONDS", 0.1)
    monkeypatch.setattr(scale_consumers, "listed", lambda *_: listed)
    return inject(scale_consumers.FAULT, session, "billing", 0.0, members=4, fid="f1")


def test_members_that_the_broker_does_not_list_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, listed in enumerate((2, None)):
        with open_session(tmp_path / str(number), FakeTarget()) as session:
            with pytest.raises(NotProved, match=f"the broker lists {listed} members of billing"):
                scaled(session, monkeypatch, listed)
            assert [entry.call for entry in session.ledger.open_entries()] == ["scale-back"]
    with open_session(tmp_path / "seen", FakeTarget()) as session:
        assert scaled(session, monkeypatch, 4)["proof"]["LISTED"] == [4]


class Wire:
    """A broker that says which version it is."""

    def __init__(self, address: str) -> None:
        pass

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def runtime_info(self, timeout: float) -> dict[str, str]:
        return {"brokerVersionDesc": "V4_9_7"}


def test_a_broker_that_is_still_the_old_version_was_not_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminate, "WireConnection", Wire)
    with open_session(tmp_path, FakeTarget()) as session:
        master = session.target.view().members[0]
        for version, proved in (("5.3.3", False), ("4.9.7", None)):
            record = open_record(session, "f1", "terminate", master, 0)
            terminate._prove_version(session, record, version)
            assert (record.proof["VERSION"], record.proved) == ("V4_9_7", proved)


class Switcher(FakeTarget):
    """A platform that takes an order to switch roles; ``lies``: it does nothing."""

    def __init__(self, *, lies: bool) -> None:
        super().__init__()
        self.lies = lies
        self.shown: dict[str, dict[int, str]] = {}

    def switch_roles(self, name: str, member: Member, offset_policy: str) -> None:
        self.calls.append(("switch", member.pod, offset_policy))
        if not self.lies:
            self.shown = {member.broker_name: {0: member.address}}

    def switch_phase(self, name: str) -> str:
        return "Running" if self.lies else "Complete"


def test_a_switch_that_no_name_server_shows_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap_roles, "EFFECT_SECONDS", 0.1)
    for lies in (True, False):
        target = Switcher(lies=lies)
        monkeypatch.setattr(
            swap_roles, "ask_nameservers", lambda _, target=target: {"ns": target.shown}
        )
        with open_session(tmp_path / str(lies), target) as session:
            if lies:
                with pytest.raises(NotProved, match="no name server shows demo-0-1 as master"):
                    inject(swap_roles.FAULT, session, "demo-0", 0.0, fid="f1")
                continue
            inject(swap_roles.FAULT, session, "demo-0", 0.0, offset_policy="wait-sync", fid="f1")
            assert target.calls[-1] == ("switch", "demo-0-1", "wait-sync")
            carry_out(session)
            assert session.all_healed()
            assert session.ledger.open_entries() == []

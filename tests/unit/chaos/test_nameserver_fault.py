"""Faults of name servers: who is hit, what proves it, and an action that lies."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from failback.chaos.cluster.broker_facts import silence_of
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, Member, ProcessIdentity
from failback.chaos.errors import GuardRefused, NotProved, TargetError
from failback.chaos.faults import kill_nameserver
from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.faults.injection import Call, begin_on_broker
from failback.chaos.faults.undo import undo_open
from failback.chaos.recorder.witness import RouteEvent
from failback.chaos.session import Session
from failback.protocol.errors import ConfigError
from tests.support.chaos.chaos_session import EXPERIMENT, carry_out, inject, open_session
from tests.support.chaos.fake_target import FakeTarget

ADDRESS = "127.0.0.1:9"


class WithNameServer(FakeTarget):
    """One name server beside the fake brokers; a kill ends it, unless the target lies."""

    pid = 500
    lies = False

    def nameserver_pods(self) -> tuple[Member, ...]:
        return (replace(self.members[0], pod="ns-0", address=ADDRESS, identity=None),)

    def identity(self, member: Member) -> ProcessIdentity:
        return ProcessIdentity(member.pod, self.pid, 7)

    def signal(self, victim: ProcessIdentity, signum: int):  # type: ignore[no-untyped-def]
        if not self.lies:
            self.death = DeathRecord(self.pid, 7, signum, None, now())
        return super().signal(victim, signum) if victim.pod != "ns-0" else None


def kill(session: Session) -> dict[str, object]:
    return inject(kill_nameserver.FAULT, session, 0, which="all", down_seconds=0, fid="f1")


def look(session: Session, *, answered: bool, whole: bool = False) -> None:
    """The witness looks at the name server, which knows all brokers or none."""
    brokers = {"demo-0": {each.broker_id: each.address for each in session.target.view().members}}
    event = RouteEvent(ADDRESS, brokers if whole else {}, now(), answered=answered)
    session.rec.on_event(event)


def refuse_soon(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness is refused as soon as the action waits for what it sees."""
    wait = session.wait_for

    def waiting(condition, timeout, *, period=0.1):  # type: ignore[no-untyped-def]
        look(session, answered=False)
        return wait(condition, timeout, period=period)

    monkeypatch.setattr(session, "wait_for", waiting)


def test_the_seed_chooses_among_those_that_run() -> None:
    found = [
        replace(FakeTarget().members[0], pod=f"ns-{number}", running=number != 1)
        for number in range(4)
    ]
    for seed in range(5):
        (one,) = kill_nameserver.chosen(found, "one", seed)
        assert one.pod in ("ns-0", "ns-2", "ns-3")
        assert kill_nameserver.chosen(found[::-1], "one", seed) == [one]
    everybody = [each.pod for each in kill_nameserver.chosen(found, "all", 0)]
    assert everybody == ["ns-0", "ns-2", "ns-3"]
    with pytest.raises(GuardRefused, match="no name server is running"):
        kill_nameserver.chosen(found[1:2], "all", 0)


def test_it_is_proved_by_the_witness_and_healed_by_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = WithNameServer()
    with open_session(tmp_path, target) as session:
        refuse_soon(session, monkeypatch)
        evidence = kill(session)
        assert (evidence["proved"], target.held) == (True, {"ns-0"})
        carry_out(session)
        assert (target.held, ("start", "ns-0") in target.calls) == (set(), True)
        look(session, answered=True)
        carry_out(session)
        assert len(session.ledger.open_entries()) == 1, "it has returned empty"
        look(session, answered=True, whole=True)
        carry_out(session)
        assert session.ledger.open_entries() == []
        assert session.all_healed()


def test_a_kill_that_kills_nothing_is_no_fault(tmp_path: Path) -> None:
    target = WithNameServer()
    target.lies = True
    with open_session(tmp_path, target) as session, pytest.raises(TargetError, match="it lives"):
        kill(session)


def test_a_name_server_that_still_answers_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_nameserver, "SEEN_SECONDS", 0)
    with open_session(tmp_path, WithNameServer()) as session:
        look(session, answered=True, whole=True)
        with pytest.raises(NotProved, match="ns-0 answered the witness"):
            kill(session)


def test_a_target_without_name_servers_is_refused(tmp_path: Path) -> None:
    with open_session(tmp_path, FakeTarget()) as session, pytest.raises(TargetError, match="hit"):
        kill(session)


def test_the_undo_is_safe_to_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = WithNameServer()
    table = {"demo-0": {each.broker_id: each.address for each in target.members}}
    monkeypatch.setattr(kill_nameserver, "ask_nameservers", lambda _: {ADDRESS: table})
    with open_session(tmp_path, target) as session:
        entry = session.ledger.add(kill_nameserver.RELEASE, {"pods": ["ns-0"]}, "f1")
        target.held = {"ns-0"}
        assert undo_open(session.ledger, target, seconds=1)["undone"] == [entry]
        assert (target.held, signal.SIGKILL in [each[-1] for each in target.calls]) == (
            set(),
            False,
        )
        assert undo_open(session.ledger, target, seconds=1)["undone"] == []


def test_an_experiment_names_no_broker_for_it() -> None:
    fault = "{id: f1, fault: kill-nameserver, with: {which: All}}"
    text = re.sub(r"\n    - \{id: f2.*", "", EXPERIMENT.read_text())
    written = re.sub(r"\{id: f1.*", fault, text)
    assert parse_experiment(written).arms[0].faults[0].with_ == {"which": "all"}
    with pytest.raises(ConfigError, match=r"says by with\.which"):
        parse_experiment(written.replace("fault: kill-", "target: {pair: demo-0}, fault: kill-"))


def test_a_broker_can_be_hit_while_a_fault_keeps_name_servers_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = WithNameServer()
    with open_session(tmp_path, target) as session:
        target.conflicts = (silence_of(ADDRESS),)
        with pytest.raises(GuardRefused, match="does not answer"):
            begin_on_broker(session, "kill", Call(0, "f2", "demo-0"), "")
        refuse_soon(session, monkeypatch)
        kill(session)
        hit = begin_on_broker(session, "kill", Call(0, "f2", "demo-0"), "")
        assert hit.victim is not None
        target.conflicts = (silence_of("127.0.0.1:10"),)
        with pytest.raises(GuardRefused, match=r"127\.0\.0\.1:10 does not answer"):
            begin_on_broker(session, "kill", Call(0, "f2", "demo-0"), "")

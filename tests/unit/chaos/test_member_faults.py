"""Faults of running members: told, seen in what members say, taken back and seen gone."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from failback.chaos.errors import TargetError
from failback.chaos.faults import slow_handler, undo, unsubscribe
from failback.chaos.faults.undo import undo_open
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from tests.support.chaos.chaos_session import FakeSupervisor, carry_out, open_session
from tests.support.chaos.fake_target import FakeTarget

SLOW = {"delay_ms": 50.0, "fail_ratio": 0.5, "throw_ratio": 0.0}
OWN = {"delay_ms": 0.0, "fail_ratio": 0.0, "throw_ratio": 0.0}


@dataclass
class FakeMember:
    """What a consumer process answers; ``deaf`` requests get lost."""

    name: str
    socket_path: Path
    queues: tuple[str, ...] = ()
    deaf: int = 0
    silent: bool = False
    gives_up: bool = True
    knobs: dict[str, float] = field(default_factory=lambda: dict(OWN))
    held: list[str] = field(default_factory=list)
    subscribed: bool = True

    def __post_init__(self) -> None:
        self.held = list(self.queues)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.silent:
            return {}
        match request["op"]:
            case "stats":
                return self._stats()
            case _ if self.deaf:
                self.deaf -= 1
                return {}
            case "set-handler":
                self.knobs = {name: request[name] for name in OWN}
            case "unsubscribe":
                self.subscribed = False
                self.held = [] if self.gives_up else self.held
            case "subscribe":
                self.subscribed, self.held = True, list(self.queues)
        return {"ok": True}

    def _stats(self) -> dict[str, Any]:
        slow, failing = self.knobs["delay_ms"], self.knobs["fail_ratio"]
        handled = {"handled": 4, "later": 4 * failing, "thrown": 0, "least_ms": slow}
        return {
            "handler": {"knobs": self.knobs, **handled},
            "topic_queues": self.held,
            "subscribed": self.subscribed,
        }


class Members(FakeSupervisor):
    def __init__(self, members: list[FakeMember]) -> None:
        super().__init__()
        self.members = members

    def of_role(self, role: str, *, group: str = "") -> list[Any]:
        return self.members if (role, group) == ("consumer", "billing") else []

    def ask(self, member: FakeMember, request: Mapping[str, Any]) -> dict[str, Any]:
        return member.answer(request)


@pytest.fixture
def members() -> list[FakeMember]:
    return [
        FakeMember(
            f"billing-{n}", Path(f"/nowhere/{n}.sock"), (f"broker/{2 * n}", f"broker/{2 * n + 1}")
        )
        for n in range(2)
    ]


@pytest.fixture
def session(tmp_path: Path, members: list[FakeMember]) -> Iterator[Session]:
    with open_session(tmp_path, FakeTarget()) as session:
        session.supervisor = Members(members)  # type: ignore[assignment]
        yield session


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_handler, "EFFECT_SECONDS", 0.0)
    monkeypatch.setattr(unsubscribe, "EFFECT_SECONDS", 0.0)
    monkeypatch.setattr(unsubscribe, "REBALANCE_SECONDS", 0.0)


def slow(session: Session) -> FaultRecord:
    record = FaultRecord("f1", "slow-handler", "group=billing mode=all", 1)
    values = slow_handler.KIND.values({"delayMs": 50, "failRatio": 0.5, "durationSeconds": 0})
    slow_handler.set_handlers(session, record, "billing", values)
    return record


def unsubscribed(session: Session) -> FaultRecord:
    record = FaultRecord("f1", "unsubscribe", "group=billing mode=all", 1)
    unsubscribe.unsubscribe(session, record, "billing", {"durationSeconds": 0.0})
    return record


@pytest.mark.parametrize(
    ("inject", "call", "proof"),
    [
        (slow, slow_handler.RESET_HANDLERS, {"HANDLED": {"handled": 8, "later": 4, "thrown": 0}}),
        (unsubscribed, unsubscribe.SUBSCRIBE, {"GIVEN_UP": True}),
    ],
)
def test_the_effect_and_the_heal_are_seen(
    session: Session,
    members: list[FakeMember],
    inject: Callable[[Session], FaultRecord],
    call: str,
    proof: dict[str, Any],
) -> None:
    record = inject(session)
    assert (record.proved, record.why) == (True, "")
    assert record.proof == {"K1": True, "K2": True, **proof}
    (entry,) = session.ledger.open_entries()
    assert entry.call == call
    assert entry.args["sockets"] == [str(each.socket_path) for each in members]
    carry_out(session)  # tells them
    assert session.ledger.open_entries() == [session.ledger.entry(record.undo)]
    carry_out(session)  # sees them
    assert session.ledger.open_entries() == []
    assert record.proof["K8"] is True
    assert [each.knobs for each in members] == [OWN, OWN]
    assert [each.held for each in members] == [list(each.queues) for each in members]


@pytest.mark.parametrize("inject", [slow, unsubscribed])
def test_a_member_that_did_not_take_it_makes_the_fault_doubtful(
    session: Session, members: list[FakeMember], inject: Callable[[Session], FaultRecord]
) -> None:
    members[1].deaf = 1
    record = inject(session)
    assert record.proved is False
    assert record.why.startswith("billing-1 did not take ")


@pytest.mark.parametrize("inject", [slow, unsubscribed])
def test_a_member_that_missed_the_end_is_told_again(
    session: Session, members: list[FakeMember], inject: Callable[[Session], FaultRecord]
) -> None:
    record = inject(session)
    members[0].deaf = 2
    for _ in range(3):
        carry_out(session)
        assert "healed_ns" not in record.observed
    carry_out(session)
    assert "healed_ns" in record.observed
    assert session.ledger.open_entries() == []


def test_queues_that_are_kept_are_no_effect(session: Session, members: list[FakeMember]) -> None:
    members[1].gives_up = False
    record = unsubscribed(session)
    assert (record.proved, record.proof["GIVEN_UP"]) == (False, False)
    assert record.why == "members of billing still hold queues 0 s later"
    assert session.rec.milestones.get("f1", "gone") is None


def assert_heals_when_back(session: Session, member: FakeMember) -> None:
    """All unsubscribe; the fault is healed when the member holds its queues again, not before."""
    record = unsubscribed(session)
    carry_out(session)
    member.held = []
    carry_out(session)
    assert "healed_ns" not in record.observed
    member.held = list(member.queues)
    carry_out(session)
    assert "healed_ns" in record.observed


def test_a_queue_that_two_held_while_it_changed_hands_is_one_queue(
    session: Session, members: list[FakeMember]
) -> None:
    members[0].held.append(members[1].held[0])
    record = unsubscribed(session)
    carry_out(session)  # tells them
    carry_out(session)  # sees them
    assert record.observed["queues_before"] == 4
    assert record.proof["K8"] is True


def test_a_member_that_is_not_back_yet_is_waited_for(
    session: Session, members: list[FakeMember]
) -> None:
    assert_heals_when_back(session, members[1])


def test_of_a_broadcasting_group_each_member_has_all_queues_again(
    session: Session, members: list[FakeMember]
) -> None:
    (group,) = session.arm.workload.groups
    workload = session.arm.workload.model_copy(
        update={"groups": (group.model_copy(update={"message_model": "BROADCASTING"}),)}
    )
    session.arm = replace(session.arm, workload=workload)
    members[1].queues = members[0].queues
    members[1].held = list(members[1].queues)
    assert_heals_when_back(session, members[1])


def test_a_member_that_is_silent_is_named_as_the_reason(
    session: Session, members: list[FakeMember]
) -> None:
    members[1].silent = True
    with pytest.raises(TargetError, match="subscriptions of billing: one is silent"):
        unsubscribed(session)
    assert session.ledger.open_entries() == []


def test_who_holds_nothing_can_give_nothing_up(session: Session, members: list[FakeMember]) -> None:
    for each in members:
        each.held = []
    with pytest.raises(TargetError, match="no member holds a queue of its topic"):
        unsubscribed(session)
    assert session.ledger.open_entries() == []
    members.clear()
    with pytest.raises(TargetError, match="members of billing: none is running"):
        unsubscribed(session)


@pytest.fixture(autouse=True)
def of_the_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members of these tests live in this process, which no plan of a run started."""
    monkeypatch.setattr(undo, "command_of", lambda _: [str(session.folder.path / "plans/1.json")])


@contextmanager
def served(members: list[FakeMember]) -> Iterator[None]:
    """The members on Unix sockets, as workload processes have them."""
    with TemporaryDirectory() as folder:
        servers = []
        for member in members:
            member.socket_path = Path(folder) / f"{member.name}.sock"

            class Handler(socketserver.StreamRequestHandler):
                asked = member

                def handle(self) -> None:
                    for line in self.rfile:
                        answer = self.asked.answer(json.loads(line))
                        self.wfile.write(json.dumps(answer).encode() + b"\n")

            server = socketserver.ThreadingUnixStreamServer(str(member.socket_path), Handler)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            servers.append(server)
        try:
            yield
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()


@pytest.mark.parametrize("inject", [slow, unsubscribed])
def test_heal_takes_it_back_from_those_that_live(
    session: Session, members: list[FakeMember], inject: Callable[[Session], FaultRecord]
) -> None:
    with served(members[:1]):
        record = inject(session)
        members[1].socket_path.unlink(missing_ok=True)  # this one was gone all along
        result = undo_open(session.ledger, session.target, seconds=0, faults_only=True)
        assert result == {"undone": [record.undo], "still_open": []}
    assert (members[0].knobs, members[0].held) == (OWN, list(members[0].queues))
    healed = session.ledger.entry(record.undo).healed
    assert healed is not None
    assert healed["answered"] == 1


@pytest.mark.parametrize("inject", [slow, unsubscribed])
def test_a_heal_that_a_member_does_not_take_stays_open(
    session: Session, members: list[FakeMember], inject: Callable[[Session], FaultRecord]
) -> None:
    with served(members):
        inject(session)
        members[1].deaf = 1
        first = undo_open(session.ledger, session.target, seconds=0, faults_only=True)
        assert "not yet seen healed" in first["still_open"][0]
        again = undo_open(session.ledger, session.target, seconds=0, faults_only=True)
        assert again["still_open"] == []


@pytest.mark.parametrize("inject", [slow, unsubscribed])
def test_a_member_that_lives_and_is_silent_is_not_seen_healed(
    session: Session, members: list[FakeMember], inject: Callable[[Session], FaultRecord]
) -> None:
    with served(members):
        inject(session)
        members[1].silent = True
        first = undo_open(session.ledger, session.target, seconds=0, faults_only=True)
        assert "not yet seen healed" in first["still_open"][0]
        members[1].silent = False
        again = undo_open(session.ledger, session.target, seconds=0, faults_only=True)
        assert again["still_open"] == []

"""F19 over a fake target: what the broker will find, what is saved, and what is put back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, Member, ProcessIdentity, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.faults import injection
from failback.chaos.faults.replace_offset_file import kill_and_replace, older_table
from failback.chaos.faults.undo import undo_open
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.recorder.witness import OffsetEvent
from failback.chaos.session import Session
from failback.protocol.route import parse_offset_table
from tests.support.chaos.chaos_session import open_session, peer_sees
from tests.support.chaos.fake_target import FakeTarget

FILE = "config/consumerOffset.json"
BAK = f"{FILE}.bak"


def table(value: int) -> bytes:
    return json.dumps({"offsetTable": {"orders@billing": {"0": value}}}).encode()


class Store(FakeTarget):
    """A target whose store can be written while a member is held, and who dies when told."""

    def write_store(self, member: Member, path: str, data: bytes | None) -> None:
        assert member.pod in self.held
        self.calls.append(("write", path, data))
        if data is None:
            self.files.pop(path, None)
        else:
            self.files[path] = (data, now().wall_ns)


@pytest.fixture
def target() -> Store:
    target = Store()
    target.files = {"abort": (b"", 1), FILE: (table(90), 1), BAK: (table(80), 1)}
    return target


@pytest.fixture
def session(tmp_path: Path, target: Store) -> Iterator[Session]:
    with open_session(tmp_path, target) as session:

        def end(victim: ProcessIdentity, signum: int) -> None:
            target.death = DeathRecord(victim.pid, victim.ticks, signal.SIGKILL, None, now())
            target.states[victim.pod] = ProcessState.GONE
            peer_sees(session)

        target.on_signal = end
        yield session


def inject(session: Session, target: FakeTarget, **given: Any) -> FaultRecord:
    stamp = now().mono_ns
    record = injection.open_record(session, "f1", "replace-offset-file", target.members[0], stamp)
    wanted = {"content": "older", "ageSeconds": 0.0, "bak": "same", "downSeconds": 1.0}
    kill_and_replace(session, record, {**wanted, **given})
    return record


@pytest.mark.parametrize(
    ("content", "bak", "file", "backup"),
    [
        ("delete", "same", None, None),
        ("delete", "keep", None, table(80)),
        ("empty", "same", b"", b""),
        ("truncate", "keep", table(90)[: len(table(90)) // 2], table(80)),
    ],
)
def test_the_broker_finds_what_was_asked_for(
    session: Session,
    target: Store,
    content: str,
    bak: str,
    file: bytes | None,
    backup: bytes | None,
) -> None:
    record = inject(session, target, content=content, bak=bak)
    found = {path: target.files.get(path, (None, 0))[0] for path in (FILE, BAK)}
    assert found == {FILE: file, BAK: backup}
    assert (record.proved, record.proof["FILE"]) == (True, True)
    assert record.observed["file_entries"] == (1 if bak == "keep" else 0)


def test_an_older_file_holds_what_was_sampled_then(session: Session, target: Store) -> None:
    address = target.members[0].address
    seen = OffsetEvent(address, {("billing", "orders", 0): 40}, None, now())
    session.rec.on_event(seen)
    record = inject(session, target)
    assert parse_offset_table(target.files[FILE][0]) == {"orders@billing": {0: 40}}
    assert record.proved


def test_without_a_sampled_table_nothing_is_injected(session: Session, target: Store) -> None:
    with pytest.raises(TargetError, match="no offset table of demo-0-0 was sampled yet"):
        inject(session, target)
    assert target.calls == []
    assert session.ledger.open_entries() == []


def test_a_table_that_is_not_as_old_as_asked_for_is_doubted(
    session: Session, target: Store
) -> None:
    address = target.members[0].address
    session.rec.on_event(OffsetEvent(address, {("billing", "orders", 0): 40}, None, now()))
    record = inject(session, target, ageSeconds=60.0)
    assert record.proved is False
    assert record.why.startswith("the oldest table of demo-0-0 is 0.")
    assert record.observed["file_sampled_ms"] < 30_000


@pytest.mark.parametrize(("content", "bak"), [("older", "same"), ("truncate", "keep")])
def test_a_file_that_says_no_less_is_no_effect(
    session: Session, target: Store, content: str, bak: str
) -> None:
    address = target.members[0].address
    session.rec.on_event(OffsetEvent(address, {("billing", "orders", 0): 90}, None, now()))
    target.files[BAK] = (table(90), 1)
    record = inject(session, target, content=content, bak=bak)
    assert (record.proved, record.observed["file_lowered"]) == (False, 0)
    assert record.why == "demo-0-0 will load no offset that is lower than before"


def test_no_value_becomes_greater_and_strangers_stay() -> None:
    data = json.dumps(
        {"offsetTable": {"orders@billing": {"0": 5, "1": 9}, "orders@audit": {"0": 7}}}
    ).encode()
    past = {("billing", "orders", 0): 6}
    assert parse_offset_table(older_table(data, past)) == {
        "orders@billing": {0: 5},
        "orders@audit": {0: 7},
    }


def test_both_files_are_saved_and_in_the_ledger_before_the_first_write(
    session: Session, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    plain = target.write_store

    def look(member: Member, path: str, data: bytes | None) -> None:
        (entry,) = [e for e in session.ledger.open_entries() if e.call == "restore-files"]
        seen.append({p: Path(s).read_bytes() for p, s in entry.args["files"].items()})
        plain(member, path, data)

    monkeypatch.setattr(target, "write_store", look)
    inject(session, target, content="delete")
    assert seen == [{FILE: table(90), BAK: table(80)}] * 2


def test_a_heal_while_it_is_held_puts_both_files_back(session: Session, target: Store) -> None:
    inject(session, target, content="delete")
    target.replace_member(0, running=False)
    only = [e.id for e in session.ledger.open_entries() if e.call == "restore-files"]
    assert undo_open(session.ledger, target, seconds=0, only=only)["still_open"] == []
    assert (target.files[FILE][0], target.files[BAK][0]) == (table(90), table(80))


def test_a_broker_that_has_started_is_left_alone(session: Session, target: Store) -> None:
    inject(session, target, content="delete")
    target.held.clear()
    only = [e.id for e in session.ledger.open_entries() if e.call == "restore-files"]
    assert undo_open(session.ledger, target, seconds=0, only=only)["still_open"] == []
    assert FILE not in target.files


def test_a_target_that_cannot_write_injects_nothing(tmp_path: Path) -> None:
    target = FakeTarget()
    with (
        open_session(tmp_path, target) as session,
        pytest.raises(TargetError, match="cannot write store files"),
    ):
        inject(session, target)
    assert target.calls == []


@pytest.mark.parametrize(
    ("loaded", "said", "proved"),
    [
        ({"0": 40}, "as written", True),
        ({"0": 95}, "1 entries moved on since", True),
        ({"0": 39}, "1 entries below what was written", False),
    ],
)
def test_the_table_at_the_return_is_compared_with_the_file(
    session: Session, target: Store, loaded: dict[str, int], said: str, proved: bool
) -> None:
    seen = OffsetEvent(target.members[0].address, {("billing", "orders", 0): 40}, None, now())
    session.rec.on_event(seen)
    record = inject(session, target)
    session.folder.write_bytes(
        "snap/f1-accept/demo-0-0/code43.json", json.dumps({"orders@billing": loaded}).encode()
    )
    session.rec.milestones.post("f1", "accept", now())
    session.rec.healed(record, now())  # the recorder's threads may be in any order
    for ready, act in session.rec._timed:
        if ready():
            act()
    assert (record.proof["LOADED"], record.proved) == (said, proved)
    lines = (session.folder.path / "evidence.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert (last["phase"], last["proof"]["LOADED"], last["proved"]) == ("heal", said, proved)

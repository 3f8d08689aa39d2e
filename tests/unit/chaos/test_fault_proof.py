"""The proof K1 to K6: five ways to die told apart, and a hole in it is never proved."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, ProcessIdentity, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.faults import injection
from failback.chaos.faults import kill as kill_fault
from failback.chaos.faults import terminate as terminate_fault
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, order
from tests.support.chaos.chaos_session import open_session, peer_sees
from tests.support.chaos.fake_target import FakeTarget

OFFSETS = "config/consumerOffset.json"


@pytest.fixture
def target() -> FakeTarget:
    target = FakeTarget()
    target.files = {"abort": (b"", 1), OFFSETS: (b'{"offsetTable":{}}', 1)}
    return target


@pytest.fixture
def session(tmp_path: Path, target: FakeTarget) -> Iterator[Session]:
    with open_session(tmp_path, target) as session:
        yield session


def dies(
    target: FakeTarget,
    session: Session,
    *,
    by: int | None = None,
    code: int | None = None,
    shutdown_ran: bool = False,
) -> None:
    """Have the victim end this way at the next signal."""

    def end(victim: ProcessIdentity, signum: int) -> None:
        target.death = DeathRecord(victim.pid, victim.ticks, by, code, now())
        target.states[victim.pod] = ProcessState.GONE
        if shutdown_ran:
            target.files.pop("abort", None)
            target.files[OFFSETS] = (b"{}", now().wall_ns)
        peer_sees(session)

    target.on_signal = end


def kill(session: Session, target: FakeTarget) -> FaultRecord:
    record = injection.open_record(session, "f1", "kill", target.members[0], now().mono_ns)
    kill_fault.kill(session, record, {"downSeconds": 12})
    return record


def terminate(session: Session, target: FakeTarget) -> FaultRecord:
    record = injection.open_record(session, "f1", "terminate", target.members[0], now().mono_ns)
    terminate_fault.terminate(session, record, terminate_fault.KIND.values({"graceSeconds": 5}))
    return record


def test_a_sigkill_that_was_seen_by_all_is_proved(session: Session, target: FakeTarget) -> None:
    dies(target, session, by=signal.SIGKILL)
    record = kill(session, target)
    assert (record.proved, record.why) == (True, "")
    assert record.proof == {
        "K1": True,
        "K2": True,
        "K3": "SIGKILL",
        "K4": "no shutdown code ran",
        "K5": "FIN",
        "K6": True,
    }


def test_hold_and_ledger_come_before_the_signal(session: Session, target: FakeTarget) -> None:
    seen: list[list[str]] = []
    dies(target, session, by=signal.SIGKILL)
    die = target.on_signal

    def look(victim: ProcessIdentity, signum: int) -> None:
        seen.append([entry.call for entry in session.ledger.open_entries()])
        die(victim, signum)

    target.on_signal = look
    kill(session, target)
    assert [call[0] for call in target.calls] == ["hold", "signal"]
    assert seen == [["release"]]


@pytest.mark.parametrize(
    ("end", "inject", "doubt"),
    [
        (
            {"by": signal.SIGTERM, "shutdown_ran": True},
            kill,
            "asked SIGKILL, but demo-0-0 ended by SIGTERM",
        ),
        ({"code": 0, "shutdown_ran": True}, kill, "asked SIGKILL, but demo-0-0 ended by exit 0"),
        ({"code": 137}, kill, "asked SIGKILL, but demo-0-0 ended by exit 137"),
        ({"by": signal.SIGKILL, "shutdown_ran": True}, kill, "the abort file is gone"),
        ({"by": signal.SIGKILL}, terminate, "asked SIGTERM, but demo-0-0 ended by SIGKILL"),
        ({"code": 0}, terminate, "shutdown code did not run"),
    ],
)
def test_another_death_than_asked_is_not_proved(
    session: Session,
    target: FakeTarget,
    end: dict[str, Any],
    inject: Callable[[Session, FakeTarget], FaultRecord],
    doubt: str,
) -> None:
    dies(target, session, **end)
    record = inject(session, target)
    assert record.proved is False
    assert doubt in record.why


def test_offsets_persisted_while_the_signal_was_on_its_way_are_no_shutdown_code(
    session: Session, target: FakeTarget
) -> None:
    dies(target, session, by=signal.SIGKILL)
    die = target.on_signal

    def persist_and_die(victim: ProcessIdentity, signum: int) -> None:
        target.files[OFFSETS] = (b"{}", now().wall_ns)
        die(victim, signum)

    target.on_signal = persist_and_die
    record = kill(session, target)
    assert (record.proved, record.proof["K4"]) == (True, "no shutdown code ran")
    assert record.observed["file_age_ms"] == 0


@pytest.mark.parametrize(("ahead_s", "proved"), [(60, True), (61, False)])
def test_only_offsets_persisted_after_the_signal_are_shutdown_code(
    session: Session, target: FakeTarget, ahead_s: int, proved: bool
) -> None:
    """A file that was that young before tells of a clock that is ahead, and of nothing else."""
    future = now().wall_ns + 60 * 1_000_000_000
    target.files[OFFSETS] = (b"{}", future)
    dies(target, session, by=signal.SIGKILL)
    die = target.on_signal

    def write_and_die(victim: ProcessIdentity, signum: int) -> None:
        target.files[OFFSETS] = (b"{}", future + (ahead_s - 60) * 1_000_000_000)
        die(victim, signum)

    target.on_signal = write_and_die
    record = kill(session, target)
    assert record.proved is proved
    if not proved:
        assert f"{OFFSETS} was written after the signal" in record.why


@pytest.mark.parametrize("code", [0, 143])
def test_a_clean_stop_is_a_proved_sigterm(session: Session, target: FakeTarget, code: int) -> None:
    dies(target, session, code=code, shutdown_ran=True)
    record = terminate(session, target)
    assert record.proved is True
    assert record.proof["K4"] == "shutdown code ran"


def test_no_signal_goes_to_a_process_that_took_the_pid(
    session: Session, target: FakeTarget
) -> None:
    record = injection.open_record(session, "f1", "kill", target.members[0], now().mono_ns)
    target.replace_member(0, identity=ProcessIdentity("demo-0-0", 100, 8, 2_000))
    with pytest.raises(TargetError, match="REPLACED"):
        kill_fault.kill(session, record, {"downSeconds": 12})
    assert record.proved is False
    assert not [call for call in target.calls if call[0] == "signal"]
    assert target.held == set()
    assert session.ledger.open_entries() == []
    assert session.phases.first_fault is None


def test_a_broker_that_answers_nothing_is_no_sure_victim(
    session: Session, target: FakeTarget
) -> None:
    target.replace_member(0, identity=ProcessIdentity("demo-0-0", 100, 7, None))
    record = injection.open_record(session, "f1", "kill", target.members[0], 0)
    assert record.proof["K1"] is False
    assert record.proved is False


def test_a_port_that_still_accepts_is_not_gone(session: Session, target: FakeTarget) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        target.replace_member(0, address=f"127.0.0.1:{port}")
        session.view = session.rec.latest_samples.view = target.view()
        dies(target, session, by=signal.SIGKILL)
        record = kill(session, target)
    assert record.proof["K6"] is False
    assert "still accepts connections" in record.why


def test_the_row_of_a_kill_has_all_its_times(session: Session, target: FakeTarget) -> None:
    dies(target, session, by=signal.SIGKILL)
    record = kill(session, target)
    path = session.rec.log.path
    session.rec.close()
    steps = [
        dict(zip(order("fault"), each[4:], strict=False))
        for each in read_hot(path).records
        if each[0] == TABLES["fault"].code
    ]
    assert [step["kind"] for step in steps] == ["PEER", "KILL"]
    row = steps[1]
    assert record.issued is not None
    assert row["intended"] <= row["issued"] <= row["issued_end"] <= row["observed"] + 10**9
    assert row["honest"] is True
    assert json.loads(row["detail"])["proof"]["K3"] == "SIGKILL"
    evidence = (session.folder.path / "evidence.jsonl").read_text().splitlines()
    assert json.loads(evidence[0])["phase"] == "effect"


def test_the_files_that_the_next_start_loads_are_kept(session: Session, target: FakeTarget) -> None:
    dies(target, session, by=signal.SIGKILL)
    kill(session, target)
    kept = session.folder.path / "snap/f1-gone/demo-0-0/consumerOffset.json"
    assert kept.read_bytes() == b'{"offsetTable":{}}'

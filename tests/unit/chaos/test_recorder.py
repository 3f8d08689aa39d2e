"""The recorder: proof from what witnesses see, what a slave served, and gaps that cannot hide."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, ProcessIdentity, Stamp
from failback.chaos.experiment.model import SteadyState
from failback.chaos.recorder.fault_record import SLAVE_SYNCED, FaultRecord
from failback.chaos.recorder.sampler import Sampler
from failback.chaos.recorder.witness import (
    AnswerEvent,
    Event,
    OffsetEvent,
    QueueEvent,
    RouteEvent,
    RouteWatch,
    Watcher,
    WireWatch,
)
from failback.chaos.run.verdict import Verdict, merge
from failback.chaos.session import Session
from failback.chaos.toolkit.probes import another_incident, recorder_is_recording, unsteady
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, order
from failback.protocol.headers import PullMessageResponseHeader
from tests.support.chaos.chaos_session import open_session, peer_sees
from tests.support.chaos.fake_target import FakeTarget
from tests.support.common.polling import wait_until
from tests.support.net.fake_remoting import FakeBroker


@pytest.fixture
def master() -> Iterator[FakeBroker]:
    with FakeBroker(boot_ms=2_000) as broker:
        yield broker


@pytest.fixture
def target(master: FakeBroker) -> FakeTarget:
    return FakeTarget([master.address, "127.0.0.1:2"])


@pytest.fixture
def session(tmp_path: Path, target: FakeTarget) -> Iterator[Session]:
    with open_session(tmp_path, target) as session:
        yield session


def fault(session: Session, target: FakeTarget) -> FaultRecord:
    """A kill of the master that took effect now."""
    record = FaultRecord("f1", "kill", "", 1, victim=target.members[0])
    record.identity = target.identity(target.members[0])
    stamp = now()
    record.issued, record.proved = (stamp, stamp), True
    record.observed["gone_ns"] = stamp
    record.undo = session.ledger.add("release", {"pod": "demo-0-0"}, "f1")
    session.rec.open_fault(record)
    return record


def answered(target: FakeTarget, boot_ms: int) -> Event:
    return AnswerEvent(target.members[0].address, boot_ms, now())


def route(target: FakeTarget, shown: bool) -> Event:
    member = target.members[0]
    brokers = {member.broker_name: {0: member.address} if shown else {}}
    return RouteEvent("127.0.0.1:9", brokers, now())


def offsets(target: FakeTarget, ordinal: int, *values: int, marker: int | None = None) -> Event:
    table = {("billing", "orders", queue): value for queue, value in enumerate(values)}
    return OffsetEvent(target.members[ordinal].address, table, marker, now())


def test_the_old_incarnation_s_last_answer_is_no_return(
    session: Session, target: FakeTarget
) -> None:
    record = fault(session, target)
    session.rec.on_event(answered(target, 1_000))
    assert "accept_ns" not in record.observed
    session.rec.on_event(answered(target, 2_000))
    assert "accept_ns" in record.observed


def test_a_proof_that_takes_long_holds_up_no_witness(
    session: Session, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As reading the store of a pod does; what is seen meanwhile is taken in afterwards."""
    go, looks = threading.Event(), list[str]()

    def look(watch: WireWatch) -> None:
        looks.append(watch.address)
        watch._listener(AnswerEvent(watch.address, 1_000, now()))

    def slow(event: Event) -> None:
        assert go.wait(10)
        taken.append(event)

    taken: list[Event] = []
    for kind in (Sampler, RouteWatch):
        monkeypatch.setattr(kind, "look", lambda _: None)
    monkeypatch.setattr(WireWatch, "look", look)
    monkeypatch.setattr(session.rec, "on_event", slow)
    session.rec.start(target.view())
    address = target.members[0].address
    wait_until(lambda: looks.count(address) > 1, "a second look")
    assert taken == []
    go.set()
    session.rec.stop()
    assert len(taken) == len(looks)


def fault_rows(session: Session, kind: str) -> list[dict[str, Any]]:
    path = session.rec.log.path
    session.rec.close()
    records = [each for each in read_hot(path).records if each[0] == TABLES["fault"].code]
    rows = [dict(zip(order("fault"), each[4:], strict=False)) for each in records]
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("age_seconds", [0, 3600])
def test_a_carry_of_this_outage_is_a_row_with_what_it_raised(
    session: Session, target: FakeTarget, master: FakeBroker, age_seconds: int
) -> None:
    record = fault(session, target)
    table = json.dumps({"offsetTable": {"orders@billing": {"0": 7, "1": 5}}}).encode()
    master.answers[43] = lambda request: request.response(0, body=table)
    own = b'{"offsetTable":{"orders@billing":{0:3,1:5}}}'
    at = now()
    target.files |= {
        "config/consumerOffset.json.carried": (b"", at.wall_ns - age_seconds * 10**9),
        "config/consumerOffset.json.before-carry": (own, 1),
    }
    session.rec.on_event(answered(target, 2_000))
    assert "accept_ns" in record.observed
    rows = fault_rows(session, "CARRIED")
    if age_seconds:
        assert rows == []
        return
    (row,) = rows
    assert json.loads(row["detail"]) == {"fault": "kill", "offsets": 1, "messages": 4}
    assert abs(row["observed"] - at.mono_ns) < 10**9


def test_a_fault_is_healed_when_everything_was_seen_again(
    session: Session, target: FakeTarget, master: FakeBroker
) -> None:
    master.answers[11] = lambda r: r.response(19, header=PullMessageResponseHeader(0, 0, 0, 0))
    record = fault(session, target)
    peer_sees(session)
    session.rec.on_event(answered(target, 2_000))
    session.rec.on_event(route(target, shown=False))
    assert "registered_ns" not in record.observed
    session.rec.on_event(route(target, shown=True))
    session.rec.on_event(answered(target, 2_000))
    assert "pull_ok_ns" in record.observed
    assert "healed_ns" not in record.observed  # nothing was sent yet, and the process is the old
    session.rec.matcher.send_ok_after = lambda after: after + 5
    session.rec.on_event(answered(target, 2_000))
    assert "healed_ns" not in record.observed
    target.replace_member(0, identity=ProcessIdentity("demo-0-0", 200, 9, 2_000))
    session.rec.on_event(answered(target, 2_000))
    assert record.proof["K7"] == "pid 200"
    assert record.proof["K8"] is True
    assert session.rec.milestones.get("f1", "healed") is not None


def test_a_new_process_with_an_old_boot_time_is_doubtful(
    session: Session, target: FakeTarget
) -> None:
    record = fault(session, target)
    target.replace_member(0, identity=ProcessIdentity("demo-0-0", 200, 9, 500))
    assert session.rec.matcher._new_identity(record, target.members[0], record.identity)  # type: ignore[arg-type]
    assert record.proved is False


def test_the_table_at_the_return_is_kept(
    session: Session, target: FakeTarget, master: FakeBroker
) -> None:
    master.offsets = {"orders@billing": {0: 17}, "failback-witness@FAILBACK_WITNESS": {0: 1}}
    fault(session, target)
    session.rec.on_event(answered(target, 2_000))
    kept = session.folder.path / "snap/f1-accept/demo-0-0/code43.json"
    assert "17" in kept.read_text()
    assert "WITNESS" not in kept.read_text()


def test_what_the_slave_served_counts_from_its_first_own_commit(
    session: Session, target: FakeTarget
) -> None:
    session.rec.on_event(offsets(target, 1, 100, 100))
    fault(session, target)
    session.rec.on_event(offsets(target, 1, 100, 100))
    assert session.rec.served("f1", "billing") == 0
    session.rec.on_event(offsets(target, 1, 900, 100))  # the first commit may hold cached messages
    assert session.rec.served("f1", "billing") == 0
    session.rec.on_event(offsets(target, 1, 960, 300))
    assert session.rec.served("f1", "billing") == 60
    session.rec.on_event(offsets(target, 1, 980, 360))
    assert session.rec.served("f1", "billing") == 140
    assert session.rec.milestones.get("f1", "slave-serving") is not None
    assert session.rec.wait_served("f1", "billing", 141, time.monotonic(), lambda: "") is None
    assert session.rec.wait_served("f1", "billing", 140, time.monotonic(), lambda: "") is not None


def test_a_slave_s_synchronisation_is_the_marker_written_after_the_return(
    session: Session, target: FakeTarget
) -> None:
    record = fault(session, target)
    before = time.monotonic_ns() // 1_000_000 - 1
    session.rec.on_event(answered(target, 2_000))
    session.rec.on_event(offsets(target, 1, 1, marker=before))
    assert session.rec.milestones.get("f1", SLAVE_SYNCED) is None
    after = time.monotonic_ns() // 1_000_000 + 1
    session.rec.on_event(offsets(target, 1, 1, marker=after))
    assert "slave_sync_ns" in record.observed
    assert not (session.folder.path / "evidence.jsonl").exists()


def test_a_synchronisation_after_the_heal_is_in_the_last_evidence(
    session: Session, target: FakeTarget
) -> None:
    record = fault(session, target)
    session.rec.on_event(answered(target, 2_000))
    session.rec.healed(record, now())
    session.rec.on_event(offsets(target, 1, 1, marker=time.monotonic_ns() // 1_000_000 + 1))
    lines = (session.folder.path / "evidence.jsonl").read_text().splitlines()
    first, last = map(json.loads, lines)
    assert first["phase"] == last["phase"] == "heal"
    assert "slave_sync_ns" not in first["observed"]
    assert last["observed"]["slave_sync_ns"] > last["observed"]["accept_ns"]
    age = session.rec.latest_samples.sync_age_seconds("pair-0")
    assert age is not None
    assert age < 60


def test_the_lag_of_a_group_is_its_own_topics(session: Session, target: FakeTarget) -> None:
    assert session.rec.latest_samples.group_lag("billing") is None
    queues = {("orders", 0): (0, 10), ("orders", 1): (4, 9), ("other", 0): (0, 99)}
    session.rec.on_event(QueueEvent(target.members[0].address, queues, now()))
    session.rec.on_event(offsets(target, 0, 7))
    assert session.rec.latest_samples.group_lag("billing") == 3 + 5


@pytest.mark.parametrize("in_a_window", [True, False])
def test_a_death_that_nobody_asked_for_is_another_incident(
    session: Session, target: FakeTarget, monkeypatch: pytest.MonkeyPatch, in_a_window: bool
) -> None:
    configuration = {"run_dir": str(session.folder.path)}
    record = fault(session, target)
    if not in_a_window:
        session.rec.healed(record, now())
    session.rec._look_for_deaths()
    assert another_incident(configuration=configuration) is False
    death = DeathRecord(pid=7, ticks=7, signal=11, code=None, seen=now())
    monkeypatch.setattr(target, "deaths", lambda _since: [(1, "demo-0-1", death)])
    session.rec._look_for_deaths()
    assert another_incident(configuration=configuration) is True
    assert (record.proved, "died unplanned" in record.why) == (not in_a_window, in_a_window)


def test_what_was_not_sampled_is_said_so_and_is_not_steady(session: Session) -> None:
    assert unsteady(session, SteadyState.model_validate({"maxLagMessages": 10})) == [
        "billing: nothing was sampled yet"
    ]


class Stuck(Watcher):
    """Has not looked for ten seconds."""

    def __init__(self) -> None:
        super().__init__("stuck", 0.05, 0.05)
        self.last_look = time.monotonic() - 10

    def look(self) -> None:
        self._stop.wait(30)


def test_a_stuck_sampler_in_a_window_is_a_gap_and_never_a_pass(
    session: Session, target: FakeTarget
) -> None:
    watcher = Stuck()
    session.rec._watchers.append(watcher)
    watcher.start()
    session.rec._look_for_gaps()
    assert session.rec.gaps() == []  # outside a window it is only slow
    fault(session, target)
    session.rec._look_for_gaps()
    assert "has not looked" in session.rec.gaps()[0]
    assert recorder_is_recording({"run_dir": str(session.folder.path)}) is False
    from failback.chaos.run.repetition import _observations
    from failback.chaos.run.verdict import judge

    assert merge(judge(_observations(session))) is Verdict.INCONCLUSIVE
    watcher.stop()


def test_a_dead_witness_is_a_gap(session: Session) -> None:
    watcher = Stuck()
    watcher._stop.set()
    session.rec._watchers.append(watcher)
    session.rec._look_for_gaps()
    assert "witness stuck died" in session.rec.gaps()[0]


def test_a_recorder_whose_threads_do_not_run_is_not_recording(session: Session) -> None:
    assert recorder_is_recording({"run_dir": str(session.folder.path)}) is False


def test_a_step_of_the_wall_clock_is_counted(session: Session) -> None:
    session.rec._check_clock()
    assert session.rec.clock_steps == 0
    stamp = session.rec._anchor
    session.rec._anchor = Stamp(stamp.wall_ns - 50_000_000, stamp.mono_ns)
    session.rec._check_clock()
    assert session.rec.clock_steps == 1

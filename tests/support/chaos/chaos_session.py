"""A session over a fake target: real ledger, log and board, no cluster and no workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from failback.chaos import session as sessions
from failback.chaos.cluster.clock import now
from failback.chaos.experiment.schedule import plan_run
from failback.chaos.faults.catalogue import load_experiment
from failback.chaos.faults.fault import Fault
from failback.chaos.recorder.recorder import Recorder
from failback.chaos.recorder.witness import PeerEvent
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.session import Session
from tests.support.chaos.fake_target import FakeTarget

EXPERIMENT = Path(__file__).parents[2] / "unit/chaos/data/kill-then-restart.yaml"


class FakeSupervisor:
    """What actions ask of the workload, as plain attributes."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.processes: list[Any] = []
        self.handlers = 0
        self.rate = 1_000.0
        self.done = True

    def refresh(self) -> None:
        pass

    def unfinished(self, group: str) -> int:
        return self.handlers

    def produced_per_second(self) -> float:
        return self.rate

    def stop_sending(self) -> None:
        pass

    def producers_done(self) -> bool:
        return self.done

    def silent(self) -> list[str]:
        return []

    def of_role(self, role: str, *, group: str = "") -> list[Any]:
        return []


@contextmanager
def open_session(folder: Path, target: FakeTarget) -> Iterator[Session]:
    """A session whose recorder has a log and no threads."""
    experiment = load_experiment(EXPERIMENT)
    arm = experiment.arms[0]
    run_folder = RunFolder(folder / "run")
    run_folder.create()
    run_folder.open()
    session = Session(
        experiment=experiment,
        arm=arm,
        repetition=0,
        run="test-run",
        folder=run_folder,
        target=target,
        schedule=plan_run(experiment, arm, 0),
        lease=None,
    )
    session.view = target.view()
    session.recorder = Recorder(
        folder=run_folder,
        run="test-run",
        proc_no=0,
        proc=session.recorder_proc,
        target=target,
        topics=["orders"],
        groups={"billing": "orders"},
        time_scale=1.0,
    )
    session.recorder.latest_samples.view = session.view
    session.recorder.zero = now()
    session.supervisor = FakeSupervisor()  # type: ignore[assignment]
    sessions.register(session)
    try:
        yield session
    finally:
        sessions.forget(session)
        session.recorder.close()
        run_folder.release()


def peer_sees(session: Session, kind: str = "FIN") -> None:
    """The witness reports what the master's peers see."""
    session.rec.on_event(PeerEvent(session.target.view().members[0].address, kind, now()))


def inject(fault: Fault, session: Session, *arguments: Any, **given: Any) -> dict[str, Any]:
    """Call the action of a fault as Chaos Toolkit does; return its evidence."""
    assert fault.inject is not None
    return fault.inject(session, *arguments, **given)


def carry_out(session: Session) -> None:
    """What the recorder's own thread does when something is due."""
    for entry in list(session.rec._timed):
        ready, act = entry
        if ready():
            session.rec._timed.remove(entry)
            act()

"""One run in progress: what actions, probes and the control share, and why it must end now.

Chaos Toolkit calls plain functions with a ``configuration``; the run folder named in it finds the
session. Several sessions may live in one process, each under its own folder.
"""

from __future__ import annotations

import logging
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.lease import Lease
from failback.chaos.cluster.target import Injection, Target
from failback.chaos.cluster.view import ClusterView, Member, Stamp
from failback.chaos.errors import Aborted
from failback.chaos.experiment.schedule import Schedule
from failback.chaos.experiment.spec import ChaosExperiment, ResolvedArm
from failback.chaos.recorder.fault_record import HEALED, FaultRecord
from failback.chaos.recorder.recorder import Recorder
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.run_folder.undo_ledger import UndoLedger
from failback.chaos.workload.process import WorkloadProcess
from failback.chaos.workload.supervisor import Supervisor
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
RECORDER_PROC_NO: Final = 0
PENDING: Final = "Pending"
STEADY_STATE: Final = "SteadyState"
INJECTING: Final = "Injecting"
RECOVERING: Final = "Recovering"
DRAINING: Final = "Draining"
"""Stages of a run, as a ChaosExperiment's status names them."""


@dataclass(slots=True)
class Phases:
    """Ends of the phases, on the monotonic clock in ns; ``None`` until reached."""

    warmup_end: int | None = None
    first_fault: int | None = None
    last_heal: int | None = None
    drain_end: int | None = None
    end: int | None = None

    def fault_begun(self, mono_ns: int) -> None:
        """Note the begin of a fault, before its first effect."""
        if self.first_fault is None:
            self.first_fault = mono_ns

    def fault_healed(self, mono_ns: int) -> None:
        self.last_heal = max(self.last_heal or 0, mono_ns)


@dataclass(slots=True)
class Results:
    """What the phases found out, for the verdict and closed.json."""

    steady: bool | None = None
    steady_why: str = ""
    steady_now: dict[str, Any] = field(default_factory=dict)
    recovered: bool | None = None
    recovered_why: str = ""
    drained: bool | None = None
    drain_open: list[str] = field(default_factory=list)
    scanned: bool | None = None
    aborted: str = ""


class Session:
    """Everything of one repetition of one arm."""

    def __init__(
        self,
        *,
        experiment: ChaosExperiment,
        arm: ResolvedArm,
        repetition: int,
        run: str,
        folder: RunFolder,
        target: Target,
        schedule: Schedule,
        lease: Lease | None,
        progress: Progress = lambda _: None,
        started: Stamp | None = None,
    ) -> None:
        self.experiment = experiment
        self.arm = arm
        self.repetition = repetition
        self.run = run
        self.folder = folder
        self.target = target
        self.schedule = schedule
        self.lease = lease
        self.progress = progress
        self.started = started or now()
        self.ledger = UndoLedger(folder.path)
        self.phases = Phases()
        self.results = Results()
        self.view: ClusterView | None = None
        self.versions: dict[str, str] = {}
        self.system: dict[str, Any] = {}
        self.start_offsets: dict[tuple[str, str, int], int] = {}
        """Where the queues ended when the run began: (broker name, topic, queue) to offset."""
        self.in_rollback = False
        self.stage = PENDING
        self.closed = False
        self.recorder_proc = secrets.token_bytes(16)
        self.recorder: Recorder | None = None
        self.supervisor: Supervisor | None = None
        self.refused: FailbackError | None = None
        self.close_error = ""
        self._stop_reason = ""
        self._signals = 0
        self.deadline = time.monotonic() + self._limit_seconds()

    # --- parts that exist once the control has opened the run -------------------------------------

    @property
    def rec(self) -> Recorder:
        if self.recorder is None:
            raise RuntimeError(
                "the recorder is not open: the failback-recorder control did not run"
            )
        return self.recorder

    @property
    def load(self) -> Supervisor:
        if self.supervisor is None:
            raise RuntimeError("the workload is not started")
        return self.supervisor

    @property
    def time_scale(self) -> float:
        return self.experiment.spec.time_scale

    def scaled(self, seconds: float) -> float:
        """Seconds of the file as seconds of this run."""
        return seconds * self.time_scale

    # --- stopping --------------------------------------------------------------------------------

    def stop_reason(self) -> str:
        """Why the run must end now; empty while it need not."""
        if self._stop_reason:
            return self._stop_reason
        asked = self.folder.abort_reason()
        if asked:
            self._stop_reason = asked
        elif time.monotonic() > self.deadline:
            self._stop_reason = "the run's time limit passed"
        elif self.supervisor is not None and self.supervisor.failures:
            self._stop_reason = self.supervisor.failures[0]
        return self._stop_reason

    def ask_to_stop(self, reason: str) -> None:
        if not self._stop_reason:
            self._stop_reason = reason

    def take_signals(self) -> None:
        """Ctrl-C and SIGTERM end the run in order instead of breaking off what is under way.

        Chaos Toolkit's own handler for SIGTERM raises inside the action, which then counts as
        failed while the method goes on. Only the main thread may set handlers; elsewhere the
        owner of the process calls :meth:`ask_to_stop`.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        name = signal.Signals(number).name
        if self._signals == 1:
            self.ask_to_stop(f"stopped by {name}")
            return
        left = [f"{each.call} {dict(each.args)}" for each in self.ledger.open_entries()]
        print(f"still to be undone: {'; '.join(left) or 'nothing'}", file=sys.stderr, flush=True)

    def check(self) -> None:
        """Raise ``Aborted`` when the run must end now."""
        reason = self.stop_reason()
        if reason:
            raise Aborted(reason)

    def sleep_until(self, mono_ns: int) -> None:
        """Wait for a point on the monotonic clock; ``Aborted`` comes within a second."""
        while (left := (mono_ns - time.monotonic_ns()) / 1e9) > 0:
            self.check()
            time.sleep(min(left, 0.2))

    def wait_for(
        self, condition: Callable[[], bool], timeout: float, *, period: float = 0.1
    ) -> bool:
        """Poll a condition; false when the time is over. Raises ``Aborted``."""
        deadline = time.monotonic() + timeout
        while not condition():
            self.check()
            if time.monotonic() >= deadline:
                return False
            time.sleep(period)
        return True

    def undo_at(self, due_ns: int, undo: Callable[[], None]) -> None:
        """Have the recorder undo a fault at a point on the monotonic clock, or as the run ends."""
        self.rec.later(lambda: self.in_rollback or time.monotonic_ns() >= due_ns, undo)

    def _limit_seconds(self) -> float:
        given = self.experiment.spec.timeout_seconds
        return given if given is not None else 2 * self.schedule.longest_seconds

    # --- facts -----------------------------------------------------------------------------------

    @property
    def zero(self) -> Stamp:
        """Run zero; the start of the session until begin_faults fixes it."""
        if self.recorder is not None and self.recorder.zero is not None:
            return self.recorder.zero
        return self.started

    def after_zero(self, mono_ns: int | None) -> int | None:
        return None if mono_ns is None else mono_ns - self.zero.mono_ns

    def masters(self) -> list[Member]:
        members = self.view.members if self.view else ()
        return [member for member in members if member.role == "master"]

    def faults(self) -> dict[str, FaultRecord]:
        return self.recorder.faults if self.recorder else {}

    def all_healed(self) -> bool:
        return all(
            self.rec.milestones.get(fid, HEALED) is not None
            for fid, record in self.faults().items()
            if record.issued is not None
        )

    def refuse_unsafe(self, fault: str, seconds: float = 0.0) -> None:
        """Ask every guard once more. Raises ``GuardRefused``; ``seconds`` are unscaled."""
        guard = self.experiment.spec.guard
        if self.lease is not None:
            self.lease.require()
        self.target.refuse_unsafe(
            Injection(
                fault=fault,
                seconds=self.scaled(seconds),
                others_in_effect=any(each.in_effect for each in self.faults().values()),
                consent=frozenset(guard.consent),
            )
        )

    def group_topics(self) -> dict[str, str]:
        return {group.name: group.topic for group in self.arm.workload.groups}

    def topic_names(self) -> list[str]:
        return [topic.name for topic in self.arm.workload.topics]

    def verdict_inputs(self) -> dict[str, Any]:
        """What the harness saw, as plain values: the journal carries it."""
        return {
            "steady": self.results.steady,
            "recovered": self.results.recovered,
            "drained": self.results.drained,
            "scanned": self.results.scanned,
            "aborted": self.results.aborted,
            "gaps": self.recorder.gaps() if self.recorder else [],
            "faults": {
                fid: {"proved": record.proved, "why": record.why, "proof": dict(record.proof)}
                for fid, record in self.faults().items()
            },
        }

    # --- the clients' rows -----------------------------------------------------------------------

    def on_unplanned_end(self, process: WorkloadProcess) -> None:
        """A workload process ended by itself: an unplanned CLIENT_KILL row."""
        ended = process.exit
        self.rec.fault_row(
            FaultRecord("unplanned", "unplanned", "", 0, proved=True),  # that it ended is certain
            "CLIENT_KILL",
            observed=ended.stamp if ended else now(),
            observer="harness",
            detail={
                "proc_no": process.proc_no,
                "proc": process.proc.hex(),
                "name": process.name,
                "signal": ended.signal if ended else None,
                "code": ended.code if ended else None,
                "planned": False,
            },
        )


_sessions: dict[str, Session] = {}
_sessions_lock = threading.Lock()


def register(session: Session) -> None:
    """Make a session known under its run folder."""
    with _sessions_lock:
        _sessions[_key(session.folder.path)] = session


def forget(session: Session) -> None:
    with _sessions_lock:
        _sessions.pop(_key(session.folder.path), None)


def find(configuration: Mapping[str, Any] | None) -> Session | None:
    """The live session that a Chaos Toolkit configuration means."""
    run_dir = (configuration or {}).get("run_dir")
    if not run_dir:
        return None
    with _sessions_lock:
        return _sessions.get(_key(Path(run_dir)))


def _key(path: Path) -> str:
    return str(path.resolve())

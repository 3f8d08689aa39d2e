"""Run one repetition of one arm.

A repetition runs in a process of its own: Chaos Toolkit keeps module-level state and signal
handlers, and arms may run side by side. :func:`run_arm` starts that process and passes on what it
says; :func:`run_here` is what the process does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from chaoslib.experiment import run_experiment
from chaoslib.types import Schedule as HypothesisSchedule
from chaoslib.types import Strategy

from failback.chaos import session as sessions
from failback.chaos.closing import delivered_by_group, lake_rows
from failback.chaos.errors import ExitCode, GuardRefused, NotHealed, TargetError
from failback.chaos.generate import generate, run_folder_name, to_json, validate
from failback.chaos.place import Place
from failback.chaos.progress import serve_progress
from failback.chaos.runfolder import RunFolder
from failback.chaos.schedule import plan_run, run_id
from failback.chaos.session import Progress, Session
from failback.chaos.spec import ChaosExperiment, ResolvedArm, parse_experiment
from failback.chaos.target import Target
from failback.chaos.verdict import (
    Check,
    FaultHonesty,
    Observations,
    ReasonCode,
    Verdict,
    inconclusive,
    judge,
    merge,
)
from failback.chaos.wire import now
from failback.protocol.errors import ConfigError, FailbackError

logger = logging.getLogger(__name__)

HYPOTHESIS_FREQUENCY_SECONDS: Final = 1.0
OUTCOME_FILE: Final = "outcome.json"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What the harness can say of a run. The analysis says how many messages came twice."""

    run: str
    run_dir: str
    arm: str
    repetition: int
    verdict: str
    exit_code: int
    checks: list[dict[str, str]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    delivered: dict[str, int] = field(default_factory=dict)
    manifest_sha256: str = ""
    message: str = ""
    """One sentence for people when the run did not pass."""

    @property
    def passed(self) -> bool:
        return self.exit_code == ExitCode.PASS


def run_arm(
    experiment: ChaosExperiment,
    arm: str,
    repetition: int = 0,
    *,
    control_socket: Path | None = None,
    root: Path | None = None,
    place: Place | None = None,
    run_dir: Path | None = None,
    runs: Path | None = None,
    progress_address: str = "",
    progress: Progress = lambda _: None,
) -> RunOutcome:
    """Run one repetition in a process of its own and wait for it.

    Args:
        experiment: From ``load_experiment``.
        arm: Name of the arm.
        repetition: From 0.
        control_socket, root: One of the two says which local runtime.
        place: Says where the cluster is, instead of the two.
        run_dir: The run folder; made if absent. Default: ``runs/<experiment>/<arm>-<repetition>``.
        runs: Folder of all runs, when ``run_dir`` is not given; ``runs`` by default.
        progress_address: ``host:port`` at which the run answers ``GET /run``; empty for nowhere.
        progress: Called with one line of text at a time.

    Raises:
        ConfigError: The experiment does not fit this cluster; nothing was injected.
        GuardRefused: A guard said no; nothing was injected.
        NotHealed: An earlier run must be healed first.
    """
    resolved = experiment.arm(arm)
    folder = (run_dir or _run_dir(runs or Path("runs"), experiment, arm, repetition)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "experiment.yaml"
    source.write_text(experiment.source, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "failback.chaos", "run-arm", str(source)),
        *("--arm", resolved.name, "--repetition", str(repetition)),
        *("--seed", str(experiment.seed)),
        *("--time-scale", repr(experiment.spec.time_scale)),
        *("--run-dir", str(folder)),
    ]
    if place is None:
        place = Place(
            root=str(root.absolute()) if root else "",
            control_socket=str(control_socket) if control_socket else "",
        )
    if place == Place():
        raise ConfigError("target", "give the runtime's root or its control socket")
    command += ["--place", place.to_json()]
    if progress_address:
        command += ["--progress-address", progress_address]
    reply = _supervise(command, folder, progress)
    return _outcome_of(reply, folder)


def _supervise(command: Sequence[str], folder: Path, progress: Progress) -> dict[str, Any]:
    """Start the run's process, pass its lines on, forward Ctrl-C as SIGTERM."""
    (folder / "logs").mkdir(exist_ok=True)
    with (folder / "logs" / "harness.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    reply: dict[str, Any] = {}
    assert process.stdout is not None
    with process.stdout as lines, _terminated_as_interrupted():
        while True:
            try:
                for line in lines:
                    document = _json_line(line)
                    if "progress" in document:
                        progress(str(document["progress"]))
                    elif document:
                        reply = document
                break
            except KeyboardInterrupt:
                progress("stopping: undoing what was done")
                process.send_signal(signal.SIGTERM)
    reply.setdefault("exit_code", process.wait())
    return reply


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM like Ctrl-C: a container's stop is passed on to the run, which undoes and ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _json_line(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _outcome_of(reply: Mapping[str, Any], folder: Path) -> RunOutcome:
    error = reply.get("error")
    if error:
        match error["kind"]:
            case "config":
                raise ConfigError(error["field"], error["problem"])
            case "guard":
                raise GuardRefused(error["guard"], error["why"])
            case "not-healed":
                raise NotHealed(error["left"], error["command"])
            case _:
                raise TargetError(error.get("what", "run"), error.get("why", "failed"))
    if "outcome" in reply:
        return RunOutcome(**reply["outcome"])
    return RunOutcome(
        run="",
        run_dir=str(folder),
        arm="",
        repetition=0,
        verdict=Verdict.INCONCLUSIVE.value,
        exit_code=ExitCode.INCONCLUSIVE,
        message=(
            f"the harness ended with {reply.get('exit_code')}; "
            f"see {folder / 'logs' / 'harness.log'}, then run: failback run --heal {folder}"
        ),
    )


# --- in the run's own process --------------------------------------------------------------------


def run_here(
    experiment: ChaosExperiment,
    arm: ResolvedArm,
    repetition: int,
    *,
    place: Place,
    run_dir: Path,
    progress_address: str = "",
    progress: Progress = lambda _: None,
) -> RunOutcome:
    """Run one repetition in this process; raises like :func:`run_arm`."""
    started = now()
    schedule = plan_run(experiment, arm, repetition)
    name = run_id(experiment.name, arm.name, repetition, experiment.seed, started.wall_ns)
    folder = RunFolder(run_dir)
    if folder.is_closed():
        raise ConfigError("run_dir", f"{run_dir} holds a finished run; choose another folder")
    folder.create()
    target, lease = place.connect(experiment.cluster)
    chaos_toolkit = generate(experiment, arm, repetition, run_dir=str(run_dir), target=target.kind)
    validate(chaos_toolkit)
    lease.take(run_dir)
    session = Session(
        experiment=experiment,
        arm=arm,
        repetition=repetition,
        run=name,
        folder=folder,
        target=target,
        schedule=schedule,
        lease=lease,
        progress=progress,
        started=started,
    )
    sessions.register(session)
    server = serve_progress(session, progress_address) if progress_address else None
    try:
        folder.open()
        folder.write_bytes("experiment.yaml", experiment.source.encode())
        folder.write_bytes("experiment.json", to_json(chaos_toolkit).encode())
        folder.write_json("target.json", _target_note(target, experiment, place))
        journal = run_experiment(
            chaos_toolkit,
            settings={"runtime": chaos_toolkit["runtime"]},
            strategy=Strategy.DEFAULT,
            schedule=HypothesisSchedule(
                continuous_hypothesis_frequency=HYPOTHESIS_FREQUENCY_SECONDS
            ),
        )
        return _finish(session, journal)
    finally:
        if server is not None:
            server.shutdown()
        sessions.forget(session)
        healed = not session.ledger.open_entries()
        lease.give_back(healed=healed and (folder.is_closed() or session.refused is not None))
        folder.release()
        target.close()


def _finish(session: Session, journal: Mapping[str, Any]) -> RunOutcome:
    """Write journal and manifest, then say what the harness can say."""
    folder = session.folder
    if session.refused is not None:
        _forget_refused(session)
        raise session.refused
    checks = judge(_observations(session))
    if session.close_error or not session.closed:
        why = session.close_error or "the run was not closed"
        checks += (inconclusive("closed", ReasonCode.RECORDER_GAP, why),)
    folder.write_json("journal.json", json.loads(json.dumps(journal, default=str)))
    left = session.ledger.open_entries()
    verdict = merge(checks)
    outcome = RunOutcome(
        run=session.run,
        run_dir=str(folder.path),
        arm=session.arm.name,
        repetition=session.repetition,
        verdict=verdict.value,
        exit_code=ExitCode.NOT_HEALED if left else _EXIT[verdict],
        checks=[_plain(check) for check in checks],
        faults=[
            {
                "fid": fid,
                "fault": record.fault,
                "honest": record.honest,
                "why": record.why,
                "rungs": dict(record.rungs),
                "down_seconds": record.down_seconds,
                "served_by_slave": dict(record.served),
            }
            for fid, record in session.faults().items()
        ],
        delivered=delivered_by_group(session),
        message=_sentence(checks, [f"{each.call} {dict(each.args)}" for each in left], folder.path),
    )
    folder.write_json(OUTCOME_FILE, asdict(outcome))
    if not session.closed:
        return outcome
    digest = folder.write_manifest(lake_rows(folder.path))
    x_failback = journal.get("x-failback")
    if isinstance(x_failback, dict):
        x_failback["manifest_sha256"] = digest
    return RunOutcome(**{**asdict(outcome), "manifest_sha256": digest})


_EXIT: Final = {
    Verdict.PASS: ExitCode.PASS,
    Verdict.FAIL: ExitCode.FAIL,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def _forget_refused(session: Session) -> None:
    """Nothing was injected and nothing recorded: leave a note instead of half a run."""
    if session.recorder is not None:
        session.recorder.close()
    if session.fleet is not None:
        session.fleet.stop_all()
        session.fleet.close()
    session.folder.write_json("refused.json", {"refused": str(session.refused)})


def _observations(session: Session) -> Observations:
    results, recorder = session.results, session.recorder
    return Observations(
        steady=results.steady,
        steady_why=results.steady_why or results.aborted,
        faults=tuple(
            FaultHonesty(fid, record.honest is True, record.why or "not every rung was proved")
            for fid, record in session.faults().items()
        ),
        expected_faults=len(session.arm.faults),
        recovered=results.recovered,
        recovered_why=results.recovered_why,
        drained=results.drained,
        drain_why="; ".join(results.drain_open[:3]),
        scanned=results.scanned,
        gaps=tuple(recorder.gaps()) if recorder else ("the recorder was not opened",),
        aborted=results.aborted or session.stop_reason(),
        deliveries=delivered_by_group(session),
        clock_steps=recorder.clock_steps if recorder else 0,
    )


def _plain(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "verdict": check.verdict.value,
        "code": check.code.value if check.code else "",
        "detail": check.detail,
    }


def _sentence(checks: Sequence[Check], left: Sequence[str], folder: Path) -> str:
    if left:
        return f"not healed: {'; '.join(left)}; run: failback run --heal {folder}"
    for wanted in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        for check in checks:
            if check.verdict is wanted:
                code = f"({check.code.value}) " if check.code else ""
                return f"{wanted.value} {code}{check.name}: {check.detail}"
    return ""


def _target_note(target: Target, experiment: ChaosExperiment, place: Place) -> dict[str, Any]:
    control = getattr(target, "control_path", None)
    known = json.loads(place.to_json()) | ({"control_socket": str(control)} if control else {})
    return {"kind": target.kind, "cluster": experiment.cluster, **known}


def _run_dir(runs: Path, experiment: ChaosExperiment, arm: str, repetition: int) -> Path:
    return runs / experiment.name / run_folder_name(arm, repetition)


# --- entry of the run's own process --------------------------------------------------------------


def child_main(
    source: Path,
    arm: str,
    repetition: int,
    *,
    seed: int,
    time_scale: float,
    run_dir: Path,
    place: Place,
    progress_address: str = "",
    emit: Callable[[Mapping[str, Any]], None],
) -> int:
    """Run one repetition and emit progress, then an outcome or an error, as plain objects."""
    lock = threading.Lock()

    def say(document: Mapping[str, Any]) -> None:
        with lock:
            emit(document)

    began = time.monotonic()

    def progress(text: str) -> None:
        logger.info("%s", text)
        say({"progress": text, "seconds": round(time.monotonic() - began, 1)})

    try:
        experiment = parse_experiment(source.read_text(encoding="utf-8"))
        experiment = experiment.with_seed(seed).with_time_scale(time_scale)
        outcome = run_here(
            experiment,
            experiment.arm(arm),
            repetition,
            place=place,
            run_dir=run_dir,
            progress_address=progress_address,
            progress=progress,
        )
    except FailbackError as error:
        logger.error("%s", error)
        document, code = describe_error(error)
        say({"error": document, "exit_code": code})
        return code
    say({"outcome": asdict(outcome), "exit_code": outcome.exit_code})
    return outcome.exit_code


def describe_error(error: FailbackError) -> tuple[dict[str, Any], ExitCode]:
    """An error as plain values, and the exit code that it becomes."""
    match error:
        case ConfigError():
            return (
                {"kind": "config", "field": error.field, "problem": error.problem},
                ExitCode.BAD_INPUT,
            )
        case GuardRefused():
            return {"kind": "guard", "guard": error.guard, "why": error.why}, ExitCode.GUARD_REFUSED
        case NotHealed():
            return (
                {"kind": "not-healed", "left": list(error.left), "command": error.command},
                ExitCode.NOT_HEALED,
            )
        case TargetError():
            return (
                {"kind": "target", "what": error.what, "why": error.why},
                ExitCode.INCONCLUSIVE,
            )
        case _:
            return {"kind": "other", "what": type(error).__name__, "why": str(error)}, (
                ExitCode.INCONCLUSIVE
            )

"""One repetition of one arm, from the taken lease to the written manifest.

It has a process to itself: Chaos Toolkit keeps module-level state and signal handlers.
:func:`child_main` is what that process does, :func:`run_here` the repetition.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from chaoslib.experiment import run_experiment
from chaoslib.types import Schedule as HypothesisSchedule
from chaoslib.types import Strategy

from failback.chaos import session as sessions
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.lease import Lease
from failback.chaos.cluster.target import Target
from failback.chaos.errors import ExitCode, TargetError
from failback.chaos.experiment.generate import generate, to_json, validate
from failback.chaos.experiment.schedule import plan_run, run_id
from failback.chaos.experiment.spec import ChaosExperiment, ResolvedArm
from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.run.closing import delivered_by_group, lake_rows
from failback.chaos.run.outcome import OUTCOME_FILE, RunOutcome, describe_error
from failback.chaos.run.progress import serve_progress
from failback.chaos.run.verdict import (
    Check,
    FaultProof,
    Observations,
    ReasonCode,
    Verdict,
    inconclusive,
    judge,
    merge,
)
from failback.chaos.run_folder import own_notes
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.session import Progress, Session
from failback.chaos.targets.location import Location
from failback.common.text import typed
from failback.protocol.errors import ConfigError, FailbackError

logger = logging.getLogger(__name__)

HYPOTHESIS_FREQUENCY_SECONDS: Final = 1.0
_EXIT: Final = {
    Verdict.PASS: ExitCode.PASS,
    Verdict.FAIL: ExitCode.FAIL,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def child_main(
    source: Path,
    arm: str,
    repetition: int,
    *,
    seed: int,
    time_scale: float,
    run_dir: Path,
    location: Location,
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
            location=location,
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


def run_here(
    experiment: ChaosExperiment,
    arm: ResolvedArm,
    repetition: int,
    *,
    location: Location,
    run_dir: Path,
    progress_address: str = "",
    progress: Progress = lambda _: None,
) -> RunOutcome:
    """Run one repetition in this process; raises like :func:`failback.chaos.run.run.run_arm`."""
    kind = "kubernetes" if location.is_kubernetes else "local"
    document = generate(experiment, arm, repetition, run_dir=str(run_dir), target=kind)
    validate(document)
    with contextlib.ExitStack() as held:
        session = held.enter_context(
            opened(experiment, arm, repetition, document, location, run_dir, progress)
        )
        if progress_address:
            held.enter_context(serve_progress(session, progress_address))
        frequency = HYPOTHESIS_FREQUENCY_SECONDS
        journal = run_experiment(
            document,
            settings={"runtime": document["runtime"]},
            strategy=Strategy.DEFAULT,
            schedule=HypothesisSchedule(continuous_hypothesis_frequency=frequency),
        )
        return finish(session, journal)


@contextlib.contextmanager
def opened(
    experiment: ChaosExperiment,
    arm: ResolvedArm,
    repetition: int,
    document: Mapping[str, Any],
    location: Location,
    run_dir: Path,
    progress: Progress,
) -> Iterator[Session]:
    """Open a run folder that says what is run where, with the cluster's lease until the end."""
    started = now()
    schedule = plan_run(experiment, arm, repetition)
    name = run_id(experiment.name, arm.name, repetition, experiment.seed, started.wall_ns)
    folder = RunFolder(run_dir)
    folder.require_unfinished()
    folder.create()
    target, lease = location.connect(experiment.cluster)
    with contextlib.closing(target):
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
        with contextlib.ExitStack() as held:
            held.callback(folder.release)
            held.callback(_give_back, lease, session)
            held.callback(sessions.forget, session)
            sessions.register(session)
            note = _target_note(target, experiment, location)
            folder.open()
            folder.write_bytes("experiment.yaml", experiment.source.encode())
            folder.write_bytes("experiment.json", to_json(document).encode())
            folder.write_json("target.json", note)
            own_notes.remember(folder.path, note)
            yield session


@contextlib.contextmanager
def opened_again(
    document: Mapping[str, Any], configuration: dict[str, Any], progress: Progress
) -> Iterator[Session]:
    """Open a run of the ``experiment.json`` of an earlier one: ``chaos run FILE``.

    Experiment and cluster are those of the earlier run. The folder is a new one beside it, which
    ``run_dir`` of the configuration names from then on.

    Raises:
        ConfigError: The folder of the earlier run is not there.
        FailbackError: As :func:`run_here`.
    """
    earlier = Path(str(configuration.get("run_dir", "")))
    if not (earlier / "run.json").is_file():
        problem = f'"{earlier}" is no folder of an earlier run: use failback experiment run'
        raise ConfigError("configuration.run_dir", problem)
    run = RunFolder(earlier).read_json("run.json")
    experiment = parse_experiment((earlier / "experiment.yaml").read_text(encoding="utf-8"))
    experiment = experiment.with_seed(int(run["seed"])).with_time_scale(run["time_scale"])
    location = Location.of_note(RunFolder(earlier).read_json("target.json"))
    names = (earlier.with_name(f"{earlier.name}-again-{each}") for each in itertools.count(1))
    run_dir = next(each for each in names if not each.exists())
    arm, repetition = experiment.arm(run["arm"]), run["repetition"]
    with opened(experiment, arm, repetition, document, location, run_dir, progress) as session:
        configuration["run_dir"] = str(run_dir)
        yield session


def _give_back(lease: Lease, session: Session) -> None:
    """End the lease. It runs out by itself, so a run's outcome is not lost over it."""
    healed = not session.ledger.open_entries()
    closed = session.folder.is_closed() or session.refused is not None
    try:
        lease.give_back(healed=healed and closed)
        if healed and closed:
            own_notes.forget(session.folder.path)
    except TargetError as error:
        logger.warning("the lease was not given back: %s", error)


def finish(session: Session, journal: Mapping[str, Any]) -> RunOutcome:
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
                "proved": record.proved,
                "why": record.why,
                "proof": dict(record.proof),
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
    return replace(outcome, manifest_sha256=folder.write_manifest(lake_rows(folder.path)))


def _forget_refused(session: Session) -> None:
    """Nothing was injected and nothing recorded: leave a note instead of half a run."""
    if session.recorder is not None:
        session.recorder.close()
    if session.supervisor is not None:
        session.supervisor.stop_all()
        session.supervisor.close()
    session.folder.write_json("refused.json", {"refused": str(session.refused)})


def _observations(session: Session) -> Observations:
    results, recorder = session.results, session.recorder
    return Observations(
        steady=results.steady,
        steady_why=results.steady_why or results.aborted,
        faults=tuple(
            FaultProof(fid, record.proved is True, record.why or "not every step was proved")
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
        command = typed("failback", "experiment", "heal", folder)
        return f"not healed: {'; '.join(left)}; run: {command}"
    for check in checks:
        if check.name == "finished" and check.code is ReasonCode.ABORTED:
            return f"{check.detail}; healed: all that was done is undone"
    for wanted in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        for check in checks:
            if check.verdict is wanted:
                code = f"({check.code.value}) " if check.code else ""
                return f"{wanted.value} {code}{check.name}: {check.detail}"
    return ""


def _target_note(target: Target, experiment: ChaosExperiment, location: Location) -> dict[str, Any]:
    control = getattr(target, "control_path", None)
    known = json.loads(location.to_json()) | ({"control_socket": str(control)} if control else {})
    return {"kind": target.kind, "cluster": experiment.cluster, **known}

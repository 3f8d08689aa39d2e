"""Runs that are to end, or whose harness is gone: abort, heal, and find what is not healed.

An interrupted run that still lives takes its faults back itself: ``undo_outstanding`` in
toolkit/actions.py.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from failback.chaos.cluster.lease import Lease
from failback.chaos.errors import ExitCode, GuardRefused, RunFolderError
from failback.chaos.faults.undo import undo_open
from failback.chaos.run.closing import lake_rows, seal
from failback.chaos.run_folder import own_notes
from failback.chaos.run_folder.run_folder import CLOSED_SCHEMA, FolderState, RunFolder
from failback.chaos.run_folder.undo_ledger import UndoEntry, UndoLedger
from failback.chaos.session import Phases, Progress
from failback.chaos.targets.local import ControlSocket, LocalTarget
from failback.chaos.targets.location import Location
from failback.common.files import digest_of, read_file
from failback.common.text import typed
from failback.protocol.errors import ConfigError


def heal(
    run_dir: Path,
    *,
    location: Location | None = None,
    insists: bool = False,
    progress: Progress = lambda _: None,
    seconds: float = 300.0,
) -> ExitCode:
    """Take back what a killed run left, seal its logs and close its folder as aborted.

    Injects nothing; a second call changes nothing. The folder may come from anywhere: it does not
    say where the cluster is.

    Args:
        location: Where the cluster is; by default, where this account noted it for the run.
        insists: Undo also where the cluster's lease does not name this run.

    Raises:
        RunFolderError: There is no run in that folder, or it is still going on.
        ConfigError: Neither ``location`` nor a note says where its cluster is.
        GuardRefused: The lease of the cluster names another run, or none.
    """
    run_dir = run_dir.absolute()
    folder = RunFolder(run_dir)
    if not (run_dir / "undo.jsonl").exists() and not (run_dir / "experiment.json").exists():
        raise RunFolderError(f"{run_dir}: no run folder")
    if folder.state() is FolderState.OPEN:
        raise RunFolderError(
            f"{run_dir} is going on; stop it with: "
            + typed("failback", "experiment", "abort", run_dir)
        )
    was_closed = folder.is_closed()
    ledger = UndoLedger(run_dir)
    if was_closed and not ledger.open_entries():
        progress("nothing to heal")
        return ExitCode.PASS
    where, cluster = _where(run_dir, folder, location)
    if where.is_gone():
        progress(f"cluster {cluster} is gone, and the faults of the run with it")
        for entry in ledger.open_entries(faults_only=True):
            ledger.mark_healed(entry.id, {"cluster": "gone"})
        workload = LocalTarget(ControlSocket(Path(where.root)), cluster)
        left = list(undo_open(ledger, workload, seconds=seconds, tell=progress)["still_open"])
        folder.open()
        _close(folder, run_dir, was_closed, left)
        folder.release()
        return ExitCode.NOT_HEALED if left else ExitCode.PASS
    target, lease = where.connect(cluster)
    named = lease.left_in()
    if named != str(run_dir) and not insists:
        target.close()
        raise GuardRefused(
            "OneExperiment",
            f"{cluster}: its lease names {named or 'no run'}, not {run_dir}, so nothing is undone. "
            "To undo what this folder says all the same: --yes",
        )
    lease.take(run_dir, healing=True)
    left = []
    try:
        folder.open()
        foreign = {entry.id: entry for entry in ledger.open_entries() if _is_foreign(entry, lease)}
        own = [entry.id for entry in ledger.open_entries() if entry.id not in foreign]
        result = undo_open(ledger, target, seconds=seconds, tell=progress, only=own)
        left = result["still_open"]
        left += [
            f"{entry.call} {dict(entry.args)}: the saved files are not those that the run vouched "
            "for, so they are not written"
            for entry in foreign.values()
        ]
        for name in result["undone"]:
            progress(f"undone and seen healed: {name}")
        _close(folder, run_dir, was_closed, left)
    finally:
        lease.give_back(healed=not left)
        folder.release()
        target.close()
    if left:
        progress(f"still open: {'; '.join(left)}")
        return ExitCode.NOT_HEALED
    return ExitCode.PASS


def _where(run_dir: Path, folder: RunFolder, location: Location | None) -> tuple[Location, str]:
    """Return where a run's cluster is, and its name."""
    own = own_notes.recall(run_dir)
    if location is None and own:
        return Location.of_note(own), str(own["cluster"])
    note = folder.read_json("target.json")
    if location is not None:
        return location, str(note["cluster"])
    said = ", ".join(f"{key} {note[key]}" for key in ("root", "namespace") if note.get(key))
    raise ConfigError(
        "--root",
        f"this account has no note of where the cluster of {run_dir} is. Give --root FOLDER of the "
        f"local runtime, or --namespace NAME on Kubernetes (the folder says: {said or 'nothing'})",
    )


def _is_foreign(entry: UndoEntry, lease: Lease) -> bool:
    """Tell whether an entry would write files that are not those that the run saved."""
    files = entry.args.get("files")
    values = files.values() if isinstance(files, dict) else ()
    saved = [Path(each) for each in values if each and isinstance(each, str)]
    if not saved:
        return False
    vouched = set(lease.vouched())
    return any(digest_of(read_file(each)) not in vouched for each in saved if each.exists())


def _close(folder: RunFolder, run_dir: Path, was_closed: bool, left: list[str]) -> None:
    if not was_closed:
        _close_aborted(folder, left)
    folder.write_manifest(lake_rows(run_dir))
    if not left:
        own_notes.forget(run_dir)


def runs_to_heal(path: Path) -> list[Path]:
    """Return ``path`` if it is a run folder, else every run folder below that is not closed and
    healed.

    Raises:
        RunFolderError: There is no such folder.
    """
    if not path.is_dir():
        raise RunFolderError(f"{path}: no run folder")
    if any((path / name).exists() for name in ("undo.jsonl", "experiment.json")):
        return [path]
    names = ("undo.jsonl", "target.json")
    found = {
        each.parent
        for depth in ("*", "*/*")  # RUNS/EXPERIMENT/ARM-000 is the deepest that a run makes
        for name in names
        for each in path.glob(f"{depth}/{name}")
        if not each.parent.is_symlink()
    }
    return [each for each in sorted(found) if _is_to_heal(each)]


def _is_to_heal(run_dir: Path) -> bool:
    try:
        if UndoLedger(run_dir).open_entries():
            return True
    except (RunFolderError, OSError):  # :func:`heal` says what is wrong with it
        return True
    return not (RunFolder(run_dir).is_closed() or (run_dir / "refused.json").exists())


def _close_aborted(folder: RunFolder, left: list[str]) -> None:
    """closed.json of a run whose harness did not live to write it."""
    try:
        run = folder.read_json("run.json")
    except RunFolderError:
        run = {"run": "unknown", "procs": [], "zero": {"mono_ns": 0}}
    sealed = seal(folder, str(run["run"]), {})
    folder.write_json(
        "closed.json",
        {
            "schema": CLOSED_SCHEMA,
            "drained": False,
            "scan": False,
            "counts": sealed.rows,
            "procs": {str(number): seq for number, seq in sorted(sealed.last_seq.items())},
            "exits": {},
            "gaps": sealed.gaps,
            "recorder_gaps": ["the harness ended before the run did"],
            "clock": {"steps": 0, "hosts": []},
            "phases": {
                **dict.fromkeys(f"{each.name}_ns" for each in fields(Phases)),
                "warmup_end_ns": run.get("warmup_end_ns"),
            },
            "aborted": "ABORTED: healed after the harness had ended",
            "not_healed": left,
        },
    )


def abort(run_dir: Path, why: str = "asked to abort") -> None:
    """Set the abort flag of a live run; it ends in order within seconds.

    Raises:
        RunFolderError: No run is going on there.
    """
    folder = RunFolder(run_dir)
    if not run_dir.is_dir() or folder.state() is not FolderState.OPEN:
        raise RunFolderError(f"{run_dir}: no run is going on")
    folder.ask_to_abort(why)

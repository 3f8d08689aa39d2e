"""Runs that are to end, or whose harness is gone: abort, heal, and find what is not healed.

An interrupted run that still lives takes its faults back itself: ``undo_outstanding`` in
toolkit/actions.py.
"""

from __future__ import annotations

from pathlib import Path

from failback.chaos.errors import ExitCode, RunFolderError
from failback.chaos.faults.undo import undo_open
from failback.chaos.run.closing import lake_rows, seal
from failback.chaos.run_folder.run_folder import CLOSED_SCHEMA, FolderState, RunFolder
from failback.chaos.run_folder.undo_ledger import UndoLedger
from failback.chaos.session import Progress
from failback.chaos.targets.location import Location
from failback.common.text import typed


def heal(run_dir: Path, *, progress: Progress = lambda _: None, seconds: float = 300.0) -> ExitCode:
    """Take back what a killed run left, seal its logs and close its folder as aborted.

    Injects nothing; a second call changes nothing.

    Raises:
        RunFolderError: There is no run in that folder, or it is still going on.
    """
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
    note = folder.read_json("target.json")
    target, lease = Location.of_note(note).connect(str(note["cluster"]))
    lease.take(run_dir, healing=True)
    left: list[str] = []
    try:
        folder.open()
        result = undo_open(ledger, target, seconds=seconds, tell=progress)
        left = result["still_open"]
        for name in result["undone"]:
            progress(f"undone and seen healed: {name}")
        if not was_closed:
            _close_aborted(folder, left)
        folder.write_manifest(lake_rows(run_dir))
    finally:
        lease.give_back(healed=not left)
        folder.release()
        target.close()
    if left:
        progress(f"still open: {'; '.join(left)}")
        return ExitCode.NOT_HEALED
    return ExitCode.PASS


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
    found = {each.parent for each in path.rglob("undo.jsonl")}
    found |= {each.parent for each in path.rglob("target.json")}
    return [
        each
        for each in sorted(found)
        if UndoLedger(each).open_entries()
        or not (RunFolder(each).is_closed() or (each / "refused.json").exists())
    ]


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
                "warmup_end_ns": run.get("warmup_end_ns"),
                "first_fault_ns": None,
                "last_heal_ns": None,
                "drain_end_ns": None,
                "end_ns": None,
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

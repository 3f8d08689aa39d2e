"""The run folder: where everything about one repetition of one arm lies.

A folder is *open* while a process holds its lock, *closed* once ``closed.json`` and
``manifest.json`` are there, and *orphaned* when neither is true: then ``failback experiment heal``
is due. Files appear whole: written under another name, synced, renamed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster import processes
from failback.chaos.errors import GuardRefused, NotHealed, RunFolderError
from failback.chaos.run_folder.undo_ledger import read_ledger
from failback.common.files import append_line, check_regular, place_in, read_object
from failback.common.replacing import replace_file
from failback.common.text import typed, why
from failback.init.processes import process_space
from failback.protocol.errors import ConfigError

RUN_SCHEMA: Final = "failback.run/1"
CLOSED_SCHEMA: Final = "failback.closed/1"
MANIFEST_SCHEMA: Final = "failback.manifest/1"
_UNLISTED: Final = ("manifest.json", "lock", "abort")


class FolderState(Enum):
    OPEN = "open"
    CLOSED = "closed"
    ORPHANED = "orphaned"


class FileLock:
    """An exclusive lock that the kernel frees when its holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; false when another process has it. ``write`` notes the holder."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            check_regular(descriptor, self.path)
        except OSError:
            os.close(descriptor)
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def write(self, content: Mapping[str, Any] | None) -> None:
        """Replace the note inside the lock file; ``None`` empties it."""
        assert self._descriptor is not None, "write needs the lock"
        data = b"" if content is None else json.dumps(content).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)
        os.fsync(self._descriptor)

    def read(self) -> dict[str, Any]:
        try:
            return read_object(self.path)
        except (OSError, ValueError):
            return {}

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None


class RunFolder:
    """One run folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock")

    # --- life ------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the folders. Raises ``RunFolderError`` when it cannot, or when it is in use."""
        try:
            for name in ("hot", "lake", "snap", "logs"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be created: {error}") from error

    def open(self) -> None:
        """Take the lock for this process. Raises ``RunFolderError`` when it is held."""
        try:
            taken = self._lock.acquire()
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be locked: {error}") from error
        if not taken:
            raise RunFolderError(f"{self.path}: in use by {self._lock.read().get('pid', '?')}")
        pid = os.getpid()
        ticks = processes.read_ticks(pid)
        self._lock.write({"pid": pid, "ticks": ticks, "space": process_space()})

    def release(self) -> None:
        """Let go of the lock. The lock file goes with a closed folder."""
        if self._lock.held and self.is_closed():
            self._lock.path.unlink(missing_ok=True)
        self._lock.release()

    @property
    def is_open_here(self) -> bool:
        return self._lock.held

    def is_closed(self) -> bool:
        return (self.path / "closed.json").exists() and (self.path / "manifest.json").exists()

    def require_unfinished(self) -> None:
        """Raise ``ConfigError`` when a finished run lies here: nothing may change it."""
        if self.is_closed():
            raise ConfigError(
                "run_dir",
                f"{self.path} holds a finished run; "
                "give the experiment another name, or choose another folder",
            )

    def require_free(self) -> None:
        """Refuse a folder of another run before anything is written to it; there may be none.

        Raises:
            ConfigError: A finished run lies here.
            RunFolderError: A run is under way here.
        """
        self.require_unfinished()
        if not self._lock.path.exists():
            return
        probe = FileLock(self._lock.path)
        if not probe.acquire():
            raise RunFolderError(f"{self.path}: in use by {self._lock.read().get('pid', '?')}")
        probe.release()

    def state(self) -> FolderState:
        if self.is_closed():
            return FolderState.CLOSED
        if self._lock.held:
            return FolderState.OPEN
        probe = FileLock(self._lock.path)
        if not self.path.exists() or not probe.acquire():
            return FolderState.OPEN
        probe.release()
        return FolderState.ORPHANED

    # --- abort flag ------------------------------------------------------------------------------

    def ask_to_abort(self, why: str) -> None:
        replace_file(self.path / "abort", why.encode())

    def abort_reason(self) -> str:
        """The name of the one that asked to stop, and why; empty without such a request."""
        try:
            return (self.path / "abort").read_text(encoding="utf-8") or "asked to abort"
        except FileNotFoundError:
            return ""

    # --- files -----------------------------------------------------------------------------------

    @property
    def hot(self) -> Path:
        return self.path / "hot"

    @property
    def lake(self) -> Path:
        return self.path / "lake"

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False)
        replace_file(self.path / name, text.encode() + b"\n")

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            return read_object(self.path / name)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / name}: {why(error)}") from error

    def write_bytes(self, name: str, data: bytes) -> None:
        target = place_in(self.path, self.path / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, data)

    def append_line(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one synced JSON line, all of it or nothing.

        Raises:
            OSError: The disk refused.
        """
        append_line(self.path / name, json.dumps(record, separators=(",", ":")).encode())

    def write_manifest(self, rows: Mapping[str, int] | None = None) -> str:
        """List and hash every file but the manifest and the report; return ``run_sha256``.

        Args:
            rows: Row counts by path, for the tables of the lake.
        """
        rows = rows or {}
        files: dict[str, dict[str, Any]] = {}
        for path in sorted(self._listed()):
            name = path.relative_to(self.path).as_posix()
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = {"bytes": path.stat().st_size, "sha256": digest}
            if name in rows:
                files[name]["rows"] = rows[name]
        run_sha256 = hash_of_files({name: each["sha256"] for name, each in files.items()})
        self.write_json(
            "manifest.json",
            {"schema": MANIFEST_SCHEMA, "files": files, "run_sha256": run_sha256},
        )
        return run_sha256

    def _listed(self) -> Iterator[Path]:
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path)
            if path.is_file() and name.parts[0] != "report" and str(name) not in _UNLISTED:
                yield path


def hash_of_files(hashes: Mapping[str, str]) -> str:
    """sha256 over ``<sha256>  <path>`` lines sorted by path: what a report embeds."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


class ClusterLease:
    """At most one experiment per cluster. Kept on disk when a run could not be healed."""

    def __init__(self, root: Path, cluster: str) -> None:
        self._lock = FileLock(root / f"experiment-{cluster}.lock")
        self._cluster = cluster

    def take(self, run_dir: Path, *, healing: bool = False) -> None:
        """Take the lease for one run.

        Raises:
            GuardRefused: Another run is under way.
            NotHealed: The last run left something behind, and this one is not its heal.
        """
        if not self._lock.acquire():
            other = self._lock.read().get("run_dir", "an unknown run")
            raise GuardRefused("OneExperiment", f"{self._cluster} is in use by {other}")
        left = self._lock.read().get("run_dir")
        if left and not healing and Path(left) != run_dir:
            open_entries = what_is_left(Path(left))
            if open_entries:
                self._lock.release()
                raise NotHealed(open_entries, typed("failback", "experiment", "heal", left))
        vouched = self._lock.read().get("vouched", []) if healing else []
        self._lock.write({"run_dir": str(run_dir), "pid": os.getpid(), "vouched": vouched})

    def left_in(self) -> str:
        return str(self._lock.read().get("run_dir") or "")

    def vouch(self, digests: Collection[str]) -> None:
        note = self._lock.read()
        self._lock.write({**note, "vouched": sorted({*note.get("vouched", ()), *digests})})

    def vouched(self) -> Collection[str]:
        return [str(each) for each in self._lock.read().get("vouched", ())]

    def require(self) -> None:
        """The kernel keeps the lock as long as we live."""

    def give_back(self, *, healed: bool) -> None:
        """End the lease. A run that is not healed leaves its name, so that no second one starts."""
        if self._lock.held:
            if healed:
                self._lock.write(None)
            self._lock.release()


def what_is_left(run_dir: Path) -> list[str]:
    """What a run left behind: open ledger entries, and the run itself while it is not closed."""
    left = [
        f"{entry.call} {dict(entry.args)}"
        for entry in read_ledger(run_dir / "undo.jsonl")
        if entry.healed is None
    ]
    if run_dir.exists() and not RunFolder(run_dir).is_closed():
        left.append(f"{run_dir} is not closed")
    return left

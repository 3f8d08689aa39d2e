"""The undo ledger: what has to be taken back, on disk before it is done.

One JSON object per line of ``undo.jsonl``. An entry names concrete things (a pod, a pid with its
ticks), never a selector, so it can be replayed by another process after this one was killed::

    {"id": "u0001", "call": "release", "args": {"pod": "..."}, "fid": "f1", "t": [wall, mono]}
    {"id": "u0001", "undone": [wall, mono]}
    {"id": "u0001", "healed": {...observation...}, "t": [wall, mono]}

Undone is not healed: an entry stays open until the system was seen without the fault. A torn
last line is ignored: an entry is written and synced before its injection, so at worst it names
something that was never done, and undoing that is harmless.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.errors import RunFolderError
from failback.common.files import append_line, parsed, read_file

FILE_NAME: Final = "undo.jsonl"
STOP_WORKLOAD: Final = "stop-workload"
"""Not a fault: a process of the workload that has to end with the run."""


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """One thing to take back."""

    id: str
    call: str
    args: Mapping[str, Any]
    fid: str
    undone: bool = False
    healed: Mapping[str, Any] | None = None

    @property
    def is_fault(self) -> bool:
        return self.call != STOP_WORKLOAD


class UndoLedger:
    """Append-only; every line is synced before the call returns. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = threading.Lock()
        self._entries = {entry.id: entry for entry in read_ledger(self.path)}
        _cut_torn_line(self.path)

    def add(self, call: str, args: Mapping[str, Any], fid: str = "") -> str:
        """Record what will be done; do it only after this returned. Returns the entry's id.

        Raises:
            OSError: The disk refused; nothing of the entry is in the file.
        """
        with self._lock:
            name = f"u{len(self._entries) + 1:04d}"
            entry = UndoEntry(name, call, dict(args), fid)
            self._write({"id": name, "call": call, "args": dict(args), "fid": fid, "t": now()})
            self._entries[name] = entry
            return name

    def mark_undone(self, name: str) -> None:
        with self._lock:
            entry = self._entries[name]
            if not entry.undone:
                self._write({"id": name, "undone": now()})
                self._entries[name] = replace(entry, undone=True)

    def mark_healed(self, name: str, observation: Mapping[str, Any]) -> None:
        """Close an entry: a witness saw the system without it."""
        with self._lock:
            entry = self._entries[name]
            if entry.healed is None:
                self._write({"id": name, "healed": dict(observation), "t": now()})
                self._entries[name] = replace(entry, undone=True, healed=dict(observation))

    def entry(self, name: str) -> UndoEntry:
        with self._lock:
            return self._entries[name]

    def open_entries(self, *, faults_only: bool = False) -> list[UndoEntry]:
        """Entries without an observed heal, newest first."""
        with self._lock:
            entries = [
                entry
                for entry in self._entries.values()
                if entry.healed is None and (entry.is_fault or not faults_only)
            ]
        return entries[::-1]

    def _write(self, record: Mapping[str, Any]) -> None:
        append_line(self.path, json.dumps(record, separators=(",", ":")).encode())


def read_ledger(path: Path) -> list[UndoEntry]:
    """Read all entries in the order in which they were added; a torn last line is ignored.

    Raises:
        RunFolderError: A line is no entry: what it stands for could stay undone unseen.
    """
    entries: dict[str, UndoEntry] = {}
    if not path.exists():
        return []
    for number, line in enumerate(read_file(path).splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        record = _record(line)
        if record is None:
            raise RunFolderError(
                f"{path}: line {number} is no entry of an undo ledger: take it out, if the others "
                "are the run's own"
            )
        name = record["id"]
        if "call" in record:
            entries[name] = UndoEntry(name, record["call"], record["args"], record["fid"])
        elif name in entries and "healed" in record:
            entries[name] = replace(entries[name], undone=True, healed=record["healed"])
        elif name in entries:
            entries[name] = replace(entries[name], undone=True)
    return list(entries.values())


def _record(line: bytes) -> dict[str, Any] | None:
    """Return a line of the ledger; ``None`` if it is none."""
    try:
        found = parsed(line)
    except ValueError:
        return None
    types: dict[str, type] = {"id": str, "call": str, "args": dict, "fid": str, "healed": dict}
    if not isinstance(found, dict):
        return None
    needed = ("id", "args", "fid") if "call" in found else ("id",)
    has_all = all(name in found for name in needed)
    is_typed = all(isinstance(found[name], kind) for name, kind in types.items() if name in found)
    return found if has_all and is_typed else None


def _cut_torn_line(path: Path) -> None:
    """Remove a torn last line, so that the next entry does not become part of it."""
    if not path.exists():
        return
    data = read_file(path)
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())

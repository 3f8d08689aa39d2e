"""The run directory: records of an init for commands run by exec, and their orders to it.

    child.json      the child that runs, with its init; written before the child becomes the command
    hold            while it exists no child is started; holds JSON: by whom, when, until when
    pause           of a stopped child: which one, and when it is to be continued
    signals.jsonl   signals on their way to the child, each written before it was sent
    stops.jsonl     the child was stopped or continued, as its parent saw it
    deaths.jsonl    how children ended: wait status, and which recorded signal fits it
    init.lock       one init writes here at a time

The directory outlives the container (an emptyDir), so a record is read after the restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, Final

from failback.common.files import append_line
from failback.init.processes import Identity, Stamp

DEFAULT_RUN_DIR: Final = "/run/failback"
_SENT_KEPT: Final = 8

Record = dict[str, Any]


class RunDirectory:
    """One run directory. Nothing in it is changed but by whole files and whole lines."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.hold_file = os.path.join(path, "hold")
        self._child_file = os.path.join(path, "child.json")
        self._pause_file = os.path.join(path, "pause")
        self._lock: int | None = None

    @classmethod
    def of_environment(cls) -> RunDirectory:
        """Return the directory that ``FAILBACK_RUN_DIR`` names."""
        return cls(os.environ.get("FAILBACK_RUN_DIR") or DEFAULT_RUN_DIR)

    def claim(self) -> str | None:
        """Become its writer; return why that is impossible, or ``None``.

        The lock goes with the process. A second init in one container (an exec) must not
        take the first one's child out of the records.
        """
        try:
            os.makedirs(self.path, exist_ok=True)
            lock = os.open(os.path.join(self.path, "init.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return f"{self.path} belongs to another failback-init"
        self._lock = lock
        return None

    # --- the child ---------------------------------------------------------------------------

    def set_child(self, record: Record) -> None:
        self._write(self._child_file, record)

    def child(self) -> Record | None:
        """Return the record of the newest child, whether it lives or not."""
        return self._read(self._child_file)

    # --- the hold ----------------------------------------------------------------------------

    def held(self) -> bool:
        """Whether there is a hold whose time is not over. One without a limit never ends."""
        return os.path.exists(self.hold_file) and not _is_over(self._read(self.hold_file) or {})

    def hold_record(self) -> Record | None:
        """Return the record of a hold; an empty one for a hold file that is no JSON of ours."""
        return (self._read(self.hold_file) or {}) if self.held() else None

    def hold(self, by: str, seconds: float | None = None) -> None:
        """Keep the child down from now on, at most ``seconds``. A second hold changes nothing."""
        if not self.held():
            self._write(self.hold_file, {"by": by, **Stamp.now()._asdict(), **_until(seconds)})

    def pause(self, process: Identity, seconds: float) -> None:
        """Let a stop of ``process`` end after ``seconds``. Called before it is stopped."""
        now = Stamp.now()._asdict()
        self._write(self._pause_file, {**process._asdict(), **now, **_until(seconds)})

    def pause_is_over(self, process: Identity) -> bool:
        """Whether ``process`` was stopped for a time that is over now."""
        record = self._read(self._pause_file) or {}
        return (record.get("pid"), record.get("ticks")) == process and _is_over(record)

    def end_pause(self) -> None:
        """Forget a pause: its process runs again."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._pause_file)

    def renew(self, seconds: float) -> bool:
        """Let a hold and a pause that have a limit end after ``seconds``; tell whether any has."""
        found = False
        for file in (self.hold_file, self._pause_file):
            record = self._read(file)
            if record is not None and "until_mono_ns" in record and not _is_over(record):
                self._write(file, {**record, **Stamp.now()._asdict(), **_until(seconds)})
                found = True
        return found

    def release(self) -> bool:
        """End the hold; tell whether there was one."""
        try:
            os.unlink(self.hold_file)
        except FileNotFoundError:
            return False
        return True

    # --- what happened -----------------------------------------------------------------------

    def signal_sent(self, process: Identity, signum: int, by: Record) -> None:
        """Note a signal. Called before it is sent: a death by it then always finds its cause."""
        note = {**process._asdict(), "signum": signum, **by, **Stamp.now()._asdict()}
        self._append("signals.jsonl", note)

    def stopped(self, process: Identity, wstatus: int, seen: Stamp) -> None:
        note: Record = {**process._asdict(), "wstatus": wstatus}
        stopping = os.WIFSTOPPED(wstatus)
        note["event"] = "stopped" if stopping else "continued"
        note["signal"] = os.WSTOPSIG(wstatus) if stopping else None
        self._append("stops.jsonl", {**note, **seen._asdict()})

    def died(
        self, process: Identity, wstatus: int, started: Stamp, seen: Stamp, command: list[str]
    ) -> None:
        """Keep how a child ended. Only its parent ever learns it."""
        signalled = os.WIFSIGNALED(wstatus)
        signum = os.WTERMSIG(wstatus) if signalled else None
        sent = [
            note
            for note in self.lines("signals.jsonl")
            if (note.get("pid"), note.get("ticks")) == process
        ][-_SENT_KEPT:]
        fitting = [note for note in sent if signum in (None, note["signum"])]
        record: Record = {
            "n": len(self.lines("deaths.jsonl")) + 1,
            "pod": os.environ.get("POD_NAME", ""),
            **process._asdict(),
            "wstatus": wstatus,
            "signal": signum,
            "code": None if signalled else os.WEXITSTATUS(wstatus),
            "core": signalled and os.WCOREDUMP(wstatus),
            **seen._asdict(),
            "started": started._asdict(),
            "sent_by": fitting[-1] if fitting else None,
            "sent": sent,
            "command": command,
        }
        self._append("deaths.jsonl", record)

    def lines(self, name: str) -> list[Record]:
        """Return the records of one of the files; a torn last line is left out."""
        try:
            with open(os.path.join(self.path, name), encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("}\n")]
        except FileNotFoundError:
            return []

    # --- files -------------------------------------------------------------------------------

    def _append(self, name: str, record: Record) -> None:
        line = json.dumps(record, separators=(",", ":")).encode()
        append_line(os.path.join(self.path, name), line)

    def _write(self, path: str, record: Record) -> None:
        """Replace a file whole: a reader sees the old one or the new one."""
        temporary = f"{path}.{os.getpid()}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def _read(self, path: str) -> Record | None:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return None
        return found if isinstance(found, dict) else None


def _until(seconds: float | None) -> Record:
    if seconds is None:
        return {}
    return {"until_mono_ns": Stamp.now().mono_ns + round(seconds * 1e9)}


def _is_over(record: Record) -> bool:
    """Whether the time of a record is over. The clock begins again with the machine."""
    until, since = record.get("until_mono_ns"), record.get("mono_ns")
    if not isinstance(until, int):
        return False
    now = Stamp.now().mono_ns
    return now >= until or (isinstance(since, int) and now < since)

"""The run folder of an observation: ``run.json`` and a log of looks.

An observer that is stopped or killed leaves a folder that another one continues. A report can be
made of it at any time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from failback.analytics.errors import ReportInputError
from failback.analytics.observe.looks import Damaged, Look, Writer, ignore, looks_of
from failback.analytics.observe.thinning import Span, thinned
from failback.analytics.run.documents import OBSERVED, read_run
from failback.analytics.run.run_folder import unplanned_run
from failback.client.remoting.guarded.access import ClusterAccess
from failback.common.files import append_line, check_regular, open_file, sync_folder
from failback.common.replacing import replace_file
from failback.common.text import why
from failback.init.processes import boot_id, identity_of, process_space
from failback.protocol.errors import ConfigError

LOOKS: Final = "looks.jsonl"
_HALF: Final = "looks.half"
LARGE_BYTES: Final = 32 << 20
"""Looks are thinned when the file has this size, and has doubled since the last time."""
_SETTINGS: Final = "observed"
_CLOCK: Final = "clock"
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return the reading of the clock of looks.

    This clock cannot be set, and it goes on while the machine sleeps. It begins again with the
    machine.
    """
    return time.clock_gettime(_BOOT_CLOCK)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of an observation."""

    run: str
    name_servers: tuple[str, ...]
    every: float
    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    """``max_duplicates`` (``N`` or ``P%``) and ``max_rto`` (seconds), where there are any."""
    access: ClusterAccess | None = None
    """Keys and TLS of a guarded cluster."""
    cluster_options: tuple[str, ...] = ()
    """Options that name the cluster, as they were typed, for the commands that are printed."""
    trace: tuple[str, ...] = ()
    """Topics with a message trace that are read beside the looks."""
    asks_clients: bool = False
    """Whether members of groups are asked what they hold."""
    canary: bool = False
    """Whether an own topic and own groups are made on each pair."""
    keep_canary: bool = False
    """Whether they are left at the end."""


def is_observed(run: Mapping[str, Any]) -> bool:
    """Whether a run (``run.json``) was observed, not made."""
    return run.get("source") == OBSERVED


def looks_in(folder: Path, damaged: Damaged = ignore) -> Iterator[Look]:
    """Yield the looks of an observation, the oldest first. ``damaged`` takes unreadable lines.

    Raises:
        ReportInputError: They can't be read.
    """
    try:
        with open_file(folder / LOOKS) as lines:
            yield from looks_of(lines, damaged)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ReportInputError(why(error), folder / LOOKS) from error


class Folder:
    """Writes an observation, one observer at a time."""

    def __init__(self, path: Path, run: dict[str, Any], last: float) -> None:
        """``last``: the end of the last look in the folder, 0 without one."""
        self.path = path
        self.run = run
        self._writer = Writer()
        self._lock = _locked(path)
        self._size = self._small = 0
        """Bytes of looks now, and after they were thinned last."""
        self._thinned = 0
        """Bytes of looks that the thinned ones replace."""
        # After a start of the machine, run zero follows from the wall clock. If that was set back,
        # the last look decides, so that times never run backwards.
        self.zero = seconds() - max(_passed(run), last)

    @classmethod
    def open(cls, path: Path, wanted: Wanted) -> Folder:
        """Begin an observation, or continue the one in the folder.

        Raises:
            ConfigError: The folder has other files, or an observation with other settings.
            ReportInputError: The looks in the folder cannot be read.
            OSError: The folder can't be written.
        """
        document = path / "run.json"
        if not document.exists() and not document.is_symlink():
            if path.is_dir() and any(path.iterdir()):
                raise ConfigError("--out", f"{path} has files that are no run: name a new folder")
            run = _document(wanted)
            path.mkdir(parents=True, exist_ok=True)
            _write(document, run)
            return cls(path, run, 0.0)
        try:
            run = read_run(document).written
        except ReportInputError as error:
            raise ConfigError("--out", str(error)) from error
        if not is_observed(run):
            raise ConfigError("--out", f"{path} is a run that was not observed: name a new folder")
        for name, now in _about(wanted).items():
            then = run[_SETTINGS].get(name)
            if then != now:
                told = ", ".join(then) or "all"
                raise ConfigError(
                    f"--{name.replace('_', '-').rstrip('s')}",
                    f"{path} was about {told}: name the same, or a new folder in --out",
                )
        settings = {"limits": dict(wanted.limits), "trace": list(wanted.trace)}
        changed = {name: now for name, now in settings.items() if now != run[_SETTINGS].get(name)}
        if any(changed.values()):
            run[_SETTINGS].update({name: now for name, now in changed.items() if now})
            _write(document, run)
        last = max((look.ended for look in looks_in(path)), default=0.0)
        return cls(path, run, last)

    def discard_if_unused(self) -> None:
        """Remove a folder without a look. The next observer may have other settings."""
        if {each.name for each in self.path.iterdir()} <= {"run.json", "lock"}:
            for name in ("run.json", "lock"):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    def close(self) -> None:
        """Unlock the folder for another observer."""
        (self.path / _HALF).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
        os.close(self._lock)

    def add(self, look: Look) -> None:
        """Add a look, and wait until it is on the disk.

        Raises:
            OSError: The disk refused the look. A later one may be added.
        """
        try:
            append_line(self.path / LOOKS, self._writer.line(look))
            self._size = (self.path / LOOKS).stat().st_size
        except OSError:
            self._writer = Writer()  # readers lack this look: the next one must have whole tables
            raise

    @property
    def is_large(self) -> bool:
        """Whether it is time to thin its looks."""
        return self._size >= max(LARGE_BYTES, 2 * self._small)

    def thin(self, busy: Sequence[Span], now: float) -> None:
        """Write the looks that are kept to a second file. Looks may be added meanwhile.

        Args:
            busy: As :func:`thinned` takes it.
            now: Seconds after run zero.

        Raises:
            OSError: The disk refused. The looks are unchanged.
        """
        self._thinned = self._small = self._size
        writer = Writer()
        with (self.path / LOOKS).open("rb") as lines, (self.path / _HALF).open("wb") as half:
            for look in thinned(looks_of(_until(lines, self._thinned), _keep_all), busy, now):
                half.write(writer.line(look) + b"\n")

    def take_thinned(self) -> None:
        """Replace the looks by the thinned ones and those that were added since.

        Raises:
            OSError: The disk refused. The looks are unchanged.
        """
        looks, half = self.path / LOOKS, self.path / _HALF
        with looks.open("rb") as lines, half.open("ab") as kept:
            self._small = kept.tell()
            lines.seek(self._thinned)
            shutil.copyfileobj(lines, kept)
            self._size = kept.tell()
            kept.flush()
            os.fsync(kept.fileno())
        half.replace(looks)
        sync_folder(self.path)


def _until(lines: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines of the first ``size`` bytes."""
    while lines.tell() < size and (line := lines.readline()):
        yield line


def _keep_all(problem: str) -> None:
    """Refuse to thin looks with an unreadable line, which a report has to name."""
    raise OSError(errno.EIO, problem)


def _passed(run: Mapping[str, Any]) -> float:
    """Return seconds since run zero, by the wall clock if the machine was started since."""
    begun = (run.get(_SETTINGS) or {}).get(_CLOCK)
    if begun is not None and begun["boot"] == boot_id():
        return seconds() - float(begun["seconds"])
    return time.time() - float(run["zero"]["wall_ns"]) / 1e9


def _locked(path: Path) -> int:
    """Return a descriptor with the folder's lock. The lock ends with the process."""
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        check_regular(descriptor, path / "lock")
    except OSError:
        os.close(descriptor)
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        problem = f"another observer writes to {path}: end it, or name another folder"
        raise ConfigError("--out", problem) from error
    holder = identity_of(os.getpid())
    if holder is not None:  # readers of the folder see by it that the observation goes on
        note = {**holder._asdict(), "space": process_space()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
    return descriptor


def _write(path: Path, run: dict[str, Any]) -> None:
    replace_file(path, json.dumps(run, indent=1).encode() + b"\n")


def _about(wanted: Wanted) -> dict[str, list[str]]:
    return {"groups": sorted(wanted.groups), "topics": sorted(wanted.topics)}


def _document(wanted: Wanted) -> dict[str, Any]:
    settings = {
        "name_servers": list(wanted.name_servers),
        "every": wanted.every,
        "limits": dict(wanted.limits),
        "trace": list(wanted.trace),
        **_about(wanted),
    }
    if boot := boot_id():
        settings[_CLOCK] = {"boot": boot, "seconds": seconds()}
    return unplanned_run(
        wanted.run,
        OBSERVED,
        wall_ns=time.time_ns(),
        mono_ns=0,
        warmup_end_ns=0,  # traces from before the observation are in no figure
        **{_SETTINGS: settings},
    )


def settings_of(run: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the groups and the topics of an observation; an empty set means all."""
    found = run.get(_SETTINGS) or {}
    return frozenset(found.get("groups") or ()), frozenset(found.get("topics") or ())

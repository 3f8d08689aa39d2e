"""CPU time and memory of this process and of everything below it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS: Final = 0.2


class _Key(NamedTuple):
    """A process, however often its number is given again."""

    pid: int
    started: int


@dataclass(slots=True)
class _Process:
    """What was last seen of one process, in ticks of the clock."""

    parent: _Key | None
    own: float
    waited: int
    """What its ended children used, as far as it waited for them."""
    waited_at_first: int


class CpuMeter:
    """Seconds of CPU that this process and all its descendants used since it was entered.

    The kernel adds what an ended process used to its parent only if the parent waits for it. One
    that ignores SIGCHLD does not, and the daemon of Spark's Python workers is one: what a worker
    had used is then nowhere. So this looks at every process a few times a second and keeps what
    it last saw of those that are gone; what lived between two looks counts if it was waited for.
    Source: proc(5), ``/proc/pid/stat``; wait(2), "ERRORS", of SIGCHLD set to SIG_IGN.
    """

    def __init__(self) -> None:
        self._seen: dict[_Key, _Process] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_on, name="cpu-meter", daemon=True)
        self._at_first = 0.0

    def __enter__(self) -> Self:
        self._at_first = self._look()
        self._watch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._watch.join()

    def seconds(self) -> float:
        """User and system time so far; also after the end."""
        return (self._look() - self._at_first) / _TICKS_PER_SECOND

    def _look_on(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> float:
        """Take notice of all living processes; ticks of the whole tree, ended ones included."""
        with self._lock:
            living = _living()
            keys = {key.pid: key for key in living}
            for key, (parent, own, waited) in living.items():
                before = self._seen.get(key)
                at_first = before.waited_at_first if before else waited
                above = keys.get(parent) if key.pid != os.getpid() else None
                self._seen[key] = _Process(above, own, waited, at_first)
            return self._total(living.keys() & self._seen.keys())

    def _total(self, living: set[_Key]) -> float:
        below: dict[_Key | None, list[_Key]] = {}
        for key, process in self._seen.items():
            below.setdefault(process.parent, []).append(key)

        def total(key: _Key) -> float:
            process, children = self._seen[key], below.get(key, [])
            ended = sum(total(child) for child in children if child not in living)
            waited = max(process.waited - process.waited_at_first, ended)
            alive = sum(total(child) for child in children if child in living)
            return process.own + process.waited_at_first + waited + alive

        return sum(total(key) for key in below[None])


def peak_mib() -> int:
    """The most memory that this process or a living descendant had, in MiB."""
    peaks = [0]
    for key in _living():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{key.pid}/status").read_text().splitlines()
            peaks += [int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")]
    return max(peaks)


def _living() -> dict[_Key, tuple[int, float, int]]:
    """This process and its descendants: the parent's number, ticks of its own, ticks waited for."""
    found: dict[int, tuple[_Key, tuple[int, float, int]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                waited = int(stat[13]) + int(stat[14])
                pid = int(entry.name)
                own: float = int(stat[11]) + int(stat[12])
                if pid == os.getpid():  # known more exactly than in hundredths of a second
                    own = time.process_time() * _TICKS_PER_SECOND
                found[pid] = _Key(pid, int(stat[19])), (int(stat[1]), own, waited)
    mine = {os.getpid()}
    while more := {pid for pid, (_, (up, *_rest)) in found.items() if up in mine} - mine:
        mine |= more
    return dict(found[pid] for pid in mine)

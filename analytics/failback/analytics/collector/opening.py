"""Opens runs: says when they began, and moves the segments that waited for it into the tables.

Killed anywhere, the mark ``opened`` stands and the files that are left wait; the next start moves
them, because ``fsck`` does.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from failback.analytics.lake.catalogue import Catalogue, RunState
from failback.analytics.lake.layout import documented_zero, first_row_ns, settle, settled_name
from failback.analytics.lake.store import LakeStore
from failback.analytics.web.problems import Problem
from failback.client.consumelog.upload.layout import OPENED, day_of
from failback.client.consumelog.upload.run_days import opened_note
from failback.common.replacing import place

logger = logging.getLogger(__name__)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(slots=True)
class Opener:
    """Opens the runs of one collector."""

    lake: LakeStore
    catalogue: Catalogue
    incoming: Path
    state: Callable[[str], RunState]
    lock: Callable[[str], threading.RLock]
    publish: Callable[[str, str], None]
    """Copies a mark to a lake that is not on this disk."""
    _waiting: dict[str, int] = field(default_factory=dict)
    """Runs that are not open, and when that was noticed, Unix ms."""

    def note(self, run: str, now_ms: int) -> None:
        """A file of the run waits."""
        self._waiting.setdefault(run, now_ms)

    def forget(self, run: str) -> None:
        """Nothing of the run waits any more."""
        self._waiting.pop(run, None)

    def open(self, run: str, zero_wall_ns: int) -> str:
        """Say when a run began, unless that is known; returns its date.

        Raises:
            Problem: No calendar has the instant, the run was deleted, or the disk failed.
        """
        if day_of(zero_wall_ns) is None:
            raise Problem("bad-request", f"zero_wall_ns: {zero_wall_ns} is no time, ns since 1970")
        with self.lock(run), disk_problems():
            state = self.state(run)
            if state.expired:
                raise Problem("run-expired", f"run {run} was deleted by retention")
            if state.day is None:
                mark = self.catalogue.mark(run, OPENED)
                place(opened_note(zero_wall_ns), self.incoming / uuid.uuid4().hex, mark)
                self.publish(run, OPENED)
                state.day = self.catalogue.day(run)
            assert state.day is not None
            if state.waits:
                self.publish(run, OPENED)  # again, after a kill right before the first time
                settle(self.lake, run, state.day)
                moved = [
                    msgspec.structs.replace(entry, path=settled_name(entry.path, state.day))
                    for entry in self.catalogue.entries(run)
                ]
                self.catalogue.replace(run, moved)
                state.waits = False
            self.forget(run)
            return state.day

    def open_due(self, long_ago_ms: int) -> list[str]:
        """Open the runs of which ``run.json`` is there, or that have waited since ``long_ago_ms``.

        Returns their names.
        """
        opened = []
        for run, since_ms in list(self._waiting.items()):
            zero = documented_zero(self.lake, run)
            if zero is not None:
                self.open(run, zero)
            elif since_ms <= long_ago_ms:
                self.open_by_rows(run)
            else:
                continue
            opened.append(run)
        return opened

    def open_by_rows(self, run: str) -> None:
        """Open a run by its first row, as nobody says when it began."""
        first = first_row_ns(self.lake, [entry.path for entry in self.catalogue.entries(run)])
        self.open(run, first if first is not None and day_of(first) is not None else 0)


@contextmanager
def disk_problems() -> Iterator[None]:
    """What the disk raises, as an answer."""
    try:
        yield
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in _FULL:
            raise Problem("store-full", what, retry_after_seconds=30) from error
        logger.exception("the disk failed")
        raise Problem("store-failed", what, retry_after_seconds=30) from error

"""Whether a run goes on, from the note in its folder's lock file: the lock itself is not tried.

Holding it for an instant could refuse the run its own folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from failback.common.files import read_object
from failback.init.processes import DEAD_STATES, Identity, process_space, state_of

QUIET_SECONDS: Final = 60.0
"""A run writes several times a second; its files may be cached by the machine that it is on."""
_WRITTEN: Final = ("", "hot", "logs")


def is_held(folder: Path) -> bool:
    """Whether the process lives that the lock of ``folder`` names.

    A process of another machine or container cannot be looked up here: then the run goes on for as
    long as its files change.
    """
    try:
        note = read_object(folder / "lock")
        holder = Identity(int(note["pid"]), int(note["ticks"]))
        here = process_space()
        if note.get("space", here) != here:
            return time.time() - max(_changes(folder), default=0.0) < QUIET_SECONDS
        return state_of(holder) not in (None, *DEAD_STATES)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False


def _changes(folder: Path) -> Iterator[float]:
    """Unix times."""
    for name in _WRITTEN:
        try:
            with os.scandir(folder / name) as entries:
                yield from (each.stat().st_mtime for each in entries if each.is_file())
        except OSError:  # not made yet, or deleted meanwhile
            continue

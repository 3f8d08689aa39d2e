"""The list of runs. A program that polls it costs a busy collector nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from failback.analytics.collector.run_documents import RunDocument, RunPage
from failback.analytics.lake.catalogue import CHANGED, CLOSED, EXPIRED, Catalogue, RunState

_MARKS: Final = (CLOSED, CHANGED, EXPIRED)
_Stamp = tuple[tuple[int, int] | None, ...]


class Listing:
    """Runs as documents. One that is not in memory is read without taking the place of another
    there, and only when its files have changed. Thread-safe."""

    def __init__(self, catalogue: Catalogue, in_memory: Callable[[str], RunState | None]) -> None:
        self._catalogue = catalogue
        self._in_memory = in_memory
        self._read: dict[str, tuple[_Stamp, RunDocument | None]] = {}

    def page(self, cursor: str, limit: int) -> RunPage:
        """At most ``limit`` runs behind ``cursor``, by name."""
        everything = self._catalogue.runs()
        if not cursor:
            self._forget(set(everything))
        names = [run for run in everything if run > cursor]
        found = [each for run in names[:limit] if (each := self._document(run)) is not None]
        return RunPage(runs=found, next=names[limit - 1] if len(names) > limit else None)

    def _document(self, run: str) -> RunDocument | None:
        state = self._in_memory(run)
        if state is not None:
            return RunDocument.of(state)
        stamp = self._stamp(run)  # before it is read: what changes meanwhile is read once more
        known = self._read.get(run)
        if known is None or known[0] != stamp:
            state = self._catalogue.load(run)
            known = self._read[run] = (stamp, RunDocument.of(state))
        return known[1]

    def _stamp(self, run: str) -> _Stamp:
        catalogue = self._catalogue
        paths = (catalogue.file(run), *(catalogue.mark(run, kind) for kind in _MARKS))
        return tuple(map(_changed, paths))

    def _forget(self, runs: set[str]) -> None:
        for run in self._read.keys() - runs:
            self._read.pop(run, None)


def _changed(path: os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

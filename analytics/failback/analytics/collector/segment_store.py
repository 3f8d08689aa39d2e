"""The disk side of the collector. Every method may be called from any thread, and may block.

A segment is written to ``incoming/``, synced, renamed into the lake, its folder synced, and then
gets its line in the catalogue; only then it is answered. In an object store one PUT takes the
place of the first steps; the catalogue is kept on the disk, and copied there when a run closes.
Segments of a run that is not open wait outside of the tables, and are moved in when it is opened:
by a request, by ``run.json`` in the lake, when it is closed, or when it has waited for long enough.
Killed anywhere, the next start finds either nothing but a file in ``incoming/``, which it deletes,
or a lake file without a line, which ``fsck`` adds. No answer said that such a segment is stored, so
its shipper sends it again and receives the answer that it is known.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import threading
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.collector.decode import Decoded, decode, unpacked_bytes
from failback.analytics.collector.opening import Opener, disk_problems
from failback.analytics.collector.pressure import MemoryGate
from failback.analytics.collector.run_documents import ProcessPage, RunDocument, RunPage
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.lake.catalogue import CHANGED, CLOSED, EXPIRED, FOLDER, Catalogue, RunState
from failback.analytics.lake.fsck import check_run, entry_of
from failback.analytics.lake.layout import put_guard, run_partitions, runs, settled_name
from failback.analytics.lake.segment_ids import UPLOAD_KEY, SegmentId
from failback.analytics.lake.store import open_store
from failback.analytics.web.problems import Problem
from failback.client.consumelog.upload.lake_files import lake_rows, parquet_bytes
from failback.client.consumelog.upload.layout import DOCUMENTS, OPENED
from failback.common.files import sync_folder
from failback.common.replacing import place

logger = logging.getLogger(__name__)

STORED: Final = "stored"
KNOWN: Final = "known"
_LOCKS: Final = 64
_RUNS_IN_MEMORY: Final = 1024
_LISTED_SEGMENTS: Final = 5_000
_Stamp = tuple[tuple[int, int] | None, ...]


class Store:
    """The lake of one collector."""

    def __init__(self, settings: CollectorSettings, wall_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._wall_ms = wall_ms
        self.incoming = settings.root / "incoming"
        self.quarantine = settings.root / "quarantine"
        here = settings.root / "lake"
        for folder in (here, self.incoming, self.quarantine):
            folder.mkdir(parents=True, exist_ok=True)
        self.lake = open_store(settings.lake or here, scratch=self.incoming)
        self.catalogue = Catalogue(here)
        self._runs: OrderedDict[str, RunState] = OrderedDict()
        self.listing = Listing(self.catalogue, self._runs.get)
        self._runs_lock = threading.Lock()
        self._segment_locks = [threading.Lock() for _ in range(_LOCKS)]
        self._run_locks = [threading.RLock() for _ in range(_LOCKS)]
        self._memory = MemoryGate(settings.limits.decoded_bytes)
        self._bytes = 0
        self.opener = Opener(
            self.lake, self.catalogue, self.incoming, self._state, self._run_lock, self._publish
        )

    def recover(self) -> None:
        """Put right what a kill left behind. Call once, before the first request."""
        for path in self.incoming.iterdir():
            path.unlink()
        self._fetch_catalogue()
        put_guard(self.lake)
        for run in sorted({*runs(self.lake), *self.catalogue.runs()}):
            if self.catalogue.mark(run, EXPIRED).exists():
                self._delete_files(run)
                continue
            found = check_run(self.lake, self.catalogue, run, self._wall_ms())
            if (found.added or found.vanished) and self.catalogue.mark(run, CLOSED).exists():
                self._publish(run)
            state = self._state(run)
            self._bytes += state.bytes
            if state.waits:
                self.opener.note(run, self._wall_ms())

    @property
    def stored_bytes(self) -> int:
        """Bytes of the files in the lake."""
        return self._bytes

    def free_bytes(self) -> int:
        """Free space of the file system that the lake is on."""
        return shutil.disk_usage(self.incoming).free

    def check_room(self) -> None:
        """Raise ``Problem`` when nothing more may be stored."""
        least, most = self._settings.min_free_bytes, self._settings.max_store_bytes
        if self.free_bytes() < least:
            what = f"less than {least} bytes are free"
        elif most is not None and self._bytes >= most:
            what = f"the lake holds {self._bytes} bytes, at most {most} it may"
        else:
            return
        raise Problem("store-full", what, retry_after_seconds=30)

    def commit(self, named: SegmentId, body: bytes, sha256: str) -> str:
        """Store a segment whose body has this hash. Returns ``STORED`` or ``KNOWN``.

        Raises:
            Problem: It is not stored, and why.
        """
        with self._segment_locks[zlib.crc32(str(named).encode()) % _LOCKS]:
            if self._is_known(named, body, sha256):
                return KNOWN
            with (
                disk_problems(),
                self._memory.holding(unpacked_bytes(body) + 2 * len(body)),
            ):
                decoded = decode(named, body, sha256, self._settings.limits)
                self._write(named, decoded, sha256)
            return STORED

    def stored_of(self, run: str, proc: str, from_index: int = 0) -> dict[str, Any]:
        """What is stored of one process, the newest segments of it by name."""
        state = self._state(run)
        number = state.number_of(proc)
        segments = [
            {"id": entry.id, "sha256": entry.sha256}
            for entry in (self.catalogue.entries(run) if number is not None else ())
            if entry.proc == proc and entry.index >= from_index
        ]
        known = state.procs[number] if number is not None else None
        return {
            "run": run,
            "proc": proc,
            "proc_no": number,
            "next_index": known.next_index if known else 0,
            "records": known.records if known else 0,
            "last_seq": known.last_seq if known else 0,
            "segments": segments[-_LISTED_SEGMENTS:],
        }

    def describe(self, run: str) -> RunDocument | None:
        """A run in a few numbers; ``None`` if there is nothing of it."""
        return RunDocument.of(self._state(run))

    def procs_of(self, run: str, cursor: int, limit: int) -> ProcessPage | None:
        """At most ``limit`` processes of a run with numbers above ``cursor``."""
        return ProcessPage.of(self._state(run), cursor, limit)

    def describe_store(self) -> dict[str, Any]:
        """Where the lake is, how full, and why nothing is taken if that is so."""
        try:
            self.check_room()
            refused = None
        except Problem as problem:
            refused = problem.detail
        return {
            "lake": str(self._settings.lake or (self._settings.root / "lake").absolute()),
            "stored_bytes": self._bytes,
            "free_bytes": self.free_bytes(),
            "refuses": refused,
        }

    def note_backlog(self, named: SegmentId, count: int) -> None:
        """Keep what a shipper says that it still has to send."""
        state = self._state(named.run)
        number = state.number_of(named.proc)
        if number is not None:
            state.procs[number].backlog_bytes = count
            state.procs[number].heard_ms = self._wall_ms()

    def backlogs(self) -> dict[str, int]:
        """What the shippers of the runs in memory still had to send, by run."""
        with self._runs_lock:
            states = list(self._runs.values())
        return {
            state.run: sum(each.backlog_bytes for each in list(state.procs.values()))
            for state in states
            if state.segments and not state.closed and not state.expired
        }

    def close_run(self, run: str, last_seqs: dict[int, int]) -> list[dict[str, int]]:
        """Close a run if every record of it is stored; returns what is missing.

        Raises:
            Problem: Nothing is known of the run, or the disk failed.
        """
        with self._run_lock(run), disk_problems():
            state = self._state(run)
            if state.expired:
                raise Problem("run-expired", f"run {run} was deleted by retention")
            if not state.segments and not last_seqs:
                raise Problem("not-found", f"there is nothing of run {run}")
            gaps = self.catalogue.missing(run, last_seqs)
            if not gaps and not state.closed:
                if state.waits:
                    self.opener.open_by_rows(run)
                note = {"procs": {str(number): seq for number, seq in sorted(last_seqs.items())}}
                mark = self.catalogue.mark(run, CLOSED)
                self._publish(run)
                place(msgspec.json.encode(note), self.incoming / uuid.uuid4().hex, mark)
                self._publish(run, CLOSED)
                state.closed = True
            return gaps

    def open_due(self) -> list[str]:
        """Open the runs of which ``run.json`` is there, or that waited for long enough."""
        long_ago = self._wall_ms() - round(self._settings.open_after_seconds * 1000)
        return self.opener.open_due(long_ago)

    def expire(self, before_ms: int) -> list[str]:
        """Delete the runs that nothing was added to since ``before_ms``; returns their names."""
        gone = []
        for run in self.catalogue.runs():
            with self._run_lock(run):
                changed_ms = self.catalogue.file(run).stat().st_mtime_ns // 1_000_000
                if changed_ms >= before_ms:
                    continue
                state = self._state(run)
                self.catalogue.mark(run, EXPIRED).touch()
                sync_folder(self.catalogue.folder)
                if not state.expired:
                    state.expired = True
                    self._bytes -= state.bytes
            self._delete_files(run)
            logger.info("run %s had no new segment for too long and is deleted", run)
            gone.append(run)
        return gone

    # --- inside ----------------------------------------------------------------------------------

    def _is_known(self, named: SegmentId, body: bytes, sha256: str) -> bool:
        """Is it stored already? Raises ``Problem`` if with other content, or if it is too late."""
        state = self._state(named.run)
        if state.expired:
            raise Problem("run-expired", f"run {named.run} was deleted by retention")
        number = state.number_of(named.proc)
        known = None if number is None else self._stored_hash(named, number)
        if known == sha256:
            return True
        if known is not None:
            self._set_aside(named, body, sha256)
            raise Problem("other-content", f"{named} is stored with sha256 {known}")
        if state.closed:
            raise Problem("run-closed", f"run {named.run} is closed, and {named} is not in it")
        return False

    def _stored_hash(self, named: SegmentId, number: int) -> str | None:
        try:
            for name in self._places_of(named, number):
                with contextlib.suppress(FileNotFoundError), self.lake.open(name) as file:
                    metadata = pq.read_schema(file).metadata or {}
                    return str(metadata[UPLOAD_KEY.encode()].decode())
            if not self._state(named.run).closed:
                return None
            unlisted = None  # only a closed run may have been compacted into other files
        except (KeyError, OSError, pa.ArrowException):
            unlisted = "unknown"  # damaged, or another writer's: the catalogue says what it was
        listed = (each for each in self.catalogue.entries(named.run) if each.id == str(named))
        return next((each.sha256 or "unknown" for each in listed), unlisted)

    def _places_of(self, named: SegmentId, number: int) -> Iterator[str]:
        """Where the segment may lie. One that waits is asked for before the run's day is read: the
        run may be opened meanwhile."""
        state = self._state(named.run)
        if state.waits or state.day is None:
            yield named.path(number, None)
        if state.day is not None:
            yield named.path(number, state.day)

    def _write(self, named: SegmentId, decoded: Decoded, sha256: str) -> None:
        note = decoded.note
        data = parquet_bytes(lake_rows(decoded.table, named.table))
        name = named.path(note.proc_no, self._state(named.run).day)
        self._claim(named, note.proc_no)
        self.lake.write(name, data)
        with self._run_lock(named.run):
            state = self._state(named.run)
            try:
                if settled_name(name, state.day) != name:  # it was opened meanwhile
                    self.lake.move(name, settled_name(name, state.day))
                    name = settled_name(name, state.day)
                entry = entry_of(named.table, name, data.size, note, sha256, self._wall_ms())
                if state.expired or state.closed:
                    raise Problem("run-closed", f"run {named.run} was closed meanwhile")
                self.catalogue.append(named.run, entry)
            except BaseException:
                self.lake.delete(name)  # no shipper got the answer that it is stored
                raise
            state.add(entry)
            self._bytes += entry.bytes
            if state.waits:
                self.opener.note(named.run, self._wall_ms())

    def _claim(self, named: SegmentId, number: int) -> None:
        """Make the number the process's: it identifies deliveries of a run."""
        with self._run_lock(named.run):
            state = self._state(named.run)
            owner = state.procs.get(number)
            taken = owner is not None and owner.proc != named.proc
            other = state.number_of(named.proc)
            if taken or (other is not None and other != number):
                what = f"process number {number} of run {named.run} is not of {named.proc}"
                raise Problem("process-number-taken", what)
            state.claim(number, named.proc)

    def _set_aside(self, named: SegmentId, body: bytes, sha256: str) -> None:
        """Keep what contradicts a stored segment, and mark the run."""
        folder = self.quarantine / f"run={named.run}"
        path = folder / f"{named.proc}-{named.index:08d}-{named.table}-{sha256[:16]}"
        with self._run_lock(named.run), disk_problems():
            state = self._state(named.run)
            if path.exists():
                return
            held = sum(each.stat().st_size for each in self.quarantine.rglob("*") if each.is_file())
            kept = held + len(body) <= self._settings.quarantine_bytes
            if kept:
                if not folder.exists():
                    folder.mkdir(parents=True)
                    sync_folder(self.quarantine)
                place(body, self.incoming / uuid.uuid4().hex, path)
            name = str(path.relative_to(self._settings.root)) if kept else None
            self.catalogue.mark_changed(named.run, str(named), sha256, name)
            state.set_aside(named.proc)
            self._publish(named.run, CHANGED)
        logger.error("%s came twice, with other content; the run is marked", named)

    def _state(self, run: str) -> RunState:
        with self._runs_lock:
            state = self._runs.get(run)
            if state is not None:
                self._runs.move_to_end(run)
                return state
        with self._run_lock(run):
            state = self.catalogue.load(run)
            with self._runs_lock:
                state = self._runs.setdefault(run, state)
                self._runs.move_to_end(run)
                while len(self._runs) > _RUNS_IN_MEMORY:
                    self._runs.popitem(last=False)
            return state

    def _run_lock(self, run: str) -> threading.RLock:
        return self._run_locks[zlib.crc32(run.encode()) % _LOCKS]

    def _delete_files(self, run: str) -> None:
        """Delete a run that is marked as expired; begun again by the next start if killed."""
        self.opener.forget(run)
        for each in run_partitions(self.lake, run):
            self.lake.delete_folder(each.folder)
        self.lake.delete_folder(f"{DOCUMENTS}/run={run}")
        shutil.rmtree(self.quarantine / f"run={run}", ignore_errors=True)
        marks = (self.catalogue.mark(run, kind) for kind in (OPENED, CLOSED, CHANGED))
        for path in (*marks, self.catalogue.file(run)):
            if self.lake.folder is None:
                self.lake.delete(f"{FOLDER}/{path.name}")
            path.unlink(missing_ok=True)

    def _publish(self, run: str, kind: str | None = None) -> None:
        """Copy a run's catalogue, or a mark of it, to a lake that is not on this disk."""
        if self.lake.folder is not None:
            return
        path = self.catalogue.file(run) if kind is None else self.catalogue.mark(run, kind)
        if path.exists():
            self.lake.write(f"{FOLDER}/{path.name}", path.read_bytes())

    def _fetch_catalogue(self) -> None:
        """A collector on a new disk: what was copied to the lake, so that marks still hold."""
        if self.lake.folder is not None:
            return
        for found in self.lake.files(FOLDER, suffix=""):
            path = self.catalogue.folder / found.name.rpartition("/")[2]
            if not path.exists():
                place(self.lake.read(found.name), self.incoming / uuid.uuid4().hex, path)


class Listing:
    """The list of runs. A program that polls it costs a busy collector nothing.

    A run that is not in memory is read without taking the place of another there, and only when its
    files have changed. Thread-safe.
    """

    def __init__(self, catalogue: Catalogue, in_memory: Callable[[str], RunState | None]) -> None:
        self._catalogue = catalogue
        self._in_memory = in_memory
        self._read: dict[str, tuple[_Stamp, RunDocument | None]] = {}

    def page(self, cursor: str, limit: int) -> RunPage:
        """At most ``limit`` runs behind ``cursor``, by name."""
        everything = self._catalogue.runs()
        if not cursor:
            for run in self._read.keys() - set(everything):
                self._read.pop(run, None)
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
        marks = (self._catalogue.mark(run, kind) for kind in (CLOSED, CHANGED, EXPIRED))
        return tuple(map(_changed, (self._catalogue.file(run), *marks)))


def _changed(path: os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def sha256_of(body: bytes) -> str:
    """Hash of a whole body, hex."""
    return hashlib.sha256(body).hexdigest()

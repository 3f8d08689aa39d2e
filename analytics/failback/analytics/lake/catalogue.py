"""What the lake holds of each run: one line per segment in ``lake/_segments/run=<id>.jsonl``.

The catalogue can be made again from the files (``fsck``): a file is there before its line. A line
that a crash cut is ended by the next one and skipped by every reader. Marks stand beside it:

    opened=<id>    run zero, and so the run's date, is known (JSON)
    closed=<id>    the run is complete, and how far each process got (JSON)
    changed=<id>   a duplicate segment had other content (a JSON line for each)
    expired=<id>   the run was deleted, or is being deleted (empty)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from failback.client.consumelog.reader import missing_ranges
from failback.client.consumelog.upload.layout import MARKS, OPENED, place_of
from failback.client.consumelog.upload.run_days import day_in_note
from failback.common.files import append_line
from failback.common.replacing import place

if TYPE_CHECKING:
    from failback.analytics.lake.store import LakeStore

FOLDER: Final = MARKS
CLOSED: Final = "closed"
CHANGED: Final = "changed"
EXPIRED: Final = "expired"


def catalogue_name(run: str) -> str:
    """The name of a run's catalogue below the lake's root."""
    return f"{FOLDER}/run={run}.jsonl"


class Entry(msgspec.Struct, frozen=True):
    """One line of a catalogue."""

    id: str
    sha256: str | None
    path: str
    bytes: int
    proc: str
    proc_no: int
    index: int
    table: str
    seq_lo: int
    seq_hi: int
    rows: int
    records: int
    stored_ms: int
    host: str = ""
    role: str = ""


@dataclass(slots=True)
class ProcState:
    """What is stored of one process."""

    proc: str
    next_index: int = 0
    records: int = 0
    last_seq: int = 0
    backlog_bytes: int = 0
    """What its shipper still had to send when it was last heard of."""
    host: str = ""
    role: str = ""
    segments: int = 0
    bytes: int = 0
    deliveries: int = 0
    quarantined: int = 0
    """Duplicate segments of it with other content."""
    heard_ms: int = 0
    """When it was last heard of, Unix time."""

    @property
    def missing(self) -> int:
        """Records up to the last seq that are not stored, or not yet."""
        return max(0, self.last_seq - self.records)


@dataclass(slots=True)
class RunState:
    """What is stored of one run, kept in memory: a few numbers per process."""

    run: str
    procs: dict[int, ProcState] = field(default_factory=dict)
    segments: int = 0
    bytes: int = 0
    closed: bool = False
    changed: int = 0
    expired: bool = False
    day: str | None = None
    """The date of the run; none before it is open."""
    waits: bool = False
    """Whether some file of it waits outside of the tables."""

    def number_of(self, proc: str) -> int | None:
        return next((number for number, each in self.procs.items() if each.proc == proc), None)

    def claim(self, number: int, proc: str) -> None:
        """From now on the number is this process's."""
        self.procs.setdefault(number, ProcState(proc))

    def add(self, entry: Entry) -> None:
        state = self.procs.setdefault(entry.proc_no, ProcState(entry.proc))
        state.next_index = max(state.next_index, entry.index + 1)
        state.records += entry.records
        state.last_seq = max(state.last_seq, entry.seq_hi)
        state.host, state.role = entry.host or state.host, entry.role or state.role
        state.segments += 1
        state.bytes += entry.bytes
        state.deliveries += entry.rows if entry.table == "deliver" else 0
        state.heard_ms = max(state.heard_ms, entry.stored_ms)
        self.segments += 1
        self.bytes += entry.bytes
        place = place_of(entry.path)
        self.waits |= place is not None and place.waits

    def set_aside(self, proc: str) -> None:
        """A duplicate segment of this process had other content."""
        self.changed += 1
        number = self.number_of(proc)
        if number is not None:
            self.procs[number].quarantined += 1


class Catalogue:
    """The catalogue files of one lake. One writer; the caller holds the run's lock."""

    def __init__(self, lake: Path) -> None:
        self.folder = lake / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, run: str) -> Path:
        return self.folder / f"run={run}.jsonl"

    def mark(self, run: str, kind: str) -> Path:
        """The file of a mark: ``OPENED``, ``CLOSED``, ``CHANGED`` or ``EXPIRED``."""
        return self.folder / f"{kind}={run}"

    def runs(self) -> list[str]:
        """Runs that have a catalogue."""
        return _runs(path.name for path in self.folder.glob("run=*.jsonl"))

    def entries(self, run: str) -> Iterator[Entry]:
        """Every whole line, in the order of arrival."""
        try:
            with self.file(run).open("rb") as file:
                yield from _entries(file)
        except FileNotFoundError:
            return

    def load(self, run: str) -> RunState:
        state = RunState(run)
        for entry in self.entries(run):
            state.add(entry)
        state.day = self.day(run)
        state.closed = self.mark(run, CLOSED).exists()
        state.expired = self.mark(run, EXPIRED).exists()
        for proc in _changed_procs(self.mark(run, CHANGED)):
            state.set_aside(proc)
        return state

    def day(self, run: str) -> str | None:
        """The date of a run; none before it is open."""
        try:
            return day_in_note(self.mark(run, OPENED).read_bytes())
        except FileNotFoundError:
            return None

    def append(self, run: str, entry: Entry) -> None:
        """Add a line. Raises ``OSError``: then the line does not count."""
        append_line(self.file(run), msgspec.json.encode(entry))

    def replace(self, run: str, entries: list[Entry]) -> None:
        """Write the whole file again."""
        place(_lines(entries), self.folder / f".run={run}.tmp", self.file(run))

    def mark_changed(self, run: str, segment_id: str, sha256: str, kept: str | None) -> None:
        """Note a duplicate segment with other content; durable when this returns."""
        path = self.mark(run, CHANGED)
        note = {"id": segment_id, "sha256": sha256, "kept": kept}
        append_line(path, msgspec.json.encode(note))

    def missing(self, run: str, last_seqs: dict[int, int]) -> list[dict[str, int]]:
        """Holes of every process that is stored or named: ``proc_no, from_seq, to_seq``."""
        entries = (
            (each.proc_no, each.index, each.seq_lo, each.seq_hi, each.records)
            for each in self.entries(run)
        )
        return missing_records(entries, last_seqs)


def missing_records(
    segments: Iterable[Sequence[int]], last_seqs: Mapping[int, int]
) -> list[dict[str, int]]:
    """Holes of every process that has a segment or is named: ``proc_no, from_seq, to_seq``.

    Args:
        segments: Process, index, lowest and highest ``seq`` and count of records of each.
        last_seqs: How far the processes got.
    """
    ranges: dict[int, dict[int, tuple[int, int]]] = {number: {} for number in last_seqs}
    records = dict.fromkeys(last_seqs, 0)
    last = dict(last_seqs)
    for number, index, first, end, count in segments:
        of_proc = ranges.setdefault(number, {})
        low, high = of_proc.get(index, (first, end))
        of_proc[index] = (min(low, first), max(high, end))
        records[number] = records.get(number, 0) + count
        last[number] = max(last.get(number, 0), end)
    return [
        {"proc_no": number, "from_seq": first, "to_seq": end}
        for number in sorted(last)
        for first, end in missing_ranges(last[number], records[number], ranges[number].values())
    ]


class StoredCatalogue:
    """The catalogue as it lies in the lake; for who is not the collector."""

    def __init__(self, store: LakeStore) -> None:
        self._store = store

    def runs(self) -> list[str]:
        """Runs that have a catalogue."""
        return _runs(found.name.rpartition("/")[2] for found in self._store.files(FOLDER, ".jsonl"))

    def entries(self, run: str) -> Iterator[Entry]:
        """Every whole line."""
        try:
            lines = self._store.read(catalogue_name(run)).splitlines()
        except FileNotFoundError:
            return
        yield from _entries(lines)

    def replace(self, run: str, entries: list[Entry]) -> None:
        """Write all lines again."""
        self._store.write(catalogue_name(run), _lines(entries))


def _runs(names: Iterable[str]) -> list[str]:
    return sorted(name.removeprefix("run=").removesuffix(".jsonl") for name in names)


def _entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    decode = msgspec.json.Decoder(Entry).decode
    for line in lines:
        try:
            yield decode(line)
        except msgspec.DecodeError:
            continue  # cut by a crash; its file is found by fsck


def _lines(entries: Iterable[Entry]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


class _Changed(msgspec.Struct):
    id: str = ""


def _changed_procs(path: Path) -> list[str]:
    """The process of each line of a mark; empty for a line that a crash cut."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [_proc_of(line) for line in lines]


def _proc_of(line: bytes) -> str:
    try:
        words = msgspec.json.decode(line, type=_Changed).id.split("/")
    except msgspec.DecodeError:
        return ""
    return words[1] if len(words) == 4 else ""

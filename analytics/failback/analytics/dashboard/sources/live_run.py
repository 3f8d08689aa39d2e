"""A run that is going on: its faults, its output, and its duplicates so far.

Everything is read from its folder, a little further with each look: ``evidence.jsonl`` for the
faults, the harness's log for the phases, the hot logs for the counters. The count of repeats is the
depth of offset intervals, as in the report, but without causes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.client.consumelog.reader import payloads_of
from failback.client.consumelog.schema import TABLES, order
from failback.common.files import open_file, read_object

Json = dict[str, Any]
MOST_BYTES: Final = 8 << 20
"""Of one hot file with one look; the rest comes with the next."""
MOST_LINES: Final = 200
HISTORY: Final = 3_600
_DELIVER, _DELIVER_END, _PRODUCE, _LIFE = (
    TABLES[name].code for name in ("deliver", "deliver_end", "produce", "life")
)
_HEAD: Final = 4
_WALL: Final = 2
"""Where a record has its Unix time in ns."""
_RUN_ZERO: Final = "RUN_ZERO"
_LINE: Final = re.compile(r"^(\S+ \S+) INFO \S+ failback\.chaos\.\S+ (.*)$")


def _columns(table: str, *names: str) -> list[int]:
    known = order(table)
    return [_HEAD + known.index(name) for name in names]


_GRP, _BROKER, _TOPIC, _QID, _QOFF = _columns("deliver", "grp", "broker", "ptopic", "qid", "qoff")
(_RES,) = _columns("produce", "res")
(_STATE,) = _columns("life", "state")


class Tail:
    """The new whole lines of a text file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[bytes]:
        """Return them without their ends, about ``MOST_BYTES`` at once."""
        try:
            with open_file(self._path) as file:
                file.seek(self._at)
                data = file.read(MOST_BYTES)
                data += file.readline()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.split(b"\n")[:-1]


class HotTail:
    """The new whole records of a hot log file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._decode = msgspec.msgpack.Decoder().decode

    def records(self) -> Iterator[Sequence[Any]]:
        try:
            with open_file(self._path) as file:
                file.seek(self._at)
                data = file.read(MOST_BYTES)
        except OSError:  # sealed meanwhile
            return
        payloads, used, _ = payloads_of(data)
        self._at += used
        for payload in payloads:
            try:
                record = self._decode(payload)
            except (msgspec.DecodeError, RecursionError):
                continue
            # The first one is the head; whoever else wrote here counts for nothing.
            if isinstance(record, list) and len(record) > _HEAD and isinstance(record[0], int):
                yield record


@dataclass(slots=True)
class LiveFault:
    """One fault as far as it is known, ns after run zero."""

    fid: str
    fault: str
    victim: str
    intended_ns: int | None = None
    effect_ns: int | None = None
    heal_ns: int | None = None
    proved: bool | None = None


@dataclass(slots=True)
class Counters:
    """Messages since the start of the run."""

    acknowledged: int = 0
    failed_sends: int = 0
    delivered: int = 0
    handled: int = 0
    dup: int = 0


@dataclass(slots=True)
class LiveRun:
    """What was read of one run so far."""

    run: str
    path: Path
    document: Mapping[str, Any]
    _evidence: Tail
    _log: Tail
    faults: dict[str, LiveFault] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    history: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(Unix time in ns, acknowledged, delivered, dup), one per look: run zero may still move."""
    _seen: dict[tuple[str, str, str, int], IntervalSet] = field(default_factory=dict)
    _files: dict[Path, HotTail] = field(default_factory=dict)
    _zero_ns: int = 0
    _stamp: int = 0

    @classmethod
    def open(cls, run: str, path: Path) -> LiveRun:
        """Begin to read a run. Raises ``OSError`` or ``ValueError`` when there is no run.json."""
        document = read_object(path / "run.json")
        log = Tail(path / "logs" / "harness.log")
        live = cls(run, path, document, Tail(path / "evidence.jsonl"), log)
        for each in document.get("faults") or []:
            at = (document.get("drawn") or {}).get("at_seconds", {}).get(each["id"])
            planned = not (each.get("with") or {}).get("after")
            live.faults[each["id"]] = LiveFault(
                each["id"],
                str(each.get("fault", "")),
                _victim(each.get("target") or {}),
                intended_ns=round(at * 1e9) if at is not None and planned else None,
            )
        return live

    @property
    def phase(self) -> str:
        return self.lines[-1][1] if self.lines else "starting"

    @property
    def zero_ns(self) -> int:
        """Run zero: the harness logs it; run.json has the start until the run is closed."""
        return self._zero_ns or int((self.document.get("zero") or {}).get("wall_ns") or 0)

    def progress(self) -> Json:
        """What is known so far, for the API."""
        return {
            "phase": self.phase,
            "counters": asdict(self.counters),
            "faults": [asdict(fault) for fault in self.faults.values()],
            "lines": [{"at": at, "text": text} for at, text in self.lines[-50:]],
        }

    def look(self, now_ns: int) -> set[str]:
        """Read on; return the kinds of what is new. Blocks."""
        self._read_again()
        changed = {"counters"}
        for line in self._log.read():
            found = _LINE.match(line.decode(errors="replace"))
            if found:
                self.lines.append((found[1], found[2]))
                changed.add("phase")
        del self.lines[:-MOST_LINES]
        for line in self._evidence.read():
            with contextlib.suppress(AttributeError, TypeError, IndexError, KeyError):
                if self._take_evidence(line):  # a line that is none of ours says nothing
                    changed.add("fault")
        self._count()
        counted = self.counters
        self.history.append((now_ns, counted.acknowledged, counted.delivered, counted.dup))
        del self.history[:-HISTORY]
        return changed

    def _read_again(self) -> None:
        """run.json is rewritten when more is known."""
        try:
            stamp = (self.path / "run.json").stat().st_mtime_ns
            if stamp != self._stamp:
                self.document = read_object(self.path / "run.json")
                self._stamp = stamp
        except (OSError, ValueError):
            return

    def _take_evidence(self, line: bytes) -> bool:
        try:
            row = json.loads(line.decode(errors="replace"))
            fid = str(row["fid"])
        except (ValueError, KeyError, TypeError):
            return False
        fault = self.faults.setdefault(fid, LiveFault(fid, str(row.get("fault", "")), ""))
        observed = row.get("observed") or {}
        fault.intended_ns = row.get("intended_ns") or fault.intended_ns
        effect = observed.get("gone_ns") or observed.get("effect_ns")
        fault.effect_ns = effect or (row.get("issued_ns") or [None])[0] or fault.effect_ns
        fault.heal_ns = observed.get("healed_ns") or fault.heal_ns
        fault.proved = row.get("proved")
        named = [each.get("pod") or f"{each.get('group')}-{each.get('member')}"
                 for each in row.get("victims") or []]  # fmt: skip
        fault.victim = ", ".join(map(str, named)) or fault.victim
        return True

    def _count(self) -> None:
        offsets: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
        counted = self.counters
        for path in sorted((self.path / "hot").glob("*.fblog")):
            tail = self._files.setdefault(path, HotTail(path))
            for record in tail.records():
                if record[0] == _DELIVER:
                    key = _queue_of(record)
                    if key is not None:
                        offsets[key].append(record[_QOFF])
                elif record[0] == _LIFE and record[_STATE:][:1] == [_RUN_ZERO]:
                    self._zero_ns = int(record[_WALL])
                elif record[0] == _DELIVER_END:
                    counted.handled += 1
                elif record[0] == _PRODUCE:
                    if len(record) > _RES and str(record[_RES]).startswith("OK"):
                        counted.acknowledged += 1
                    else:
                        counted.failed_sends += 1
        for key, found in offsets.items():
            counted.delivered += len(found)
            unique = np.unique(np.array(found, np.int64))
            new = IntervalSet.of(unique, unique + 1)
            before = self._seen.get(key, IntervalSet())
            counted.dup += len(found) - len(unique) + len(before & new)
            self._seen[key] = before | new


def _queue_of(record: Sequence[Any]) -> tuple[str, str, str, int] | None:
    """Group, broker, topic and queue of a delivery; ``None`` for a row of another program."""
    if len(record) <= max(_GRP, _BROKER, _TOPIC, _QID, _QOFF):
        return None
    names = record[_GRP], record[_BROKER], record[_TOPIC]
    numbers = record[_QID], record[_QOFF]
    if not all(isinstance(each, str) for each in names):
        return None
    if not all(isinstance(each, int) and 0 <= each < 1 << 62 for each in numbers):
        return None
    return (*names, record[_QID])


def _victim(target: Mapping[str, Any]) -> str:
    if target.get("group"):
        return f"members of {target['group']}"
    return f"{target.get('role') or 'master'} of {target.get('pair') or 'a pair'}"

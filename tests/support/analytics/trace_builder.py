"""Builds what a reader of a trace topic finds: trace messages of Java clients, and traced copies.

Records are written as TraceDataEncoder of 4.9.8 does; :class:`TraceBuilder` puts their bodies into
messages and those, decoded by the code under test, into the pages of a run folder.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from failback.analytics.trace.pages import Pages, Place
from failback.analytics.trace.reading import copy_rows, record_rows
from failback.analytics.trace.run import Wanted, Written, write_run
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, format_lab_id
from failback.protocol.message import KEYS, RETRY_TOPIC, UNIQ_KEY, MessageExt
from failback.protocol.names import instance_of

START_MS = 1_700_000_000_000
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
GOLDEN = Path(__file__).parents[2] / "data" / "analytics" / "trace_bodies.txt"
PICTURES = {"\x01": "\u2401", "\x02": "\u2402"}
"""How the file of real bodies shows what separates fields and ends records."""


def golden_traces() -> dict[str, bytes]:
    """Bodies that a real client wrote, by name; the file says how they were recorded."""
    lines = [line for line in GOLDEN.read_text().splitlines() if line and line[0] != "#"]
    found = {}
    for line in lines:
        name, _, text = line.partition(" ")
        for sign, picture in PICTURES.items():
            text = text.replace(picture, sign)
        found[name] = text.encode()
    return found


def record(*fields: object) -> bytes:
    """One record of a body; ``None`` is Java's null, a flag is lower case."""
    words = ("null" if each is None else str(each) for each in fields)
    shown = (word.lower() if word in ("True", "False") else word for word in words)
    return "\x01".join(shown).encode() + b"\x02"


def pub(
    message: str,
    t: int = 0,
    *,
    topic: str = "T",
    cost: int = 1,
    success: bool = True,
    offset_id: str | None = "7F00000100002A9F0000000000000010",
) -> bytes:
    return record(
        "Pub", START_MS + t, "DefaultRegion", "pg", topic, message, "Tag", "key",
        "127.0.0.1:10911", 3, cost, 0, offset_id, success,
    )  # fmt: skip


def before(
    message: str, t: int, request: str, *, group: str = "g", rt: int = 0, keys: str | None = "key"
) -> bytes:
    return record(
        "SubBefore", START_MS + t, "DefaultRegion", group, request, message, rt, keys
    )  # fmt: skip


def after(
    message: str,
    t: int,
    request: str,
    *,
    cost: int = 5,
    success: bool = True,
    code: int | None = None,
    group: str = "g",
) -> bytes:
    returned = (0 if success else 4) if code is None else code
    return record("SubAfter", request, message, cost, success, "key", returned, START_MS + t, group)


def made_id(process: int, number: int) -> str:
    """An id as a Java client makes them: address, pid, class loader, time, counter."""
    return f"7F000001{process:04X}{0x5CBC508C:08X}{number:012X}"


class TraceBuilder:
    """A run folder with pages, filled message by message."""

    def __init__(self, run_dir: Path, run: str = "traced") -> None:
        self.run_dir = run_dir
        self.run = run
        self.pages = Pages(run_dir)
        self.pages.open({"run": run})
        self._next: dict[tuple[str, Place], int] = defaultdict(int)
        self._rows: dict[tuple[str, Place], list[dict[str, object]]] = defaultdict(list)
        self._numbers = 0

    def trace(
        self, *records: bytes, host: str = "127.0.0.1", born: int = 0, took: int = 1, qid: int = 0
    ) -> None:
        """One trace message with these records, sent at ``born`` and stored ``took`` later."""
        place = Place("pair-b", TRACE_TOPIC, qid)
        message = stored(
            TRACE_TOPIC, qid, self._offset("records", place), b"".join(records), {}, born + took
        )
        message.born_timestamp = START_MS + born
        message.born_host = (host, 40000)
        self._write("records", place, record_rows(place, 0, message))

    def handled(
        self,
        message: str,
        t: int,
        end: int | None,
        *,
        process: int = 1,
        group: str = "g",
        rt: int = 0,
        success: bool = True,
        ahead: int = 0,
    ) -> str:
        """A handling in one trace message; without ``end`` there is no SubAfter.

        ``ahead``: of the client's clock, in ms.
        """
        t, end = t + ahead, None if end is None else end + ahead
        self._numbers += 1
        request = made_id(process, self._numbers)
        records = [before(message, t, request, group=group, rt=rt)]
        if end is not None:
            records.append(after(message, end, request, cost=end - t, success=success, group=group))
        self.trace(*records, born=end if end is not None else t, took=1 - ahead)
        return request

    def copy(
        self,
        message: str | None,
        *,
        topic: str = "T",
        qid: int = 0,
        rt: int = 0,
        t: int = 0,
        lid: int | None = None,
    ) -> int:
        """A message in a queue of pair-a; its offset."""
        place = Place("pair-a", topic, qid)
        properties = {KEYS: "key"}
        if message is not None:
            properties[UNIQ_KEY] = message
        if lid is not None:
            properties[LAB_ID_PROPERTY] = format_lab_id(7, lid)
        if topic.startswith("%RETRY%"):
            instance = instance_of(topic)
            properties[RETRY_TOPIC] = f"{instance}%T" if instance else "T"
        offset = self._offset("copies", place)
        found = stored(topic, qid, offset, b"x", properties, t, rt)
        self._write("copies", place, copy_rows(place, 0, found))
        return offset

    def flush(self) -> None:
        """Write what came since the last time as one page per queue."""
        for (table, place), rows in self._rows.items():
            first = self.pages.read_to(table, place) or 0
            self.pages.write(table, place, first, self._next[table, place], rows)
        self._rows.clear()

    def write(self, *, problems: tuple[str, ...] = (), **wanted: object) -> Written:
        """Make the run folder."""
        self.flush()
        chosen = Wanted(self.run, **wanted)  # type: ignore[arg-type]
        brokers = {"127.0.0.1:10911": "pair-a"}
        return write_run(self.run_dir, self.pages, chosen, brokers=brokers, problems=problems)

    def _offset(self, table: str, place: Place) -> int:
        return self._next[table, place]

    def _write(self, table: str, place: Place, rows: list[dict[str, object]]) -> None:
        self._rows[table, place] += rows
        self._next[table, place] += 1


def stored(
    topic: str,
    qid: int,
    offset: int,
    body: bytes,
    properties: dict[str, str],
    t: int,
    rt: int = 0,
) -> MessageExt:
    """A message as a broker at 127.0.0.1:10911 stored it at ``t``."""
    return MessageExt(
        topic=topic,
        queue_id=qid,
        flag=0,
        queue_offset=offset,
        physical_offset=hash_of(topic, qid, offset),
        sys_flag=0,
        born_timestamp=START_MS + t,
        born_host=("127.0.0.1", 40000),
        store_timestamp=START_MS + t,
        store_host=("127.0.0.1", 10911),
        reconsume_times=rt,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
        store_size=100,
        body_crc=0,
    )


def hash_of(topic: str, qid: int, offset: int) -> int:
    """A place in the log that no other message has."""
    return (sum(topic.encode()) * 16 + qid) * 1_000_000 + offset
